"""When an engine goes, its clients learn it at once, /health tells the truth, and the process says so by its exit status."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bench.ports import free_port
from tests.faults.conftest import kill_engine
from tests.support.clients import at_once
from tests.support.fixtures import StartServer
from tests.support.http1 import Connection, Response, post
from tests.support.mock import MockEngine, scripted
from tests.support.server import CHAT, COMPLETIONS, HELLO, Server, headless_mock
from tests.support.sse import frames
from tests.support.waiting import wait_for

LIMIT_S = 60.0  # everything here takes milliseconds; the machine may be busy
STAY = {"VLLM_KEEP_ALIVE_ON_ENGINE_DEATH": "1"}
DEATHS = ["kill", "exit", "dead"]
GATE = "go on"


def held(a: int, count: int) -> dict[str, Any]:
    """One token at once, the others and the end when the engine's gate is opened."""
    return scripted(a, {"gate": GATE}, *[a] * (count - 1), then="stop")


def die(server: Server, how: str) -> None:
    """SIGKILL from outside, an exit of its own, or one announced with ENGINE_CORE_DEAD."""
    assert server.mock is not None
    if how == "kill":
        kill_engine(server, signal.SIGKILL)
    else:
        server.mock.die(how)


class Open:
    """Five streams and five plain requests, of both kinds, all with a token at the engine, none finished."""

    def __init__(self, server: Server, a: int) -> None:
        assert server.mock is not None
        since = server.mock.mark()
        script = scripted([a], then="silence")
        self.connections: list[Connection] = []
        for k in range(10):
            path, what = (CHAT, {"messages": HELLO}) if k % 2 else (COMPLETIONS, {"prompt": "hello"})
            connection = server.connect(LIMIT_S)
            self.connections.append(connection)
            connection.send(post(path, {**what, "stream": k < 5, **script}))
        server.mock.wait_adds(10, since)
        self.heads = [connection.response_head() for connection in self.connections[:5]]
        self.first = [connection.piece() for connection in self.connections[:5]]

    def ends(self) -> tuple[list[bytes], list[Response]]:
        """(rest of every stream, every plain answer); fails if one does not end within the limit."""
        rest = [connection.response_body() for connection in self.connections[:5]]
        answers = [connection.response() for connection in self.connections[5:]]
        for connection in self.connections:
            connection.close()
        return rest, answers


def check_failed(rest: list[bytes], answers: list[Response], status: int = 503) -> None:
    """Streams: one error event, [DONE]; plain requests: that status with an error body."""
    for body in rest:
        error, done = frames(body)
        assert done == "[DONE]"
        found = json.loads(error)
        assert list(found["error"]) == ["message", "type", "param", "code"]
        assert found["error"]["code"] == status
        assert found["error"]["message"]
    for answer in answers:
        assert answer.status == status
        assert answer.json()["error"]["code"] == status


@pytest.mark.parametrize("how", DEATHS)
def test_c44_requests_fail_at_once_and_the_process_leaves_with_an_error(start: StartServer, a: int, how: str) -> None:
    server = start().wait_ready()
    waiting = Open(server, a)
    die(server, how)
    check_failed(*waiting.ends())
    assert server.exits(LIMIT_S) == 1
    assert "engine" in server.log()


@pytest.mark.parametrize("how", ["kill", "dead"])
def test_c44_a_server_that_stays_tells_the_truth(start: StartServer, a: int, how: str) -> None:
    server = start(env=STAY).wait_ready()
    assert server.get("/health").status_code == 200
    waiting = Open(server, a)
    die(server, how)
    check_failed(*waiting.ends())
    wait_for(lambda: server.get("/health").status_code == 503, "/health to turn 503", LIMIT_S)
    for path in ("/health", "/ping"):
        assert server.get(path).status_code == 503
    for stream in (False, True):
        for response in (server.chat(stream=stream), server.completion(stream=stream)):
            assert response.status_code == 503
            assert response.json()["error"]["code"] == 503
    for path in ("/version", "/v1/models", "/metrics"):
        assert server.get(path).status_code == 200
    assert server.process.poll() is None
    assert server.stop() == 1


def test_bad_requests_of_a_server_without_engines(start: StartServer) -> None:
    server = start(env=STAY).wait_ready()
    kill_engine(server, signal.SIGKILL)
    wait_for(lambda: server.get("/health").status_code == 503, "/health to turn 503", LIMIT_S)
    assert server.get("/nope").status_code == 404
    assert server.completion(temperature=9).status_code in (400, 503)
    server.stop()


def test_sigterm_right_after_the_death_does_not_turn_it_into_success(start: StartServer) -> None:
    server = start().wait_ready()
    kill_engine(server, signal.SIGKILL)
    wait_for(lambda: "engine 0" in server.log().partition("ready in")[2], "the death to be noticed", LIMIT_S)
    if server.process.poll() is None:
        server.signal(signal.SIGTERM)
    assert server.exits(LIMIT_S) == 1


@pytest.mark.parametrize("how", ["kill", "dead", "garbage"])
def test_requests_that_arrive_while_the_engine_dies(start: StartServer, a: int, how: str) -> None:
    """Every one is answered or its connection closed: none hangs, whatever moment it met."""
    server = start(env=STAY).wait_ready()
    script = scripted({"tokens": [a], "delay_ms": 1}, then="loop")
    enough = threading.Barrier(9)
    outcomes: list[int] = []

    def ask(k: int) -> int:
        response = server.completion(script, max_tokens=5, stream=k % 2 == 0)
        outcomes.append(response.status_code)
        return response.status_code

    def client(k: int) -> None:
        for _ in range(20):
            ask(k)
        enough.wait(60)
        wait_for(lambda: ask(k) == 503, "the death to be noticed", LIMIT_S, every_s=0.0)
        assert [ask(k) for _ in range(5)] == [503] * 5

    def killer(_: int) -> None:
        enough.wait(60)
        if how == "garbage":
            assert server.mock is not None
            server.mock.raw(b"\xc1")
        else:
            die(server, how)

    at_once(lambda k: killer(k) if k == 8 else client(k), range(9))
    assert outcomes[: 8 * 20] == [200] * 8 * 20
    assert set(outcomes) <= {200, 500, 503}
    server.stop()


def test_a_hung_engine_does_not_keep_the_server_from_leaving(start: StartServer, a: int) -> None:
    """It gets some seconds after SIGTERM; a second signal to the server takes them away."""
    server = start(mock_flags=("--ignore-sigterm",)).wait_ready()
    assert server.mock is not None
    with server.connect() as connection:
        connection.send(post(COMPLETIONS, {"prompt": "hello", **scripted([a])}))
        server.mock.wait_adds(1)
        server.mock.die("hang")
        server.signal(signal.SIGTERM)
        assert connection.response().status == 503
    server.signal(signal.SIGTERM)
    assert server.exits(LIMIT_S) == 0


# ---- engines elsewhere


@contextmanager
def joined(
    start: StartServer, tmp_path: Path, engines: int = 1, **options: Any
) -> Iterator[tuple[Server, list[MockEngine], list[subprocess.Popen[bytes]]]]:
    """A frontend without engines of its own, and headless mocks that have joined it."""
    port = free_port()
    server = start(
        "--data-parallel-size", str(engines), "--data-parallel-size-local", "0", "--data-parallel-address", "127.0.0.1",
        "--data-parallel-rpc-port", str(port), mock=None, **options,
    )  # fmt: skip
    mocks = [MockEngine(tmp_path) for _ in range(engines)]
    processes = [headless_mock(port, mock, index) for index, mock in enumerate(mocks)]
    try:
        yield server.wait_ready(), mocks, processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_engines_elsewhere_serve(start: StartServer, tmp_path: Path, a: int) -> None:
    with joined(start, tmp_path, 2) as (server, mocks, _):
        for _ in range(10):
            assert server.completion(scripted(a, a, then="stop")).json()["choices"][0]["text"] == "aa"
        assert [len(mock.adds()) for mock in mocks] == [5, 5]
        assert server.completion(max_tokens=1).status_code == 200


def test_a_remote_engine_that_is_killed(start: StartServer, tmp_path: Path, a: int) -> None:
    with joined(start, tmp_path) as (server, (mock,), (process,)):
        server.mock = mock
        waiting = Open(server, a)
        process.kill()
        check_failed(*waiting.ends())
        assert server.exits(LIMIT_S) == 1


def test_one_of_two_engines_is_killed(start: StartServer, tmp_path: Path, a: int) -> None:
    """Its requests fail, the others' do not notice, and new ones go to the engine that is left."""
    with joined(start, tmp_path, 2) as (server, mocks, processes):
        script = held(a, 30)
        connections = [server.connect() for _ in range(10)]
        for connection in connections:
            connection.send(post(COMPLETIONS, {"prompt": "hello", "stream": True, "max_tokens": 99, **script}))
            connection.response_head()
        assert [len(mock.adds()) for mock in mocks] == [5, 5]
        processes[0].kill()
        processes[0].wait()
        mocks[1].open(GATE)
        bodies = [connection.response_body() for connection in connections]
        for connection in connections:
            connection.close()
        failed = [body for body in bodies if b'"error"' in body]
        whole = [body for body in bodies if b'"finish_reason":"stop"' in body]
        assert (len(failed), len(whole)) == (5, 5)
        assert all(body.endswith(b"data: [DONE]\n\n") for body in bodies)
        assert server.get("/health").status_code == 200
        for _ in range(6):
            assert server.completion(scripted(a, then="stop")).status_code == 200
        assert [len(mock.adds()) for mock in mocks] == [5, 11]
        processes[1].kill()
        assert server.exits(LIMIT_S) == 1


@pytest.mark.parametrize("stream", [False, True])
def test_choices_on_other_engines_are_aborted(start: StartServer, tmp_path: Path, a: int, stream: bool) -> None:
    """One choice on each of two engines: when one engine goes the other stops working for the request that failed.

    If nothing had been sent the request begins anew on the engine that is left.
    """
    with joined(start, tmp_path, 2) as (server, mocks, processes), server.connect() as connection:
        connection.send(post(COMPLETIONS, {"prompt": "hello", "n": 2, "stream": stream, "max_tokens": 5000, **held(a, 20)}))
        ids = [mock.wait_adds(1)[0]["id"] for mock in mocks]
        if stream:
            connection.response_head()
        processes[0].kill()
        if stream:
            assert connection.response_body().endswith(b"data: [DONE]\n\n")
        mocks[1].wait_aborts([ids[1]], timeout_s=LIMIT_S)
        if not stream:
            mocks[1].wait_adds(3)
            mocks[1].open(GATE)
            answer = connection.response()
            assert [choice["text"] for choice in answer.json()["choices"]] == ["a" * 20] * 2
            assert len(mocks[1].adds()) == 3
        assert mocks[1].counts()["running"] == 0
        assert server.get("/health").status_code == 200
        processes[1].kill()
        assert server.exits(LIMIT_S) == 1
