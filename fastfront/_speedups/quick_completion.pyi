from collections.abc import Callable
from typing import Any

from fastfront._speedups.quick_fields import QuickFields
from fastfront.streams.prepared import PreparedCall

class QuickCompletions:
    def __init__(self, fields: QuickFields, *, encode: Callable[[str], bytes], max_tokens: int) -> None: ...
    def prepare(self, fields: dict[str, Any], header: Callable[[str], str | None]) -> PreparedCall | None: ...
