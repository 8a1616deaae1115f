"""Answers to bodies that are no JSON or do not have the request's shape."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fastfront.errors import ApiError

_MAX_SHOWN = 10
_MAX_INPUT_CHARS = 200
_MAX_LINE_CHARS = 1000
_CUT = "...[truncated]"
# Steps of a location that name a wrapper or a member of a union, not a field of the body: words of pydantic's, and those of
# the types here that have no public name.
_BRACKETS = re.compile(r"[\[\]{}()]")
_INTERNAL = frozenset({
    "function-wrap", "function-after", "function-before", "function-plain", "json-or-python", "lax-or-strict", "chain", "default",
    "nullable", "tagged-union", "union", "call", "arguments", "is-instance", "is-subclass", "callable", "str", "int", "float",
    "bool", "bytes", "bytearray", "list", "tuple", "dict", "set", "frozenset", "complex", "none", "nonetype", "constrained-int",
    "constrained-float", "constrained-str", "responseformat", "structuraltag", "legacystructuraltag", "namedtoolchoice",
    "textprompt", "chatprompt", "toolchoice",
})  # fmt: skip

# Where an object has a shape of its own, not just any keys.
_SHAPED = re.compile(
    r"body(\.\d+)?(\.(stream_options|thinking|reasoning|response_format(\.json_schema)?|text(\.format\.\w+)?|tool_choice(\.\w+)?"
    r"|output_config(\.format)?|tools\.\d+(\.function|\.[A-Z]\w+)?|system\.\d+|messages\.\d+(\.content\.\d+)?))?"
)
_NOT_SHAPED = "Input should be a valid dictionary or object to extract fields from"

ErrorDetails = Mapping[str, Any]


def schema_error(details: Iterable[ErrorDetails]) -> ApiError:
    """One 400 for all errors of a body; `param` is where the first one is.

    Each of the details has pydantic's keys `type`, `loc`, `msg`, `input` and perhaps `ctx`.
    """
    found = list(details)
    lines = [f"{len(found)} validation error{'' if len(found) == 1 else 's'}:"]
    for item in found[:_MAX_SHOWN]:
        place = location(item["loc"])
        kind, message, ctx = item["type"], item["msg"], item.get("ctx")
        if kind == "model_type" or (kind == "dict_type" and _SHAPED.fullmatch(place)):
            kind, message, ctx = "model_attributes_type", _NOT_SHAPED, None
        shown = {"type": kind, "loc": place, "msg": message, "input": _summary(item.get("input"))}
        if ctx:
            shown["ctx"] = {key: str(value) if isinstance(value, Exception) else value for key, value in ctx.items()}
        line = repr(shown)
        lines.append("  " + (line if len(line) <= _MAX_LINE_CHARS else line[:_MAX_LINE_CHARS] + _CUT))
    if len(found) > _MAX_SHOWN:
        lines.append(f"  ...and {len(found) - _MAX_SHOWN} more errors")
    return ApiError("\n".join(lines), kind="Bad Request", param=location(found[0]["loc"]) if found else None)


def require_short(items: Sequence[object], most: int, field: str) -> None:
    """Raises the schema's error if a field's list has more than `most` items."""
    if len(items) > most:
        message = f"List should have at most {most} items after validation, not {len(items)}"
        ctx = {"field_type": "List", "max_length": most, "actual_length": len(items)}
        raise schema_error([{"type": "too_long", "loc": (field,), "msg": message, "input": items, "ctx": ctx}])


def location(loc: Iterable[int | str]) -> str:
    """The dotted path of an error, beginning `body`."""
    return ".".join(["body", *(str(step) for step in loc if not _is_internal(step))])


def _is_internal(step: int | str) -> bool:
    return isinstance(step, str) and (step.lower() in _INTERNAL or _BRACKETS.search(step) is not None)


def not_json(position: int | None, reason: str) -> ApiError:
    """The 400 of a body that is no JSON; the position counts characters, None if the parser does not tell."""
    return schema_error(
        [{"type": "json_invalid", "loc": () if position is None else (position,), "msg": "JSON decode error",
          "input": {}, "ctx": {"error": reason}}]
    )  # fmt: skip


def no_object(value: object) -> ApiError:
    """The 400 of a body that is JSON but no object."""
    if value is None:
        return schema_error([{"type": "missing", "loc": (), "msg": "Field required", "input": None}])
    return schema_error([{"type": "dict_type", "loc": (), "msg": _NOT_SHAPED, "input": value}])


def wrong_media_type() -> ApiError:
    """The 400 of a content type that is not application/json."""
    return ApiError(
        "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed", kind="Bad Request"
    )


def _summary(value: object) -> str:
    if isinstance(value, (dict, list)):
        return f"<{type(value).__name__} of {len(value)} items>"
    try:
        text = str(value)
    except ValueError:  # an integer too long to be written
        return "<huge number>"
    return text if len(text) <= _MAX_INPUT_CHARS else text[:_MAX_INPUT_CHARS] + _CUT
