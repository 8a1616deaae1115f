"""Ready-made msgpack pieces of output messages: the mock must never be what a measurement measures."""

from __future__ import annotations

import struct

from engine.protocol import array

NIL = b"\xc0"
PLAIN_TAIL = NIL * 11 + b"\x00" + NIL * 4
"""Elements 2..17 of an output with nothing but tokens."""


def pack_int(value: int) -> bytes:
    """Shortest msgpack form of an integer in -(2**63)..2**64-1."""
    if 0 <= value < 128:
        return bytes((value,))
    if value < 0:
        return struct.pack(">Bb", 0xD0, value) if value >= -128 else struct.pack(">Bq", 0xD3, value)
    if value < 1 << 8:
        return struct.pack(">BB", 0xCC, value)
    if value < 1 << 16:
        return struct.pack(">BH", 0xCD, value)
    if value < 1 << 32:
        return struct.pack(">BI", 0xCE, value)
    return struct.pack(">BQ", 0xCF, value)


def pack_str(value: str) -> bytes:
    """Msgpack str."""
    data = value.encode()
    size = len(data)
    if size < 32:
        return b"%c%b" % (0xA0 | size, data)
    if size < 1 << 8:
        return b"\xd9%c%b" % (size, data)
    return struct.pack(">BH", 0xDA, size) + data


def output_head(request_id: str) -> bytes:
    """Start of an 18-element output with one token, up to the token."""
    return b"\xdc\x00\x12%b\x91" % pack_str(request_id)


def output_tail(finish: int | None, first: tuple[float, float, int] | None = None) -> bytes:
    """Elements 2..17. `first` = (queued, scheduled, prompt tokens) adds events and prefill stats."""
    done = NIL if finish is None else bytes((finish,))
    if first is None:
        return NIL * 3 + done + _TAIL_REST
    queued, scheduled, prompt = first
    count = pack_int(prompt)
    return b"%b%b%b%b%b%b%b%b%b%b" % (
        NIL * 3, done, _TAIL_QUEUED, _DOUBLE(queued), _TAIL_SCHEDULED, _DOUBLE(scheduled), _TAIL_PROMPT, count, _TAIL_COMPUTED,
        count + _TAIL_COUNTS,
    )  # fmt: skip


def message(engine_index: int, count: int, pieces: bytes, timestamp: float, stats: bytes = NIL, finished: bytes = NIL) -> bytes:
    """One outputs message of `count` encoded outputs; `stats` and `finished` are encoded elements 2 and 5."""
    return b"".join(
        (
            b"\x99",
            pack_int(engine_index),
            bytes((0x90 | count,)) if count < 16 else struct.pack(">BI", 0xDD, count),
            pieces,
            stats,
            b"\xcb",
            struct.pack(">d", timestamp),
            NIL,
            finished,
            _MESSAGE_TAIL,
        )
    )


def logprob_arrays(
    rows: list[list[int]], values: list[list[float]], ranks: list[int], *, prompt: bool = False
) -> list[list[object] | None]:
    """Logprobs as the wire has them; all rows are of one length, column 0 is the sampled (or prompt) token."""
    count, width = len(rows), len(rows[0]) if rows else 1
    flat_ids = struct.pack(f"<{count * width}i", *(token for row in rows for token in row))
    flat = struct.pack(f"<{count * width}f", *(value for row in values for value in row))
    shape = [count, width]
    if prompt:
        ids, logs = array("int32", shape, flat_ids), array("float32", shape, flat)
        return [ids, logs, array("int32", [count], struct.pack(f"<{count}i", *ranks)), None, None]
    ids, logs = array("<i4", shape, flat_ids), array("<f4", shape, flat)
    return [ids, logs, array("<i8", [count], struct.pack(f"<{count}q", *ranks)), None]


_DOUBLE = struct.Struct(">d").pack
_TAIL_REST = NIL * 7 + b"\x00" + NIL * 4
_TAIL_QUEUED = NIL + b"\x92\x82" + pack_str("type") + b"\x01" + pack_str("timestamp") + b"\xcb"
_TAIL_SCHEDULED = b"\x82" + pack_str("type") + b"\x02" + pack_str("timestamp") + b"\xcb"
_TAIL_PROMPT = NIL * 3 + b"\x86" + pack_str("num_prompt_tokens")
_TAIL_COMPUTED = pack_str("num_computed_tokens")
_CACHED = ("num_cached_tokens", "num_local_cached_tokens", "num_external_cached_tokens", "num_cache_creation_tokens")
_TAIL_COUNTS = b"".join(pack_str(key) + b"\x00" for key in _CACHED) + NIL + b"\x00" + NIL * 4
_MESSAGE_TAIL = NIL * 2 + pack_str("default")
