from collections.abc import Callable
from typing import Any

from fastfront._speedups.quick_fields import QuickFields
from fastfront.streams.prepared import PreparedCall

class QuickChats:
    def __init__(
        self,
        fields: QuickFields,
        *,
        fill: Callable[[str, list[str], bool], str | None],
        encode: Callable[[str], bytes],
        billing_header: str,
    ) -> None: ...
    def prepare(self, fields: dict[str, Any], header: Callable[[str], str | None]) -> PreparedCall | None: ...
