from collections.abc import Callable
from typing import Any

from fastfront.server.exchange import Headers, Request

JSON_HEADERS: Headers

class Exchange:
    request: Request
    protocol: Any
    method: str
    path: str
    arrival_time: float
    body: bytes
    extra_headers: Headers | None
    on_end: Callable[[Any], None] | None
    def __init__(self, request: Request) -> None: ...
    def header(self, name: str) -> str | None: ...
    def json(self, body: bytes, status: int = 200, headers: Headers | None = None) -> None: ...
    def reply(self, body: bytes, content_type: str, status: int = 200, headers: Headers | None = None) -> None: ...
    def empty(self, status: int, headers: Headers | None = None) -> None: ...
