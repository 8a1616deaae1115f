from typing import Any

def plain_chat(messages: list[Any]) -> tuple[str, list[str]] | None: ...

class Guards:
    inside: tuple[str, ...]
    starts: tuple[str, ...]
    ends: tuple[str, ...]
    stripped: bool
    filled: bool
    def __init__(
        self, inside: tuple[str, ...], starts: tuple[str, ...], ends: tuple[str, ...], stripped: bool, filled: bool
    ) -> None: ...
    def pass_all(self, texts: list[str]) -> bool: ...
