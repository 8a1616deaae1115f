"""Requests out of bytes: whatever the packets they come in, and whatever the bytes are."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfront._speedups.http_message import parse_requests

POST = b"POST /v1/x?a=b HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nX-Two:  a b \r\nx-two: c\r\n\r\nhello"
CHUNKED = (
    b"POST /y HTTP/1.1\r\ntransfer-encoding: chunked\r\nexpect: 100-continue\r\n\r\n"
    b"3;note=1\r\nabc\r\n10\r\n0123456789abcdef\r\n0\r\ntrailer: t\r\n\r\n"
)
GET = b"GET / HTTP/1.1\r\n\r\n"
CLOSE = b"GET /last HTTP/1.1\r\nconnection: close\r\n\r\n"
PARSED: list[tuple[Any, ...]] = [
    ("POST", "/v1/x?a=b", {"host": "h", "content-length": "5", "x-two": "a b"}, b"hello", True),
    ("POST", "/y", {"transfer-encoding": "chunked", "expect": "100-continue"}, b"abc0123456789abcdef", True),
    ("GET", "/", {}, b"", True),
    ("GET", "/last", {"connection": "close"}, b"", False),
]
STREAM = POST + CHUNKED + GET + CLOSE


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_any_packets(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    assert parse_requests([STREAM[a:b] for a, b in itertools.pairwise(edges)]) == (PARSED, "closed")


def test_byte_by_byte() -> None:
    assert parse_requests([STREAM[k : k + 1] for k in range(len(STREAM))]) == (PARSED, "closed")


@pytest.mark.parametrize("end", range(len(POST)))
def test_truncated(end: int) -> None:
    assert parse_requests([GET + POST[:end]]) == ([PARSED[2]], "more")


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=5))
def test_garbage_is_survived(data: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(data)]
    pieces = [data[a:b] for a, b in itertools.pairwise(edges)]
    requests, how = parse_requests(pieces)
    assert how in ("more", "bad", "large", "closed")
    assert parse_requests([b"".join(pieces)])[0][: len(requests)] == requests


@given(st.integers(0, len(POST + CHUNKED) - 1), st.integers(0, 255))
def test_one_wrong_byte(at: int, byte: int) -> None:
    data = bytearray(POST + CHUNKED + GET)
    data[at] = byte
    assert parse_requests([bytes(data)])[1] in ("more", "bad", "large", "closed")


@pytest.mark.parametrize(
    "head",
    [
        b"POST / HTTP/1.1\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: +3\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: 3 \r\nfoo bar: 1\r\n\r\n",
        b"POST / HTTP/1.1\r\ntransfer-encoding: chunked, identity\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: 3\r\ncontent-length: 3\r\n\r\nabc",
        b"POST / HTTP/1.1\r\ncontent-length: 3,3\r\n\r\nabc",
        b"POST / HTTP/1.1\r\ncontent-length:\r\n\r\n",
        b"POST / HTTP/1.1\r\ntransfer-encoding:\r\ncontent-length: 3\r\n\r\nabc",
        b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\ntransfer-encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\nabc\n0\n\n",
        b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3;a=\"\r\n\"\r\nabc\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\ncontent-length: 5\r\n\r\n",
        b"GET / HTTP/1.1\r\na: b\rc\r\n\r\n",
        b"GET / HTTP/1.1\r\n host: a\r\n\r\n",
        b"GET /a b HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n: v\r\n\r\n",
        b"POST / HTTP/1.1\r\ntransfer-encoding: gzip, chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\ntransfer-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.0\r\ntransfer-encoding: chunked\r\nconnection: keep-alive\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length : 3\r\n\r\nabc",
        b"GET / HTTP/1.1\nhost: a\n\n",
        b"GET / HTTP/1.1\r\na: b\r\n c: d\r\n\r\n",
        b"GET / HTTP/1.1\r\na: b\x00c\r\n\r\n",
        b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: 99999999999999999999999\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\r\n\r\n",
        b"CONNECT \r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
    ],
)
def test_what_a_proxy_might_read_otherwise_is_refused(head: bytes) -> None:
    assert parse_requests([head]) == ([], "bad")


def test_heads_have_a_limit() -> None:
    assert parse_requests([b"GET /" + b"x" * 500_000])[1] == "large"
    assert parse_requests([b"GET / HTTP/1.1\r\na: " + b"x" * 500_000])[1] == "large"
    fields = b"".join(b"h%d: v\r\n" % k for k in range(256))
    assert parse_requests([b"GET / HTTP/1.1\r\n" + fields + b"\r\n"])[0]
    assert parse_requests([b"GET / HTTP/1.1\r\n" + fields + b"one-more: v\r\n\r\n"]) == ([], "large")
