from collections.abc import Callable

from fastfront._speedups.quick_fields import Quick, QuickFields

class QuickCompletions(Quick):
    def __init__(self, fields: QuickFields, *, encode: Callable[[str], bytes], max_tokens: int) -> None: ...
