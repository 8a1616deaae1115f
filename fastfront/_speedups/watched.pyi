from collections.abc import Callable
from typing import Any

from fastfront._speedups.http_counts import HttpCounts

class Watched:
    status: int
    seconds: float
    def __init__(
        self,
        protocol: Any,
        counts: HttpCounts | None,
        handler: int,
        method: int,
        length: str | None,
        tell: Callable[[Watched], object] | None,
    ) -> None: ...
    def response_bytes(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None: ...
    def response_empty(self, status: int, headers: list[tuple[str, str]]) -> None: ...
    def response_stream(self, status: int, headers: list[tuple[str, str]]) -> Any: ...
    def abandon(self) -> None: ...
    def ended(self, call: object) -> None: ...
