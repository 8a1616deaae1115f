"""What an engine may send that it should not: the rest goes on where it can, and nothing crashes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fastfront._speedups.msgpack import packb
from tests.support.clients import at_once
from tests.support.fixtures import StartServer
from tests.support.http1 import post
from tests.support.metrics import metric
from tests.support.mock import MockEngine, named, rule, scripted
from tests.support.server import COMPLETIONS, Server
from tests.support.sse import chunks, joined
from tests.support.waiting import wait_for

LIMIT_S = 60.0


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("messages")
    with Server(folder, mock=MockEngine(folder)) as server:
        yield server.wait_ready()


@pytest.fixture
def mock(shared: Server) -> MockEngine:
    assert shared.mock is not None
    return shared.mock


def outputs(*items: Any, engine: Any = 0) -> bytes:
    """An EngineCoreOutputs message with these outputs."""
    return packb([engine, list(items), None, 1.5])


def test_outputs_for_unknown_ids_are_ignored(shared: Server, mock: MockEngine, a: int) -> None:
    """Ids of nobody, of slots that are free or far away, of old generations, and none at all."""
    with shared.connect() as connection:
        script = scripted(a, {"tokens": [a], "gate": "strangers"}, then="stop")
        since = mock.mark()
        connection.send(post(COMPLETIONS, {"prompt": "hello", "stream": True, **script}))
        (add,) = mock.wait_adds(1, since)
        live = add["id"]
        suffix = live[-16:]
        strangers = [
            *("", "x", "nobody", "0" * 16, "f" * 16, "F" * 16, live[:-1], live + "0", live[:-16] + "g" * 16),
            *(suffix[:8] + "ffffffff", "ffffffff" + suffix[8:], suffix[:8] + "00000000", "0000ffff" + suffix[8:]),
            *("é" * 20, "\0" * 16, "x" * 100_000),
        ]
        for stranger in strangers:
            mock.raw(outputs([stranger, [a]]))
            mock.raw(outputs([stranger, [a], None, None, None, 0]))
            mock.raw(outputs([stranger, [], None, None, None, 3]))
        mock.open("strangers")
        assert joined(chunks(connection.response().body)) == "aa"
    assert "ERROR" not in shared.log()


def test_late_tokens_of_a_finished_request_are_ignored(shared: Server, mock: MockEngine, a: int) -> None:
    since = mock.mark()
    assert shared.completion(scripted(a, then="stop")).status_code == 200
    old = mock.adds(since)[0]["id"]
    with shared.connect() as connection:
        connection.send(
            post(COMPLETIONS, {"prompt": "hello", "stream": True, **scripted(a, {"tokens": [a], "gate": "late"}, then="stop")})
        )
        mock.wait_adds(2, since)
        for _ in range(10):
            mock.raw(outputs([old, [a, a, a]]), client=0)
            mock.raw(outputs([old, [], None, None, None, 1]), client=0)
        mock.open("late")
        assert joined(chunks(connection.response().body)) == "aa"


def test_one_output_twice_in_a_message(shared: Server, mock: MockEngine, a: int) -> None:
    """Tokens behind the end of a request, in the same message."""
    since = mock.mark()
    with shared.connect() as connection:
        connection.send(post(COMPLETIONS, {"prompt": "hello", "stream": True, **scripted(then="silence")}))
        live = mock.wait_adds(1, since)[0]["id"]
        mock.raw(
            outputs([live, [a]], [live, [a]], [live, [a], None, None, None, 1], [live, [a]], [live, [], None, None, None, 1])
        )
        assert joined(chunks(connection.response().body)) == "aaa"
    wait_for(lambda: metric(shared, "fastfront:live_streams") == 0, "an idle lane")


BAD_OUTPUTS: dict[str, Any] = {
    "tokens are no list": [5],
    "tokens are missing": [],
    "a token is text": [["x"]],
    "a token is a float": [[1.5]],
    "a token is nil": [[None]],
    "a token is a list": [[[1]]],
    "finish is text": [[1], None, None, None, "stop"],
    "finish is unknown": [[1], None, None, None, 9],
    "finish is negative": [[1], None, None, None, -1],
    "stop reason is a map": [[1], None, None, None, 0, {"a": 1}],
}


@pytest.mark.parametrize("what", BAD_OUTPUTS)
@pytest.mark.parametrize("stream", [False, True])
def test_an_output_that_cannot_be_read_fails_its_request_alone(
    shared: Server, mock: MockEngine, a: int, what: str, stream: bool
) -> None:
    mock.use({"when": {"name": "bad"}, **rule(then="silence")})
    before = metric(shared, "fastfront:malformed_outputs_total")
    since = mock.mark()
    with shared.connect() as good, shared.connect() as bad:
        good.send(post(COMPLETIONS, {"prompt": "hello", "stream": True, **named("bad")}))
        bad.send(post(COMPLETIONS, {"prompt": "world", "stream": stream, **named("bad")}))
        adds = mock.wait_adds(2, since)
        (bad_id,) = [add["id"] for add in adds if add["prompt"] != [28120]]
        (good_id,) = [add["id"] for add in adds if add["prompt"] == [28120]]
        mock.raw(outputs([good_id, [a]], [bad_id, *BAD_OUTPUTS[what]], [good_id, [a]]))
        if not BAD_OUTPUTS[what]:
            mock.raw(outputs([bad_id, [], None, None, None, 3]))
        assert bad.response().status == 500
        mock.raw(outputs([good_id, [a], None, None, None, 1]))
        assert joined(chunks(good.response().body)) == "aaa"
    assert metric(shared, "fastfront:malformed_outputs_total") == before + 1
    if BAD_OUTPUTS[what]:
        mock.wait_aborts([bad_id], since)


BAD_MESSAGES: dict[str, bytes] = {
    "empty": b"",
    "no msgpack": b"\xc1",
    "an int": b"\x05",
    "text": packb("hello"),
    "a map": packb({"a": 1}),
    "random": bytes(range(255, 0, -1)),
    "engine is text": packb(["x", []]),
    "outputs are a map": packb([0, {"a": 1}]),
    "cut off": packb([0, [["id", [1, 2, 3]]], None, 1.5])[:-12],
    "an array of 4 billion": b"\x94\x00\xdd\xff\xff\xff\xff",
    "text of 4 billion": b"\x94\x00\x91\x92\xdb\xff\xff\xff\xffabc",
    "deeply nested": b"\x94\x00" + b"\x91" * 100_000,
}


@pytest.mark.parametrize("what", ["no msgpack", "cut off", "an array of 4 billion"])
def test_a_message_that_cannot_be_read_means_the_engine_is_lost(start: StartServer, a: int, what: str) -> None:
    """Its requests end with an error, and the process does not pretend to be well."""
    server = start().wait_ready()
    assert server.mock is not None
    with server.connect() as stream, server.connect() as plain:
        stream.send(post(COMPLETIONS, {"prompt": "hello", "stream": True, **scripted(a)}))
        stream.response_head()
        plain.send(post(COMPLETIONS, {"prompt": "hello", **scripted(a)}))
        server.mock.wait_adds(2)
        server.mock.raw(BAD_MESSAGES[what])
        assert stream.response_body().endswith(b"data: [DONE]\n\n")
        assert plain.response().status == 503
    assert server.exits(LIMIT_S) == 1
    assert "malformed" in server.log()


def test_no_message_crashes_the_server(start: StartServer) -> None:
    """All of them in one server that stays: each is logged, none is more than that."""
    server = start(env={"VLLM_KEEP_ALIVE_ON_ENGINE_DEATH": "1"}).wait_ready()
    assert server.mock is not None
    for message in BAD_MESSAGES.values():
        server.mock.raw(message)
        server.mock.raw(message, b"second frame")
        assert server.get("/health").status_code in (200, 503)
    whole = packb([0, [["cmpl-x-0000000000000001", [1, 2, 3], None, None, None, 0, None]], {"a": 1}, 1.5])
    for n in range(len(whole)):
        server.mock.raw(whole[:n])
    wait_for(lambda: server.get("/health").status_code == 503, "/health to turn 503", LIMIT_S)
    assert server.completion().status_code == 503
    assert server.process.poll() is None
    assert "Traceback" not in server.log()
    server.stop()


@pytest.mark.parametrize("stats", [5, "x", [1], {}, {"num_running_reqs": "many", "kv_cache_usage": None}, {1: 2}, [[[]]]])
def test_scheduler_stats_that_make_no_sense_are_ignored(shared: Server, mock: MockEngine, stats: Any) -> None:
    mock.raw(packb([0, [], stats, 1.5]))
    mock.raw(packb([0, [], stats]))
    assert shared.completion(max_tokens=1).status_code == 200
    assert shared.get("/metrics").status_code == 200


def test_numbers_of_engines_that_do_not_exist(shared: Server, mock: MockEngine) -> None:
    for engine in (1, 65535, -1, 2**63 - 1):
        mock.raw(packb([engine, [], {"num_running_reqs": 5, "num_waiting_reqs": 0, "kv_cache_usage": 0.5}, 1.5]))
    assert shared.completion(max_tokens=1).status_code == 200
    assert shared.get("/metrics").status_code == 200


def test_a_very_large_message(shared: Server, mock: MockEngine, a: int) -> None:
    since = mock.mark()
    with shared.connect() as connection:
        connection.send(post(COMPLETIONS, {"prompt": "hello", "stream": True, **scripted(then="silence")}))
        live = mock.wait_adds(1, since)[0]["id"]
        mock.raw(outputs([live, [a] * 200_000, None, None, None, 1]))
        assert joined(chunks(connection.response().body)) == "a" * 200_000


def test_many_requests_beside_garbage(shared: Server, mock: MockEngine, a: int) -> None:
    def ask(k: int) -> str:
        if k == 0:
            for n in range(200):
                mock.raw(outputs([f"{n:016x}", [a]], ["x" * n, [a]]))
            return "a" * 30
        return joined(shared.completion_stream(scripted(*[a] * 30, then="stop"), max_tokens=99))

    assert set(at_once(ask, range(16))) == {"a" * 30}
