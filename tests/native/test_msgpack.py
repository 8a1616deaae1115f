"""Msgpack: known encodings, round trips, the wire vectors, truncation at every byte, hostile input."""

import json
import math
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfront._speedups.msgpack import DecodeError, Ext, packb, skip, unpackb
from fastfront._speedups.msgpack_probe import read_one
from tests.native.edge import PageEdge

READERS = ("array", "map", "str", "bin", "ext", "int", "float", "bool", "nil")
VECTORS = Path(__file__).parents[1] / "vectors"

# From the msgpack specification: value, shortest encoding.
KNOWN: list[tuple[Any, str]] = [
    (None, "c0"),
    (False, "c2"),
    (True, "c3"),
    (0, "00"),
    (127, "7f"),
    (128, "cc80"),
    (255, "ccff"),
    (256, "cd0100"),
    (65535, "cdffff"),
    (65536, "ce00010000"),
    (2**32 - 1, "ceffffffff"),
    (2**32, "cf0000000100000000"),
    (2**63, "cf8000000000000000"),
    (2**64 - 1, "cfffffffffffffffff"),
    (-1, "ff"),
    (-32, "e0"),
    (-33, "d0df"),
    (-128, "d080"),
    (-129, "d1ff7f"),
    (-32768, "d18000"),
    (-32769, "d2ffff7fff"),
    (-(2**31), "d280000000"),
    (-(2**31) - 1, "d3ffffffff7fffffff"),
    (-(2**63), "d38000000000000000"),
    (1.5, "cb3ff8000000000000"),
    ("", "a0"),
    ("é", "a2c3a9"),
    ("a" * 31, "bf" + "61" * 31),
    ("a" * 32, "d920" + "61" * 32),
    ("a" * 256, "da0100" + "61" * 256),
    ("a" * 65536, "db00010000" + "61" * 65536),
    (b"", "c400"),
    (b"\x00\xff", "c40200ff"),
    (b"a" * 256, "c50100" + "61" * 256),
    (b"a" * 65536, "c600010000" + "61" * 65536),
    ([], "90"),
    ([1] * 15, "9f" + "01" * 15),
    ([1] * 16, "dc0010" + "01" * 16),
    ([1] * 65536, "dd00010000" + "01" * 65536),
    ({}, "80"),
    ({"a": 1}, "81a16101"),
    (dict.fromkeys(range(16), 0), "de0010" + "".join(f"{i:02x}00" for i in range(16))),
    (Ext(1, b"a"), "d40161"),
    (Ext(-1, b"ab"), "d5ff6162"),
    (Ext(2, b"abcd"), "d60261626364"),
    (Ext(3, b"a" * 8), "d703" + "61" * 8),
    (Ext(4, b"a" * 16), "d804" + "61" * 16),
    (Ext(5, b""), "c70005"),
    (Ext(5, b"abc"), "c70305616263"),
    (Ext(6, b"a" * 256), "c8010006" + "61" * 256),
    (Ext(7, b"a" * 65536), "c90001000007" + "61" * 65536),
]

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
    | st.binary(max_size=40)
    | st.builds(Ext, st.integers(-128, 127), st.binary(max_size=20))
)
KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.integers(-(2**63), 2**64 - 1)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(KEYS, inner, max_size=5), max_leaves=30
)


def wire_frames() -> list[tuple[str, bytes]]:
    """Every frame of the recorded wire messages that is one msgpack value."""
    frames: list[tuple[str, bytes]] = []
    for path in sorted(VECTORS.glob("*.json")):
        record = json.loads(path.read_text())
        for number, text in enumerate(record.get("frames", [])):
            data = bytes.fromhex(text)
            try:
                unpackb(data)
            except DecodeError:
                continue
            frames.append((f"{path.stem}[{number}]", data))
    return frames


FRAMES = wire_frames()


def test_the_wire_vectors_are_there() -> None:
    assert len(FRAMES) >= 37


@pytest.mark.parametrize(("value", "encoding"), KNOWN, ids=lambda v: str(v)[:16])
def test_known_encodings(value: Any, encoding: str) -> None:
    data = bytes.fromhex(encoding)
    assert packb(value) == data
    assert unpackb(data) == value
    assert skip(data) == len(data)


@pytest.mark.parametrize(("value", "encoding"), KNOWN, ids=lambda v: str(v)[:16])
def test_known_encodings_cut_anywhere_are_refused(value: Any, encoding: str) -> None:
    data = bytes.fromhex(encoding)
    for cut in [*range(min(len(data), 300)), len(data) - 1]:
        with pytest.raises(DecodeError):
            unpackb(data[:cut])
        with pytest.raises(DecodeError):
            skip(data[:cut])


@pytest.mark.parametrize(
    ("encoding", "value"),
    [
        ("cc05", 5), ("cd0005", 5), ("ce00000005", 5), ("cf0000000000000005", 5),
        ("d005", 5), ("d0ff", -1), ("d1ffff", -1), ("d2ffffffff", -1), ("d3ffffffffffffffff", -1),
        ("d90161", "a"), ("da000161", "a"), ("db0000000161", "a"), ("dc000101", [1]), ("dd0000000101", [1]),
        ("de0001a16101", {"a": 1}), ("df00000001a16101", {"a": 1}), ("ca3fc00000", 1.5), ("c7010161", Ext(1, b"a")),
    ],
)  # fmt: skip
def test_longer_encodings_are_read(encoding: str, value: Any) -> None:
    assert unpackb(bytes.fromhex(encoding)) == value


@given(VALUES)
def test_round_trip(value: Any) -> None:
    data = packb(value)
    assert unpackb(data) == value
    assert skip(data) == len(data)
    assert packb(unpackb(data)) == data


def test_special_floats() -> None:
    assert unpackb(packb(math.inf)) == math.inf
    assert math.isnan(unpackb(packb(math.nan)))
    assert struct.pack(">d", -0.0) in packb(-0.0)


def test_tuples_and_sets_become_arrays_and_subclasses_their_base() -> None:
    assert unpackb(packb((1, (2,)))) == [1, [2]]
    assert sorted(unpackb(packb({3, 1}))) == [1, 3]
    assert unpackb(packb(frozenset([1]))) == [1]


@pytest.mark.parametrize("value", [object(), 1j, [object()], {"a": object()}])
def test_values_without_a_msgpack_form(value: object) -> None:
    with pytest.raises(TypeError):
        packb(value)


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1])
def test_integers_beyond_64_bits(value: int) -> None:
    with pytest.raises(OverflowError):
        packb(value)


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


def test_depth_is_limited_to_64_in_both_directions() -> None:
    assert unpackb(packb(nested(64))) == nested(64)
    with pytest.raises(ValueError, match="64"):
        packb(nested(65))
    with pytest.raises(DecodeError, match="64"):
        unpackb(b"\x91" * 64 + b"\x91\x00")
    with pytest.raises(DecodeError):
        unpackb(b"\x81\x01" * 70)
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(ValueError, match="64"):
        packb(loop)


def test_skipping_has_no_depth_limit() -> None:
    assert skip(b"\x91" * 1_000_000 + b"\x00") == 1_000_001


@pytest.mark.parametrize(
    "data",
    [
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\xc9\xff\xff\xff\xff\x01",
        b"\xdd\xff\xff\xff\xff" * 60,
    ],
)
def test_huge_announced_lengths_are_refused_without_memory(data: bytes) -> None:
    with pytest.raises(DecodeError):
        unpackb(data + b"\x00" * 100)
    with pytest.raises(DecodeError):
        skip(data + b"\x00" * 100)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\x91\xc1",
        b"\x01\x02",
        b"\xa1\xff",
        b"\xa3\xed\xa0\x80",
        b"\x81\xc0\x01",
        b"\x81\x90\x01",
        b"\x81\xc3\x01",
        b"\x81\xc4\x01a\x01",
    ],
)
def test_invalid_data(data: bytes) -> None:
    with pytest.raises(DecodeError):
        unpackb(data)


@pytest.mark.parametrize(("name", "data"), FRAMES, ids=[name for name, _ in FRAMES])
def test_wire_frames_whole_and_cut_at_every_byte(name: str, data: bytes) -> None:
    assert skip(data) == len(data)
    assert unpackb(packb(unpackb(data))) == unpackb(data)
    assert unpackb(bytearray(data)) == unpackb(memoryview(data)) == unpackb(data)
    for cut in range(len(data)):
        with pytest.raises(DecodeError):
            unpackb(data[:cut])
        with pytest.raises(DecodeError):
            skip(data[:cut])
    with pytest.raises(DecodeError, match="1 bytes after"):
        unpackb(data + b"\x00")


def test_nothing_is_read_past_the_end() -> None:
    """Every frame and known value, cut at every byte, in front of unreadable memory."""
    edge = PageEdge()
    samples = [data for _, data in FRAMES] + [bytes.fromhex(encoding) for _, encoding in KNOWN]
    for data in (sample for sample in samples if len(sample) <= edge.size):
        for cut in [*range(min(len(data), 400)), len(data) - 1]:
            view = edge.place(data[:cut])
            for kind in READERS:
                read_one(kind, view)
            with pytest.raises(DecodeError):
                unpackb(view)
            with pytest.raises(DecodeError):
                skip(view)


@given(st.binary(max_size=120))
def test_random_bytes_are_a_value_or_a_decode_error(data: bytes) -> None:
    try:
        value = unpackb(data)
    except DecodeError:
        return
    assert skip(data) == len(data)
    again = packb(value)
    assert packb(unpackb(again)) == again


@given(st.sampled_from(FRAMES), st.data())
def test_damaged_wire_frames_are_a_value_or_a_decode_error(frame: tuple[str, bytes], data: st.DataObject) -> None:
    damaged = bytearray(frame[1])
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        unpackb(damaged)
    except DecodeError:
        return
    assert skip(bytes(damaged)) == len(damaged)


def test_skip_counts_values() -> None:
    data = packb(1) + packb([1, [2, {"a": 3}]]) + packb("x")
    assert skip(data, 0) == 0
    assert skip(data, 2) == len(data) - 2
    assert skip(data, 3) == len(data)
    with pytest.raises(DecodeError):
        skip(data, 4)
    with pytest.raises(DecodeError):
        skip(data, 2**64 - 1)


def expected(kind: str, value: Any) -> Any:
    """What the reader `kind` returns for an encoded `value`, or KeyError when it must refuse it."""
    by_kind: dict[str, Any] = {}
    if value is None:
        by_kind["nil"] = None
    elif isinstance(value, bool):
        by_kind["bool"] = value
    elif isinstance(value, int):
        by_kind["float"] = float(value)
        if value < 2**63:
            by_kind["int"] = value
    elif isinstance(value, float):
        by_kind["float"] = value
    elif isinstance(value, str):
        by_kind["str"] = value.encode()
    elif isinstance(value, bytes):
        by_kind["bin"] = value
    elif isinstance(value, Ext):
        by_kind["ext"] = (value.code, value.data)
    elif isinstance(value, list):
        by_kind["array"] = len(value)
    else:
        by_kind["map"] = len(value)
    return by_kind[kind]


@pytest.mark.parametrize("kind", READERS)
def test_each_reader_takes_its_kind_and_refuses_the_others(kind: str) -> None:
    for value, encoding in KNOWN:
        data = bytes.fromhex(encoding)
        try:
            want = expected(kind, value)
        except KeyError:
            assert read_one(kind, data) is None
            continue
        got = read_one(kind, data + b"\xc1")
        assert got is not None
        assert got[0] == want
        if kind in ("array", "map"):
            assert got[1] in (1, 3, 5)
            assert read_one(kind, data[: got[1] - 1]) is None
        else:
            assert got[1] == len(data)
            for cut in [*range(min(len(data), 20)), len(data) - 1]:
                assert read_one(kind, data[:cut]) is None
