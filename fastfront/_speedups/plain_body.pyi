from collections.abc import Mapping
from typing import Any

SHAPES: Mapping[str, int]

class PlainBodies:
    def __init__(self, fields: dict[str, int], required: tuple[str, ...]) -> None: ...
    def read(self, body: bytes) -> dict[str, Any] | None: ...
