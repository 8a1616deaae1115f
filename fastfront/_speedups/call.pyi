from collections.abc import Callable
from typing import Any

from fastfront._speedups.vocabulary import Vocabulary
from fastfront.streams.prepared import PreparedCall
from fastfront.streams.sink import Sink

class Call:
    vocabulary: Vocabulary
    protocol: Any
    on_end: Callable[[Call], None] | None
    again: Callable[[Call], Call | None] | None
    sink: Sink | None
    headers: list[tuple[str, str]] | None
    external_id: str
    adapter: str | None
    arrival_time: float
    disconnected: bool
    def __init__(
        self,
        prepared: PreparedCall,
        vocabulary: Vocabulary,
        protocol: Any,
        engines: list[int],
        client_index: int,
        fingerprint: str,
        arrival_time: float,
        on_end: Callable[[Call], None] | None = None,
        headers: list[tuple[str, str]] | None = None,
    ) -> None: ...
    @property
    def choices(self) -> int: ...
    @property
    def stream(self) -> bool: ...
    @property
    def started(self) -> bool: ...
    @property
    def ended(self) -> bool: ...
    @property
    def usage(self) -> tuple[int, int]: ...
    @property
    def awaits_token(self) -> bool: ...
    @property
    def has_token(self) -> bool: ...
    @property
    def first_token_s(self) -> float | None: ...
    @property
    def phases(self) -> tuple[float | None, float | None, float | None]: ...
