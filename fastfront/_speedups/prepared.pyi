from collections.abc import Mapping
from typing import Any, Literal

from fastfront.streams.prepared import Steps
from fastfront.streams.sink import Sink

FIELDS: tuple[str, ...]

class PreparedPrompt:
    ids: bytes
    max_tokens: int
    echo_text: str
    text: str | None
    @property
    def token_ids(self) -> list[int]: ...
    @property
    def length(self) -> int: ...
    def __init__(self, token_ids: list[int] | bytes, max_tokens: int, echo_text: str = "", text: str | None = None) -> None: ...

class PreparedCall:
    kind: Literal["chat", "completion"]
    external_id: str  # chatcmpl-<rid> or cmpl-<rid>
    created: int  # unix seconds
    model: str  # the first served name, or the adapter's
    prompts: list[PreparedPrompt]
    sampling: dict[str, object]
    n: int
    seed: int | None
    stream: bool
    include_usage: bool
    continuous_usage: bool
    return_token_ids: bool
    prompt_details: bool
    metrics: bool
    stop: list[str]
    include_stop_str_in_output: bool
    min_tokens: int
    skip_special_tokens: bool
    hide_output: bool
    logprobs: int | None
    prompt_logprobs: int | None
    echo_logprobs: bool
    tokens_as_ids: bool
    role: str
    echo_content: str
    sink: Sink | None
    priority: int
    cache_salt: str | None
    lora_request: bytes | None
    reasoning_ended: bool | None
    reasoning_kwargs: Mapping[str, object] | None
    data_parallel_rank: int | None
    stream_interval: int
    steps: Steps | None
    def __init__(
        self,
        kind: Literal["chat", "completion"],
        external_id: str,
        created: int,
        model: str,
        prompts: list[PreparedPrompt],
        sampling: dict[str, object],
        *,
        n: int = 1,
        seed: int | None = None,
        stream: bool = False,
        include_usage: bool = False,
        continuous_usage: bool = False,
        return_token_ids: bool = False,
        prompt_details: bool = False,
        metrics: bool = False,
        stop: list[str] | None = None,
        include_stop_str_in_output: bool = False,
        min_tokens: int = 0,
        skip_special_tokens: bool = True,
        hide_output: bool = False,
        logprobs: int | None = None,
        prompt_logprobs: int | None = None,
        echo_logprobs: bool = False,
        tokens_as_ids: bool = False,
        role: str = "assistant",
        echo_content: str = "",
        sink: Sink | None = None,
        priority: int = 0,
        cache_salt: str | None = None,
        reasoning_ended: bool | None = None,
        reasoning_kwargs: Mapping[str, object] | None = None,
        data_parallel_rank: int | None = None,
        steps: Steps | None = None,
        stream_interval: int = 1,
        lora_request: bytes | None = None,
    ) -> None: ...
    def fields(self) -> dict[str, Any]: ...
    def replace(self, **changes: Any) -> PreparedCall: ...
