"""JSON and named server-sent events, for answers made in Python."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def compact(value: object) -> bytes:
    """JSON without spaces. What UTF-8 cannot hold becomes `?`. Raises ValueError for numbers that JSON does not have."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8", "replace")


def named_event(data: Mapping[str, Any]) -> bytes:
    """An event whose name is its data's `type`."""
    return b"event: %b\ndata: %b\n\n" % (data["type"].encode(), compact(data))
