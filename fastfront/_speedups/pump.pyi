from collections.abc import Callable

from typing_extensions import Buffer

from fastfront._speedups.call import Call
from fastfront._speedups.stream_table import StreamTable
from fastfront._speedups.vocabulary import Vocabulary

Headers = list[tuple[str, str]]

class EngineMessageError(ValueError): ...

class Pump(StreamTable):
    tokens: int
    sends: int
    overrun: int
    malformed: int
    prompt_tokens: int
    requests: list[int]
    errors: list[Exception]
    def __init__(
        self,
        vocabulary: Vocabulary,
        fail_body: Callable[[int, str], tuple[int, Headers, bytes]],
        fail_event: Callable[[int, str], bytes],
        sse_headers: Headers,
        json_headers: Headers,
    ) -> None: ...
    def attach(self, call: Call) -> list[tuple[int, bytes]]: ...
    def feed(self, message: Buffer, aux: list[Buffer] | None = None) -> tuple[int, bytes | None]: ...
    def cancel(self, call: Call) -> None: ...
    def fail_engine(self, engine: int, message: str) -> int: ...
    def histograms(self) -> dict[str, tuple[list[float], list[int], float]]: ...
    def ping(self, comment: bytes, silent_s: float) -> None: ...
