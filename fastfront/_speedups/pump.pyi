from collections.abc import Callable
from enum import IntEnum

from typing_extensions import Buffer

from fastfront._speedups.call import Call
from fastfront._speedups.vocabulary import Vocabulary

Headers = list[tuple[str, str]]

class ErrorCode(IntEnum):
    ERROR_INTERNAL = 0
    ERROR_VALIDATION = 1
    ERROR_PAUSED = 2
    ERROR_ENGINE_DEAD = 3

class EngineMessageError(ValueError): ...

class Pump:
    tokens: int
    sends: int
    overrun: int
    malformed: int
    prompt_tokens: int
    requests: list[int]
    live: int
    errors: list[Exception]
    finished_engines: list[int]
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
    def fail_call(self, call: Call, code: int, message: str) -> None: ...
    def fail_engine(self, engine: int, message: str) -> int: ...
    def ping(self, comment: bytes, silent_s: float) -> None: ...
    def take_aborts(self) -> list[tuple[int, bytes]]: ...
