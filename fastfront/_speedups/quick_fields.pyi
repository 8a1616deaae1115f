from collections.abc import Callable, Mapping
from typing import Any, Literal

from fastfront.openai.adapters import Adapters
from fastfront.streams.prepared import PreparedCall

CHAT: Mapping[str, int]
COMPLETION: Mapping[str, int]
MAX_TOP_K: int
MAX_SALT_CHARS: int
SALT_FORBIDDEN: frozenset[str]

class QuickFields:
    @property
    def max_model_len(self) -> int: ...
    def __init__(
        self,
        *,
        kind: Literal["chat", "completion"],
        model: str,
        model_names: frozenset[str],
        any_model_name: bool,
        max_model_len: int,
        max_token_id: int,
        max_chars: int,
        vocab_size: int,
        max_new_tokens: int | None,
        max_tokens_cap: int | None,
        max_stop_strings: int,
        max_n: int,
        max_logprobs: int,
        defaults: Mapping[str, float],
        stop_map: Callable[[bool, list[int] | None], dict[str, object]],
        role: str,
        force_usage: bool,
        prompt_details: bool,
        metrics: bool,
        tokens_as_ids: bool,
        greedy_below: float,
        min_temperature: float,
        most_min_p: float,
        stream_interval: int,
        adapters: Adapters | None,
    ) -> None: ...

class Quick:
    def prepare(self, fields: dict[str, Any], header: Callable[[str], str | None]) -> PreparedCall | None: ...
