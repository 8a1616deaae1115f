"""Spans as data, and the JSON that collectors take."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

NAME = "llm_request"
SERVER_KIND, ERROR_STATUS = 2, 2
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")

Attribute = str | int | float | bool


class Parent(NamedTuple):
    """Where a client's trace has come to, from its traceparent header."""

    trace_id: str
    span_id: str
    sampled: bool


class Span(NamedTuple):
    trace_id: str                               # 32 hex digits
    span_id: str                                # 16
    parent_id: str                              # 16, or none
    began_s: float                              # unix time
    ended_s: float
    attributes: Mapping[str, Attribute | None]  # those without a value are left out
    failed: bool


def parent_of(header: str | None) -> Parent | None:
    """The parent in a traceparent header; None if there is none, or none that can be read."""
    found = _TRACEPARENT.fullmatch(header.strip().lower()) if header else None
    if found is None or header is None or header.lstrip().startswith("ff") or not int(found[1], 16) or not int(found[2], 16):
        return None
    return Parent(found[1], found[2], bool(int(found[3], 16) & 1))


def export_body(spans: Sequence[Span], service: str) -> dict[str, Any]:
    """An ExportTraceServiceRequest."""
    scope = {"scope": {"name": "fastfront"}, "spans": [_span(span) for span in spans]}
    resource = {"attributes": _attributes({"service.name": service})}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]}


def _span(span: Span) -> dict[str, Any]:
    out: dict[str, Any] = {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "name": NAME,
        "kind": SERVER_KIND,
        "startTimeUnixNano": str(int(span.began_s * 1e9)),
        "endTimeUnixNano": str(int(span.ended_s * 1e9)),
        "attributes": _attributes(span.attributes),
        "status": {"code": ERROR_STATUS} if span.failed else {},
    }
    if span.parent_id:
        out["parentSpanId"] = span.parent_id
    return out


def _attributes(values: Mapping[str, Attribute | None]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in values.items() if value is not None]


def _value(value: Attribute) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"doubleValue": value} if isinstance(value, float) else {"stringValue": value}
