"""SIGTERM: what runs may finish if there is time for it, nothing new is taken, and every client learns how it ended."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from tests.support.fixtures import StartServer
from tests.support.http1 import Closed, Connection, post
from tests.support.mock import scripted
from tests.support.server import CHAT, COMPLETIONS, HELLO, Server
from tests.support.sse import chunks, frames, joined
from tests.support.waiting import wait_for

LIMIT_S = 60.0


def endless(a: int) -> dict[str, Any]:
    """A token every 20 ms, for minutes."""
    return {"max_tokens": 8000, **scripted({"tokens": [a], "delay_ms": 20}, then="loop")}


def streams(server: Server, count: int, script: dict[str, Any]) -> list[Connection]:
    """That many streams, each with its first token read."""
    connections = [server.connect(LIMIT_S) for _ in range(count)]
    for connection in connections:
        connection.send(post(COMPLETIONS, {"prompt": "hello", "stream": True, "max_tokens": 500, **script}))
    for connection in connections:
        status, _ = connection.response_head()
        assert status == 200
    return connections


def stopping(server: Server) -> None:
    """Waits until the server has noticed the signal."""
    wait_for(lambda: "stopping" in server.log(), "the signal to be noticed", LIMIT_S)


def served(connection: Connection) -> bool:
    """Whether a request gets an answer other than 503; False too if the connection is closed instead."""
    try:
        connection.send(post(CHAT, {"messages": HELLO}))
        return connection.response().status != 503
    except (ConnectionError, Closed):
        return False


def serves_new_connections(server: Server) -> bool:
    """The same for a connection made now."""
    try:
        return served(server.connect(LIMIT_S))
    except ConnectionError:
        return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_c46_what_runs_may_finish(start: StartServer, a: int, number: int) -> None:
    server = start("--shutdown-timeout", "60").wait_ready()
    script = scripted(a, {"gate": "finish"}, *[a] * 39, then="stop")
    idle = server.connect()
    idle.send(post(COMPLETIONS, {"prompt": "hello", "max_tokens": 1}))
    idle.response()
    connections = streams(server, 5, script)
    plain = server.connect(LIMIT_S)
    plain.send(post(COMPLETIONS, {"prompt": "hello", "max_tokens": 500, **script}))
    assert server.mock is not None
    server.mock.wait_adds(7)
    server.signal(number)
    stopping(server)
    assert not served(idle)
    assert not serves_new_connections(server)
    server.mock.open("finish")
    for connection in connections:
        assert joined(chunks(connection.response_body())) == "a" * 40
    assert plain.response().json()["choices"][0]["text"] == "a" * 40
    assert server.exits(LIMIT_S) == 0
    assert server.mock.aborted() == []
    assert server.mock.of("exit")


@pytest.mark.parametrize("flags", [(), ("--shutdown-timeout", "1")], ids=["at once", "after a second"])
def test_c46_the_rest_is_ended(start: StartServer, a: int, flags: tuple[str, ...]) -> None:
    """Streams get an error event and [DONE], plain requests a 503."""
    server = start(*flags).wait_ready()
    connections = streams(server, 5, endless(a))
    plain = server.connect(LIMIT_S)
    plain.send(post(COMPLETIONS, {"prompt": "hello", **endless(a)}))
    assert server.mock is not None
    server.mock.wait_adds(6)
    server.signal(signal.SIGTERM)
    for connection in connections:
        *_, error, done = frames(connection.response_body())
        assert done == "[DONE]"
        assert json.loads(error)["error"]["code"] == 503
    answer = plain.response()
    assert answer.status == 503
    assert answer.json()["error"]["code"] == 503
    assert server.exits(LIMIT_S) == 0


def test_c46_a_second_signal_ends_the_drain(start: StartServer, a: int) -> None:
    server = start("--shutdown-timeout", "600").wait_ready()
    (connection,) = streams(server, 1, endless(a))
    server.signal(signal.SIGTERM)
    stopping(server)
    assert connection.piece()
    server.signal(signal.SIGTERM)
    *_, error, done = frames(connection.response_body())
    assert done == "[DONE]"
    assert "error" in json.loads(error)
    assert server.exits(LIMIT_S) == 0


def test_an_idle_server_leaves_at_once(start: StartServer) -> None:
    """Whatever the drain time; open but idle connections do not hold it up."""
    server = start("--shutdown-timeout", "600").wait_ready()
    idle = server.connect()
    idle.send(post(COMPLETIONS, {"prompt": "hello", "max_tokens": 1}))
    idle.response()
    silent = server.connect()
    server.signal(signal.SIGTERM)
    assert server.exits(LIMIT_S) == 0
    assert idle.at_end()
    assert silent.at_end()


def test_a_client_that_does_not_read_does_not_hold_it_up(start: StartServer, a: int) -> None:
    server = start("--shutdown-timeout", "1").wait_ready()
    with server.connect() as connection:
        connection.send(
            post(COMPLETIONS, {"prompt": "hello", "stream": True, "max_tokens": 8000, **scripted([a] * 100, then="loop")})
        )
        assert server.mock is not None
        server.mock.wait_adds(1)
        server.signal(signal.SIGTERM)
        assert server.exits(LIMIT_S) == 0


def test_a_body_that_never_comes_does_not_hold_it_up(start: StartServer) -> None:
    server = start("--shutdown-timeout", "1").wait_ready()
    with server.connect() as connection:
        connection.send(
            b"POST /v1/completions HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\ncontent-length: 50\r\n\r\n{"
        )
        assert server.get("/health").status_code == 200
        server.signal(signal.SIGTERM)
        assert server.exits(LIMIT_S) == 0


def test_an_engine_that_dies_during_the_drain(start: StartServer, a: int) -> None:
    server = start("--shutdown-timeout", "60").wait_ready()
    (connection,) = streams(server, 1, endless(a))
    server.signal(signal.SIGTERM)
    stopping(server)
    assert server.mock is not None
    server.mock.die("kill")
    *_, error, done = frames(connection.response_body())
    assert done == "[DONE]"
    assert "error" in json.loads(error)
    server.exits(LIMIT_S)


def test_many_signals(start: StartServer, a: int) -> None:
    """However they fall, the server leaves."""
    server = start().wait_ready()
    streams(server, 3, endless(a))
    for _ in range(20):
        if server.process.poll() is None:
            server.signal(signal.SIGTERM)
    assert server.exits(LIMIT_S) == 0
