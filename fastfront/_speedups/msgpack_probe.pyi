from typing import Any

from typing_extensions import Buffer

def read_one(kind: str, data: Buffer) -> tuple[Any, int] | None: ...
