"""Spans as data."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")
MOST_STATE = 512                                # characters of a tracestate that are passed on

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
    trace_state: str                            # the client's tracestate header, or none
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


def state_of(header: str | None) -> str:
    """What of a tracestate header goes on with the span: all of it, or nothing if it is too long."""
    return header.strip() if header is not None and len(header) <= MOST_STATE else ""
