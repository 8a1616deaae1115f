from collections.abc import Callable
from typing import Any

from fastfront._speedups.call import Call
from fastfront._speedups.engine_loads import EngineLoads
from fastfront._speedups.inbox import Inbox
from fastfront._speedups.prepared import PreparedCall
from fastfront._speedups.vocabulary import Vocabulary

class Submitter:
    def __init__(
        self,
        lanes: list[Any],
        loads: EngineLoads,
        vocabulary: Vocabulary,
        fingerprint: str,
        on_submit: Callable[[PreparedCall], None] | None,
        *,
        streams_per_lane: int,
        chooses: bool,
        admits: bool,
    ) -> None: ...
    def submit(
        self,
        prepared: PreparedCall,
        client: Any,
        protocol: Any,
        arrival_time: float,
        headers: list[tuple[str, str]] | None = None,
        on_end: Callable[[Call], None] | None = None,
        announced: bool = False,
    ) -> None: ...
    def call_for(
        self,
        prepared: PreparedCall,
        client: Any,
        protocol: Any,
        engines: list[int],
        lane: Inbox,
        arrival_time: float,
        headers: list[tuple[str, str]] | None,
        on_end: Callable[[Call], None] | None,
    ) -> Call: ...
