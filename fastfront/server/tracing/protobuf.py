"""Spans as the protobuf message that collectors take (opentelemetry-proto, ExportTraceServiceRequest).

Written by hand: the message is small and fixed, and nothing has to be read.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from fastfront.server.tracing.spans import Attribute, Span

NAME = "llm_request"
SERVER_KIND, ERROR_STATUS = 2, 2
SAMPLED, PARENT_KNOWN, PARENT_REMOTE = 0x01, 0x100, 0x200  # SpanFlags
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5            # wire types


def export_request(spans: Sequence[Span], resource: Mapping[str, Attribute | None]) -> bytes:
    """All spans as of one resource: what its attributes say made them."""
    scope = _bytes(1, _text(1, "fastfront"))
    return _bytes(1, _bytes(1, _attributes(1, resource)) + _bytes(2, scope + b"".join(_bytes(2, _span(span)) for span in spans)))


def _span(span: Span) -> bytes:
    flags = SAMPLED | PARENT_KNOWN | (PARENT_REMOTE if span.parent_id else 0)
    return b"".join(
        (
            _bytes(1, bytes.fromhex(span.trace_id)),
            _bytes(2, bytes.fromhex(span.span_id)),
            _text(3, span.trace_state) if span.trace_state else b"",
            _bytes(4, bytes.fromhex(span.parent_id)) if span.parent_id else b"",
            _text(5, NAME),
            _number(6, SERVER_KIND),
            _key(7, _FIXED64) + struct.pack("<Q", int(span.began_s * 1e9)),
            _key(8, _FIXED64) + struct.pack("<Q", int(span.ended_s * 1e9)),
            _attributes(9, span.attributes),
            _bytes(15, _number(3, ERROR_STATUS)) if span.failed else b"",
            _key(16, _FIXED32) + struct.pack("<I", flags),
        )
    )


def _attributes(field: int, values: Mapping[str, Attribute | None]) -> bytes:
    return b"".join(_bytes(field, _text(1, key) + _bytes(2, _value(value))) for key, value in values.items() if value is not None)


def _value(value: Attribute) -> bytes:
    if isinstance(value, bool):
        return _number(2, value)
    if isinstance(value, int):
        return _number(3, value)
    return _key(4, _FIXED64) + struct.pack("<d", value) if isinstance(value, float) else _text(1, value)


def _text(field: int, value: str) -> bytes:
    return _bytes(field, value.encode("utf-8", "replace"))


def _bytes(field: int, value: bytes) -> bytes:
    return _key(field, _BYTES) + _varint(len(value)) + value


def _number(field: int, value: int) -> bytes:
    return _key(field, _VARINT) + _varint(value & (1 << 64) - 1)


def _key(field: int, wire_type: int) -> bytes:
    return _varint(field << 3 | wire_type)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
