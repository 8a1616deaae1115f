"""A client that leaves takes its requests with it: the engine is told once, whatever the request was doing."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.clients import at_once
from tests.support.fixtures import StartServer
from tests.support.http1 import Connection, chunked, head, post
from tests.support.metrics import gauges, metric
from tests.support.mock import MockEngine, scripted
from tests.support.server import CHAT, COMPLETIONS, HELLO, Server
from tests.support.waiting import wait_for

LIMIT_S = 60.0  # aborts take a few milliseconds; the machine may be busy


@pytest.fixture
def server(start: StartServer) -> Server:
    return start(mock_flags=("--max-seqs", "1000", "--stats")).wait_ready()


@pytest.fixture
def mock(server: Server) -> MockEngine:
    assert server.mock is not None
    return server.mock


def slow(a: int) -> dict[str, Any]:
    """A token every 20 ms, for minutes."""
    return {"max_tokens": 8000, **scripted({"tokens": [a], "delay_ms": 20}, then="loop")}


def settled(server: Server, mock: MockEngine, wanted: list[str]) -> None:
    """The ids have been aborted, each once, nothing runs on, and the frontend has forgotten them."""
    mock.wait_aborts(wanted, timeout_s=LIMIT_S)
    assert mock.counts()["running"] == 0
    wait_for(lambda: gauges(server)[:2] == (0, 0), "gauges at 0", LIMIT_S)
    wait_for(lambda: metric(server, "fastfront:live_streams") == 0, "no live stream", LIMIT_S)
    assert sorted(mock.aborted()) == sorted(wanted)


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
@pytest.mark.parametrize("kind", ["chat", "completion", "n", "prompts"])
def test_c41_a_client_that_leaves(shared: Server, a: int, stream: bool, kind: str, how: str) -> None:
    mock = shared.mock
    assert mock is not None
    since = mock.mark()
    kinds: dict[str, dict[str, Any]] = {
        "chat": {"messages": HELLO},
        "completion": {"prompt": "hello"},
        "n": {"prompt": "hello", "n": 3},
        "prompts": {"prompt": [[5], [6]]},
    }
    what = kinds[kind]
    count = {"n": 3, "prompts": 2}.get(kind, 1)
    with shared.connect() as connection:
        connection.send(post(CHAT if kind == "chat" else COMPLETIONS, {**what, "stream": stream, **slow(a)}))
        ids = [add["id"] for add in mock.wait_adds(count, since)]
        if stream:
            connection.response_head()
        getattr(connection, how)()
        mock.wait_aborts(ids, since, LIMIT_S)
    wait_for(lambda: gauges(shared)[:2] == (0, 0), "gauges at 0", LIMIT_S)
    assert mock.counts()["running"] == 0
    assert sorted(mock.aborted(since)) == sorted(ids)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One server for the tests that leave it as it was."""
    folder = tmp_path_factory.mktemp("shared")
    mock = MockEngine(folder, "--stats")
    with Server(folder, mock=mock) as server:
        yield server.wait_ready()
        assert "ERROR" not in server.log(), server.log()


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
def test_c41_while_the_request_is_queued(start: StartServer, a: int, stream: bool) -> None:
    server = start(mock_flags=("--max-seqs", "1")).wait_ready()
    mock = server.mock
    assert mock is not None
    with server.connect() as first, server.connect() as second:
        first.send(post(COMPLETIONS, {"prompt": "hello", "stream": True, **slow(a)}))
        first.response_head()
        second.send(post(COMPLETIONS, {"prompt": "hello", "stream": stream, **slow(a)}))
        running, queued = (add["id"] for add in mock.wait_adds(2))
        assert mock.counts()["waiting"] == 1
        second.close()
        mock.wait_aborts([queued], timeout_s=LIMIT_S)
        assert mock.counts()["waiting"] == 0
        assert first.piece()
    mock.wait_aborts([running], timeout_s=LIMIT_S)
    assert mock.aborted() == [queued, running]


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
def test_on_a_connection_that_was_used_before(shared: Server, a: int, stream: bool) -> None:
    mock = shared.mock
    assert mock is not None
    with shared.connect() as connection:
        for _ in range(5):
            connection.send(post(COMPLETIONS, {"prompt": "hello", "max_tokens": 1, "stream": stream}))
            assert connection.response().status == 200
            connection.send(head("GET", "/health"))
            assert connection.response().status == 200
        since = mock.mark()
        connection.send(post(COMPLETIONS, {"prompt": "hello", "stream": stream, **slow(a)}))
        ids = [add["id"] for add in mock.wait_adds(1, since)]
    mock.wait_aborts(ids, since, LIMIT_S)
    assert mock.aborted(since) == ids


def test_with_another_request_in_the_pipeline(shared: Server, a: int) -> None:
    """The HTTP server does not look for the end of a connection with a request waiting on it: the first write tells."""
    mock = shared.mock
    assert mock is not None
    since = mock.mark()
    with shared.connect() as connection:
        connection.send(post(COMPLETIONS, {"prompt": "hello", "stream": True, **slow(a)}) * 2)
        mock.wait_adds(1, since)
    wait_for(lambda: mock.aborted(since), "an abort", LIMIT_S)
    accepted, _, aborted = mock.wait_ended(since, LIMIT_S)
    assert sorted(aborted) == sorted(accepted)


def test_a_connection_that_ends_after_its_answer_aborts_nothing(shared: Server) -> None:
    mock = shared.mock
    assert mock is not None
    since = mock.mark()
    for stream in (False, True):
        with shared.connect() as connection:
            connection.send(post(COMPLETIONS, {"prompt": "hello", "max_tokens": 2, "stream": stream}))
            connection.response()
    assert shared.completion(max_tokens=1).status_code == 200
    assert mock.aborted(since) == []


def test_c42_leaving_at_any_moment(server: Server, mock: MockEngine, a: int) -> None:
    """500 clients leave between 0 and 20 ms after their request: what the engine accepted ends, aborted once at most."""
    request = json.dumps({"messages": HELLO, "max_tokens": 30, **scripted({"tokens": [a], "delay_ms": 1}, then="loop")})
    rng = random.Random(42)
    waits = [rng.random() * 0.02 for _ in range(500)]

    def client(share: list[float]) -> None:
        for k, wait in enumerate(share):
            with server.connect() as connection:
                body = request.replace("{", '{"stream": true, ', 1) if k % 2 else request
                connection.send(post(CHAT, body.encode()))
                if k % 4 == 1:
                    connection.response_head()  # however busy the machine: so many reach the engine
                time.sleep(wait)

    at_once(client, [waits[k::20] for k in range(20)])
    wait_for(lambda: mock.counts()["running"] == 0 and gauges(server)[:2] == (0, 0), "an idle server")
    accepted, finished, aborted = mock.wait_ended()
    assert len(accepted) > 100
    assert len(aborted) == len(set(aborted))
    assert set(accepted) == {*finished, *aborted}
    wait_for(lambda: metric(server, "fastfront:live_streams") == 0, "no live stream", LIMIT_S)
    assert len([line for line in server.log().splitlines() if "fastfront.access" not in line]) < 50


def test_c29_closing_streams_with_several_choices(server: Server, mock: MockEngine, a: int) -> None:
    request = post(CHAT, {"messages": HELLO, "n": 3, "stream": True, **slow(a)})
    connections = [server.connect() for _ in range(200)]
    for connection in connections:
        connection.send(request)
    for connection in connections:
        connection.response_head()
        assert connection.piece()
    for connection in connections:
        connection.close()
    wait_for(lambda: len(mock.aborted()) >= 600, "600 aborts", LIMIT_S)
    settled(server, mock, [add["id"] for add in mock.adds()])
    assert len(mock.aborted()) == 600


@pytest.mark.parametrize("coding", ["sized", "chunked"])
def test_leaving_inside_the_body_starts_nothing(shared: Server, a: int, coding: str) -> None:
    mock = shared.mock
    assert mock is not None
    since = mock.mark()
    body = json.dumps({"prompt": "hello", **slow(a)}).encode()
    headers = {"content_length": str(len(body))} if coding == "sized" else {"transfer_encoding": "chunked"}
    for _ in range(20):
        with shared.connect() as connection:
            connection.send(head("POST", COMPLETIONS, content_type="application/json", **headers))
            connection.send(body[:-1] if coding == "sized" else chunked(body, 10)[:-10])
    assert shared.completion(max_tokens=1).status_code == 200
    assert len(mock.adds(since)) == 1


def test_a_client_that_does_not_read(shared: Server, a: int) -> None:
    """It holds up nobody, and when it goes its request ends."""
    mock = shared.mock
    assert mock is not None
    since = mock.mark()
    with shared.connect() as connection:
        connection.send(
            post(COMPLETIONS, {"prompt": "hello", "stream": True, "max_tokens": 8000, **scripted([a] * 50, then="loop")})
        )
        mock.wait_adds(1, since)
        for _ in range(20):
            assert shared.completion(max_tokens=5).status_code == 200
    mock.wait_idle()


def test_prompts_of_a_client_that_left_early_never_reach_the_engine_twice(shared: Server, a: int) -> None:
    """Leaving while megabytes are still being tokenized: no request, or one that is aborted."""
    mock = shared.mock
    assert mock is not None
    since = mock.mark()
    words = "word " * 7000
    for _ in range(5):
        with shared.connect() as connection:
            connection.send(post(COMPLETIONS, {"prompt": words, **scripted({"tokens": [a], "delay_ms": 20}, then="loop")}))
            time.sleep(0.002)
    assert shared.completion(max_tokens=1).status_code == 200
    mock.wait_idle(LIMIT_S)
    accepted, _, aborted = mock.wait_ended(since, LIMIT_S)
    assert len(aborted) == len(set(aborted)), accepted


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
def test_on_a_unix_socket(start: StartServer, tmp_path: Path, a: int, stream: bool) -> None:
    """Connections without an address of their own are told apart too, also after several answers."""
    path = str(tmp_path / "http.sock")
    server = start("--uds", path)
    wait_for(lambda: "ready in" in server.log(), "a ready server")
    mock = server.mock
    assert mock is not None
    others = [Connection(path) for _ in range(3)]
    for turn in range(3):
        since = mock.mark()
        with Connection(path) as connection:
            for _ in range(turn * 2):
                connection.send(post(COMPLETIONS, {"prompt": "hello", "max_tokens": 1, "stream": stream}))
                assert connection.response().status == 200
            for other in others:
                other.send(post(COMPLETIONS, {"prompt": "hello", "max_tokens": 1}))
                assert other.response().status == 200
            connection.send(post(COMPLETIONS, {"prompt": "hello", "stream": stream, **slow(a)}))
            ids = [mock.wait_adds(turn * 2 + 4, since)[-1]["id"]]
        mock.wait_aborts(ids, since, LIMIT_S)
        assert mock.aborted(since) == ids
    for other in others:
        other.close()
