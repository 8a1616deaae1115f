"""Fuzz targets of the native modules: `python tests/fuzz/native.py TARGET [--seconds S] [--seed N]`.

Invariants:
  msgpack      any bytes are one value or a DecodeError; skipping agrees with reading; what was read can be written
               again and reads back the same; no reader takes more than it was given
  detokenizer  for any ids and steps the joined deltas equal the tokenizer's decode, and only ever grow towards it
  stops        any stop strings, text and cuts: the hit is the one that completes first, held text can still match
  escape       any text: equal to the standard library
  engine       any message of an engine is taken or an EngineMessageError; its requests end, nothing is counted twice
  zmtp         any bytes after a connection's opening, in any packets, are the same messages, or no ZMTP
  http         any bytes, in any packets, are the same requests, or no HTTP; the parser takes no more than it was given

With `atheris` installed, `--atheris` lets libFuzzer choose the bytes (for coverage, build the extensions with
FASTFRONT_CFLAGS=-fsanitize=fuzzer-no-link); otherwise a seeded generator damages known messages. A failure prints the
input and ends with status 1.
"""

import argparse
import contextlib
import importlib
import json
import random
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tokenizers import Tokenizer

from fastfront._speedups.detokenizer import Detokenizer
from fastfront._speedups.http_message import parse_requests
from fastfront._speedups.json_escape import escape
from fastfront._speedups.msgpack import DecodeError, packb, skip, unpackb
from fastfront._speedups.msgpack_probe import read_one
from fastfront._speedups.pump import EngineMessageError
from fastfront._speedups.stop_matcher import StopMatcher
from fastfront._speedups.vocabulary import Vocabulary
from fastfront._speedups.zmtp import ZmtpConnection
from tests.native.edge import PageEdge
from tests.native.pumping import Client, Rig
from tests.native.test_zmtp import GREETING, command, message, ready
from tests.native.tiny import NATIVE, SLOW

WIRE_ID = b"cmpl-x-" + b"0" * 16  # in inputs, for the id of the request that is there
READERS = ("array", "map", "str", "bin", "ext", "int", "float", "bool", "nil")


@cache
def edge() -> PageEdge:
    return PageEdge(32)


def msgpack(data: bytes) -> None:
    view = edge().place(data)
    for kind in READERS:
        got = read_one(kind, view)
        assert got is None or got[1] <= len(data), kind
    try:
        skipped = skip(view)
    except DecodeError:
        skipped = None
    try:
        value = unpackb(view)
    except DecodeError:
        return
    assert skipped == len(data), "skip and read disagree"
    again = packb(value)
    assert packb(unpackb(again)) == again, "a second round changes the bytes"


@cache
def tiny(number: int) -> tuple[Tokenizer, Vocabulary]:
    builders = [build for _, build in NATIVE.values()] + list(SLOW.values())
    tokenizer = builders[number]()
    return tokenizer, Vocabulary.from_tokenizer(tokenizer)


def detokenizer(data: bytes) -> None:
    """First byte: which tokenizer and flags. Then two bytes per token: id, and whether a step ends there."""
    if not data:
        return
    tokenizer, vocabulary = tiny((data[0] >> 1) % (len(NATIVE) + len(SLOW)))
    hide = bool(data[0] & 1)
    stream = Detokenizer(vocabulary, hide)
    joined = ""
    step: list[int] = []
    ids: list[int] = []
    for at in range(1, len(data) - 1, 2):
        ids.append((data[at] | (data[at + 1] & 1) << 8) % (vocabulary.size + 2))
        step.append(ids[-1])
        if data[at + 1] & 2:
            joined += stream.feed(step)
            step = []
    whole = tokenizer.decode(ids, skip_special_tokens=hide)
    assert whole.startswith(joined), "text was sent that changed later"
    assert joined + stream.feed(step) + stream.flush() == whole, "deltas differ from decode"


def stops(data: bytes) -> None:
    """First byte: how many stop strings; strings and text over a small alphabet, cuts where the high bit is set."""
    if len(data) < 2:
        return
    letters = "abé"
    texts = bytes(data[1:]).split(b"\xff")
    words = ["".join(letters[c % 3] for c in text) for text in texts[: 1 + data[0] % 4]]
    words = [word for word in words if word]
    text = "".join(letters[c % 3] for c in texts[-1])
    hits = [(end, i) for end in range(1, len(text) + 1) for i, word in enumerate(words) if text[:end].endswith(word)]
    matcher = StopMatcher(words)
    part = ""
    before = 0
    for n, c in enumerate(texts[-1]):
        part += text[n]
        if c & 0x80 or n == len(text) - 1:
            index, end = matcher.feed(part)
            if index >= 0:
                assert hits, "a match where there is none"
                assert (before + len(part.encode()[:end].decode()), index) == hits[0]
                return
            before += len(part)
            part = ""
            sent = text[:before].encode()
            held = [k for w in words for k in range(1, len(w.encode())) if sent.endswith(w.encode()[:k])]
            assert matcher.held == max(held, default=0), "held text differs"
    assert not hits, "a match was missed"


def escaping(data: bytes) -> None:
    text = data.decode(errors="replace")
    assert escape(text) == json.dumps(text, ensure_ascii=False)[1:-1].encode()


@cache
def rig() -> Rig:
    return Rig(Vocabulary.from_tokenizer(NATIVE["byte-level"][1]()), engines=2, local_engines=1)


def engine(data: bytes) -> None:
    pump = rig().pump
    client = Client()
    call, (request,) = rig().start(client, stream=True, logprobs=1)
    tokens, ended = pump.tokens, sum(sum(pump.counters.read(k)["requests"]) for k in range(2))
    with contextlib.suppress(EngineMessageError):
        pump.feed(edge().place(data.replace(WIRE_ID, request.encode())))
    if not call.ended:
        pump.cancel(call)
    assert pump.live == 0
    assert pump.prefill_tokens == 0
    assert pump.tokens - tokens <= len(data)
    assert sum(sum(pump.counters.read(k)["requests"]) for k in range(2)) == ended + 1
    assert client.status in (None, 200, 500, 501, 502, 503)
    pump.take_aborts()
    pump.finished_engines.clear()
    assert pump.errors == []


def http(data: bytes) -> None:
    requests, end = parse_requests([bytes(data)])
    cut = len(data) // 3
    pieces, piecewise_end = parse_requests([bytes(data[:cut]), bytes(data[cut : cut + 1]), bytes(data[cut + 1 :])])
    assert (pieces, piecewise_end) == (requests, end)
    for method, target, headers, _, _ in requests:
        assert method.isascii()
        assert target
        assert all(name == name.lower() for name in headers)


def zmtp_messages(pieces: list[bytes]) -> tuple[list[list[bytes]], str]:
    connection = ZmtpConnection(router=True)
    found = []
    try:
        for piece in pieces:
            found += connection.feed(piece)
    except ValueError as error:
        return found, str(error)
    return found, ""


def zmtp(data: bytes) -> None:
    cut = len(data) // 3
    whole, fault = zmtp_messages([data])
    pieces, piecewise = zmtp_messages([data[:cut], data[cut : cut + 1], data[cut + 1 :]])
    assert piecewise == fault
    assert fault or pieces == whole
    assert sum(len(frame) for message in pieces for frame in message) <= len(data)


TARGETS: dict[str, Callable[[bytes], None]] = {
    "msgpack": msgpack,
    "detokenizer": detokenizer,
    "stops": stops,
    "escape": escaping,
    "engine": engine,
    "http": http,
    "zmtp": zmtp,
}


def engine_messages() -> list[Any]:
    """With everything that an output and a message can have."""
    request = WIRE_ID.decode()
    events = [{"type": 1, "timestamp": 1.5}, {"type": 2, "timestamp": 2.5}, {"type": 3, "timestamp": 2.5}]
    prefill = {"num_prompt_tokens": 3, "num_computed_tokens": 1, "num_cached_tokens": 2, "num_local_cached_tokens": 1,
               "num_external_cached_tokens": 1}  # fmt: skip
    arrays = [["<i4", [1, 2], bytes(8)], ["<f4", [1, 2], bytes(8)], ["<i8", [1], bytes(8)], None]
    rest = [None, 0, None, None, None, None]
    first = [request, [104, 105], arrays, None, None, None, None, events, None, None, None, prefill, *rest]
    last = [request, [104], None, None, None, 0, 104, None, None, None, None, None, *rest]
    failed = [request, [], None, None, None, 3, None, *[None] * 11, {"code": "validation_error", "message": "m"}]
    cache = {"reset": True, "requests": 1, "queries": 3, "hits": 1, "hits_by_source": {"device": 1}}
    drafts = {"num_drafts": 1, "num_draft_tokens": 3, "num_accepted_tokens": 2, "num_accepted_tokens_per_pos": [1, 1, 0]}
    stats = {"num_running_reqs": 1, "num_waiting_reqs": 2, "num_skipped_waiting_reqs": 0, "kv_cache_usage": 0.5,
             "prefix_cache_stats": cache, "connector_prefix_cache_stats": cache, "spec_decoding_stats": drafts,
             "running_lora_adapters": {"a": 1}, "perf_stats": None}  # fmt: skip
    return [
        [0, [first], stats, 3.5, None, None, None, None, "default"],
        [1, [first, last], None, 3.5, None, [request], None, None, "default"],
        [0, [last], None, 0.0],
        [0, [failed], stats, 3.5],
        [0, [], stats],
        [0, [], None, 1.5, [7, None, [None, True]]],
    ]


def seeds(target: str) -> list[bytes]:
    """Inputs that damage starts from."""
    if target == "http":
        return [
            b"POST /v1/x?a=b HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nX-Two:  a b \r\n\r\nhelloGET / HTTP/1.1\r\n\r\n",
            (
                b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n"
                b"3;n=1\r\nabc\r\n1a\r\nabcdefghijklmnopqrstuvwxyz\r\n0\r\nt: t\r\n\r\n"
            ),
            b"GET / HTTP/1.0\r\nconnection: keep-alive, upgrade\r\nupgrade: h2c\r\n\r\nCONNECT a:1 HTTP/1.1\r\n\r\n",
        ]
    if target == "zmtp":
        opening = GREETING + ready()
        return [
            opening + command(b"PING", b"\0\0context") + message([b"one", b"", b"three" * 100]) + message([b"x"]),
            opening + message([b"y"]) + command(b"PONG") + message([b"z" * 256]),
        ]
    if target == "engine":
        return [packb(message) for message in engine_messages()]
    if target != "msgpack":
        return [b"", bytes(range(256)), b"\x02abab\xffab\xffaabab", '"é\\\n👋'.encode()]
    vectors = Path(__file__).parents[1] / "vectors"
    records = [json.loads(path.read_text()) for path in sorted(vectors.glob("*.json"))]
    return [bytes.fromhex(frame) for record in records for frame in record.get("frames", [])]


def mutate(rng: random.Random, data: bytearray, pool: list[bytes]) -> bytes:
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(6):
            case 0 if data:
                data[at % len(data)] = rng.randrange(256)
            case 1 if data:
                data[at % len(data)] ^= 1 << rng.randrange(8)
            case 2:
                del data[at:]
            case 3:
                data[at:at] = rng.randbytes(rng.randrange(1, 9))
            case 4:
                other = rng.choice(pool)
                cut = rng.randrange(len(other) + 1)
                data[at:] = other[cut : cut + 400]
            case _:
                del data[at : at + rng.randrange(1, 9)]
    return bytes(data)


def run_random(name: str, seconds: float, seed: int) -> int:
    target = TARGETS[name]
    rng = random.Random(seed)
    pool = seeds(name)
    end = time.monotonic() + seconds
    rounds = 0
    while time.monotonic() < end:
        for _ in range(200):
            start = rng.choice(pool) if rng.random() < 0.8 else rng.randbytes(rng.randrange(80))
            data = mutate(rng, bytearray(start), pool)
            try:
                target(data)
            except BaseException:
                print(f"{name}: failed on bytes.fromhex({data.hex()!r})", file=sys.stderr)
                raise
            rounds += 1
    print(f"{name}: {rounds} inputs, seed {seed}, no failure")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", choices=[*TARGETS, "all"])
    parser.add_argument("--seconds", type=float, default=30.0, help="per target")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--atheris", action="store_true", help="use libFuzzer; runs until stopped")
    options = parser.parse_args()
    if options.atheris:
        atheris = importlib.import_module("atheris")  # optional, and it replaces the interpreter's hooks
        atheris.Setup([sys.argv[0]], TARGETS[options.target])
        atheris.Fuzz()
        return 0
    for name in TARGETS if options.target == "all" else [options.target]:
        run_random(name, options.seconds, options.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
