from collections.abc import Sequence
from enum import IntEnum

class Field(IntEnum):
    FIELD_NONE = 0
    FIELD_TEXT = 1
    FIELD_IDS = 2
    FIELD_LOGPROBS = 3
    FIELD_USAGE = 4
    FIELD_NUMBER = 5

class Triggers:
    def __init__(self, *strings: str, spaces: bool = False) -> None: ...
    def end(self, text: str) -> bool: ...

class Passage:
    number: int
    def __init__(
        self,
        layout: Sequence[bytes | int] | None,
        triggers: tuple[Triggers, ...],
        *,
        keeps_text: bool = False,
        keeps_ids: bool = False,
    ) -> None: ...
    def take(self) -> tuple[str, bytes]: ...
