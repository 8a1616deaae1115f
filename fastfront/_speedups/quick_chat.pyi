from collections.abc import Callable

from fastfront._speedups.quick_fields import Quick, QuickFields

class QuickChats(Quick):
    def __init__(
        self,
        fields: QuickFields,
        *,
        fill: Callable[[str, list[str], bool], str | None],
        encode: Callable[[str], bytes],
        billing_header: str,
    ) -> None: ...
