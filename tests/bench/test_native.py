"""The load generator's parser, event reader and histogram, called directly."""

from __future__ import annotations

import ctypes
import json
import random
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.bench.tiny_server import chunk, delta, event, plain, tokens, usage, whole

MORE, DONE, BAD = 0, 2, 3


@dataclass
class Parsed:
    event: int
    status: int
    body: bytes
    closes: bool
    used: int


def parse(probe: ctypes.CDLL, data: bytes, cuts: list[int]) -> Parsed:
    """The response in these bytes, fed in pieces."""
    ends = [*sorted({cut for cut in cuts if 0 < cut < len(data)}), len(data)]
    body = ctypes.create_string_buffer(len(data) + 1)
    length, used, status, closes = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_int(), ctypes.c_bool()
    found = probe.probe_response(
        data, (ctypes.c_size_t * len(ends))(*ends), ctypes.c_size_t(len(ends)), body,
        ctypes.byref(length), ctypes.byref(status), ctypes.byref(closes), ctypes.byref(used),
    )  # fmt: skip
    return Parsed(found, status.value, body.raw[: length.value], closes.value, used.value)


LONG = b"HTTP/1.1 200 OK\r\nx-long: " + b"y" * 5000 + b"\r\ncontent-length: 5\r\n\r\nhello"
RESPONSES = {
    "chunked": (whole(tokens(5)), 200, b"".join(map(event, tokens(5))), False),
    "chunk extension and trailer": (
        b"HTTP/1.1 200 OK\r\nTRANSFER-ENCODING: gzip, chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nx: y\r\n\r\n", 200, b"hello", False,
    ),
    "length": (plain(503, {"error": "no"}), 503, b'{"error": "no"}', False),
    "no body": (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", False),
    "empty body": (b"HTTP/1.1 200 OK\r\ncontent-length:0\r\n\r\n", 200, b"", False),
    "continue first": (b"HTTP/1.1 100 Continue\r\n\r\n" + plain(200, 1), 200, b"1", False),
    "until close": (b"HTTP/1.1 200 OK\r\n\r\nhello", 200, b"hello", True),
    "HTTP/1.0": (b"HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\nx", 200, b"x", True),
    "will close": (b"HTTP/1.1 200 OK\r\nConnection: Close\r\ncontent-length: 1\r\n\r\nx", 200, b"x", True),
    "bare newlines": (b"HTTP/1.1 200 OK\ncontent-length: 1\n\nx", 200, b"x", False),
    "long header": (LONG, 200, b"hello", False),
}  # fmt: skip


@pytest.mark.parametrize("name", RESPONSES)
def test_responses_are_read_alike_however_they_are_cut(probe: ctypes.CDLL, name: str) -> None:
    data, status, body, closes = RESPONSES[name]
    rng = random.Random(name)
    ways = [[], list(range(len(data)))] + [[rng.randrange(len(data)) for _ in range(rng.randrange(1, 9))] for _ in range(200)]
    for cuts in ways:
        assert parse(probe, data, cuts) == Parsed(DONE, status, body, closes, len(data)), cuts


def test_bytes_behind_a_response_are_left_alone(probe: ctypes.CDLL) -> None:
    first = plain(200, "x")
    assert parse(probe, first + b"HTTP/1.1", []).used == len(first)


@pytest.mark.parametrize("name", [name for name in RESPONSES if name != "until close"])
def test_every_shorter_response_is_incomplete(probe: ctypes.CDLL, name: str) -> None:
    data = RESPONSES[name][0]
    for length in range(len(data)):
        assert parse(probe, data[:length], []).event == MORE, length


@pytest.mark.parametrize(
    "data",
    [
        b"SMTP ready\r\n",
        b"HTTP/1.1 abc\r\n",
        b"HTTP/1.1 999 Odd\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nab\r\n",
    ],
)
def test_what_is_not_http_is_bad(probe: ctypes.CDLL, data: bytes) -> None:
    assert parse(probe, data, []).event == BAD


@given(data=st.binary(max_size=300), cuts=st.lists(st.integers(0, 300), max_size=5))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_survived(probe: ctypes.CDLL, data: bytes, cuts: list[int]) -> None:
    found = parse(probe, b"HTTP/1.1 200 OK\r\n" + data, cuts)
    assert found.event in (MORE, DONE, BAD)


class Answer(ctypes.Structure):
    _fields_ = (
        ("tokens", ctypes.c_uint32), ("choice", ctypes.c_uint32), ("by_ids", ctypes.c_bool), ("done", ctypes.c_bool),
        ("error", ctypes.c_bool), ("prompt_tokens", ctypes.c_int64), ("completion_tokens", ctypes.c_int64),
    )  # fmt: skip


ROLE = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None}], "prompt_token_ids": [1, 2]}
LOGPROBS = {"choices": [{"index": 0, "delta": {"content": ""}, "logprobs": {"content": [{"token": "a"}]}}]}
SPOOF = ' "token_ids":[1,2,3] "usage":{"completion_tokens":9} '
EVENTS = {
    "text": (delta(" a"), {"tokens": 1}),
    "role": (ROLE, {}),
    "no text but logprobs": (LOGPROBS, {}),
    "completion": ({"choices": [{"index": 0, "text": "a"}]}, {"tokens": 1}),
    "reasoning": ({"choices": [{"index": 0, "delta": {"reasoning": "a"}}]}, {"tokens": 1}),
    "three ids": (delta("abc", [1, 22, 333]), {"tokens": 3, "by_ids": True}),
    "no ids": (delta("", []), {"by_ids": True}),
    "ids without text": (delta("", [5]), {"tokens": 1, "by_ids": True}),
    "other choice": (delta("a", index=3), {"tokens": 1, "choice": 3}),
    "usage": (usage(12, 34), {"prompt_tokens": 12, "completion_tokens": 34}),
    "usage with the last text": (
        {**delta("a"), "usage": usage(1, 2)["usage"]}, {"tokens": 1, "prompt_tokens": 1, "completion_tokens": 2},
    ),
    "no usage": ({"choices": [], "usage": None}, {}),
    "quotes in the text": (delta(SPOOF), {"tokens": 1}),
    "done": ("[DONE]", {"done": True}),
    "error": ({"error": {"message": "no"}}, {"error": True}),
    "nothing": ("", {}),
    "not JSON": ('"token_ids":', {}),
}  # fmt: skip


@pytest.mark.parametrize("name", EVENTS)
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_events_say(probe: ctypes.CDLL, name: str, separators: tuple[str, str]) -> None:
    what, expected = EVENTS[name]
    data = (what if isinstance(what, str) else json.dumps(what, separators=separators)).encode()
    found = Answer()
    probe.probe_event(data, ctypes.c_size_t(len(data)), ctypes.c_bool(True), ctypes.byref(found))
    flags = dict.fromkeys(("by_ids", "done", "error"), False)
    nothing = {"tokens": 0, "choice": 0, **flags, "prompt_tokens": -1, "completion_tokens": -1}
    assert {key: getattr(found, key) for key in nothing} == {**nothing, **expected}


@given(values=st.lists(st.integers(0, 2**44 - 1), min_size=1, max_size=200), share=st.floats(0.01, 1))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_quantiles_are_within_half_a_bucket(probe: ctypes.CDLL, values: list[int], share: float) -> None:
    probe.probe_quantile.restype = ctypes.c_double
    found = probe.probe_quantile((ctypes.c_uint64 * len(values))(*values), ctypes.c_size_t(len(values)), ctypes.c_double(share))
    rank = max(1, min(len(values), int(share * len(values) + 0.999999)))
    true = sorted(values)[rank - 1]
    assert abs(found - true) <= true / 256 + 1


def test_chunks_carry_what_they_say() -> None:
    assert chunk(b"x" * 255) == b"ff\r\n" + b"x" * 255 + b"\r\n"
