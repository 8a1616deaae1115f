from collections.abc import Callable
from typing import Any

from fastfront._speedups.exchange import Exchange
from fastfront._speedups.plain_body import PlainBodies
from fastfront._speedups.prepared import PreparedCall
from fastfront._speedups.quick_fields import Quick
from fastfront._speedups.submitter import Submitter
from fastfront._speedups.watched import Watch

Handler = Callable[[Exchange], object]

class Route:
    @property
    def handler(self) -> Handler: ...
    @property
    def reads_body(self) -> bool: ...
    @property
    def guarded(self) -> bool: ...
    def __init__(self, handler: Handler, reads_body: bool = False, guarded: bool = False) -> None: ...

class Gate:
    is_open: bool

class Generation:
    def __init__(
        self,
        gate: Gate,
        bodies: PlainBodies,
        quick: Quick | None,
        submitter: Submitter,
        *,
        prepare: Callable[[Exchange], PreparedCall],
        submit: Callable[[PreparedCall, Exchange], None],
        plain: bool,
        asked_with: str,
    ) -> None: ...
    def __call__(self, exchange: Exchange) -> None: ...

class Intake:
    def __init__(
        self,
        routes: dict[str, dict[str, Route]],
        watch: Watch | None,
        keys: list[bytes],
        inline_bytes: int,
        adds_headers: bool,
    ) -> None: ...
    def intake(self, request: Any) -> None: ...
    def run(self, exchange: Exchange, handler: Handler) -> None: ...
    def trusts(self, exchange: Exchange) -> bool: ...
