from collections.abc import Callable, Mapping, Sequence

from typing_extensions import Buffer

from fastfront._speedups.call import Call
from fastfront._speedups.counters import Counters
from fastfront._speedups.engine_sockets import EngineSockets
from fastfront._speedups.stream_table import StreamTable
from fastfront._speedups.vocabulary import Vocabulary

Headers = list[tuple[str, str]]

ANSWERED: int
MALFORMED: int
DEAD: int

class EngineMessageError(ValueError): ...

class Pump(StreamTable):
    counters: Counters
    sends: int
    overrun: int
    malformed: int
    errors: list[Exception]
    def __init__(
        self,
        vocabulary: Vocabulary,
        fail_body: Callable[[int, str], tuple[int, Headers, bytes]],
        fail_event: Callable[[int, str], bytes],
        sse_headers: Headers,
        json_headers: Headers,
        engines: int = 1,
        local_engines: int = 0,
        buckets: Mapping[str, Sequence[float]] | None = None,
    ) -> None: ...
    def attach(self, call: Call) -> list[tuple[int, bytes]]: ...
    def adapters(self) -> tuple[set[str], set[str]]: ...
    def unsent(self, engine: int) -> list[Call]: ...
    def withdraw(self, call: Call, engine: int) -> None: ...
    def feed(self, message: Buffer, aux: list[Buffer] | None = None) -> tuple[int, bytes | None]: ...
    def run(self, sockets: EngineSockets, patience_ms: int) -> tuple[int, int, bytes | None] | None: ...
    def cancel(self, call: Call) -> None: ...
    def fail_engine(self, engine: int, message: str) -> int: ...
    @property
    def tokens(self) -> int: ...
    @property
    def prompt_tokens(self) -> int: ...
    def ping(self, comment: bytes, silent_s: float) -> None: ...
