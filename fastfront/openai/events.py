"""JSON and named server-sent events, for answers made in Python."""

from __future__ import annotations

import json
from collections.abc import Mapping
from json.encoder import encode_basestring
from typing import Any

_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))  # dumps() makes one each time


def compact(value: object) -> bytes:
    """JSON without spaces. What UTF-8 cannot hold becomes `?`. Raises ValueError for numbers that JSON does not have."""
    return _ENCODER.encode(value).encode("utf-8", "replace")


def json_string(text: str) -> bytes:
    """A string as JSON: what `compact` gives, sooner."""
    return encode_basestring(text).encode("utf-8", "replace")


def named_event(data: Mapping[str, Any]) -> bytes:
    """An event whose name is its data's `type`."""
    return b"event: %b\ndata: %b\n\n" % (data["type"].encode(), compact(data))
