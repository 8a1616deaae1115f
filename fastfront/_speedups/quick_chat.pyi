from collections.abc import Callable
from typing import Any

from fastfront.streams.prepared import PreparedCall

FIELDS: frozenset[str]

class QuickChats:
    def __init__(
        self,
        *,
        fill: Callable[[str, list[str], bool], str | None],
        encode: Callable[[str], bytes],
        model: str,
        model_names: frozenset[str],
        any_model_name: bool,
        max_model_len: int,
        max_token_id: int,
        max_new_tokens: int | None,
        max_tokens_cap: int | None,
        max_stop_strings: int,
        stopping: dict[str, object],
        ignoring: dict[str, object],
        role: str,
        billing_header: str,
        force_usage: bool,
        prompt_details: bool,
        metrics: bool,
        tokens_as_ids: bool,
        greedy_below: float,
        min_temperature: float,
    ) -> None: ...
    def prepare(self, fields: dict[str, Any], header: Callable[[str], str | None]) -> PreparedCall | None: ...
