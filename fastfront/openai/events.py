"""JSON and named server-sent events, for answers made in Python."""

from __future__ import annotations

import json
from collections.abc import Mapping
from json.encoder import encode_basestring
from typing import Any

from fastfront._speedups.passage import Field

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


def text_layout(event: bytes) -> list[bytes | int]:
    """The layout of events like one whose text is a NUL, and whose number, if it has one, is -1."""
    before, _, after = event.partition(compact("\0")[1:-1])
    name = b'"sequence_number":'
    middle, number, end = after.partition(name + b"-1")
    if not number:
        return [before, Field.FIELD_TEXT, after]
    return [before, Field.FIELD_TEXT, middle + name, Field.FIELD_NUMBER, end]
