"""Starting that cannot succeed ends soon, with a message that says why, a status that is not 0, and nothing left behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from bench.ports import free_port
from tests.support.fixtures import StartServer
from tests.support.http1 import Connection, post
from tests.support.mock import MockEngine
from tests.support.processes import session_members, shared_memory
from tests.support.server import READY, Server, headless_mock
from tests.support.waiting import wait_for

LIMIT_S = 60.0


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """No shared memory segment and no socket file of ours may appear."""
    before = shared_memory()
    yield
    assert not {name for name in shared_memory() - before if "fastfront" in name}


def fails(server: Server, *words: str, status: int = 1) -> None:
    """The server leaves by itself with that status; its output has the words."""
    assert server.exits(LIMIT_S) == status
    log = server.log()
    for word in words:
        assert word in log, log
    assert not READY.search(log), log


def joining(server: Server) -> None:
    """Waits until an engine has joined."""
    wait_for(lambda: "has joined" in server.log(), "an engine", LIMIT_S)


def test_an_engine_that_leaves_during_start_up(start: StartServer) -> None:
    fails(start(mock_flags=("--startup", "exit")), "engine 0", "exit status 3")


def test_an_engine_that_cannot_run_at_all(start: StartServer) -> None:
    fails(start(mock_flags=("--no-such-flag",)), "engine 0", "exit status 2", "--no-such-flag")


def test_an_engine_that_never_gets_ready(start: StartServer) -> None:
    """The message names the flag; the engine that is still loading is ended."""
    server = start("--engine-ready-timeout", "1", mock_flags=("--startup", "silent"))
    fails(server, "0 of 1 engines were ready after 1 s", "--engine-ready-timeout")


def test_the_environment_sets_the_same_limit(start: StartServer) -> None:
    fails(start(mock_flags=("--startup", "silent"), env={"VLLM_ENGINE_READY_TIMEOUT_S": "1"}), "after 1 s")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_during_start_up(start: StartServer, number: int) -> None:
    server = start(mock_flags=("--startup", "silent"))
    joining(server)
    assert len(session_members(server.pid)) == 2
    server.signal(number)
    assert server.exits(LIMIT_S) == 130


def test_a_port_in_use(start: StartServer) -> None:
    """Found before an engine is started."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        server = start("--port", str(port))
        fails(server, str(port), "--port")
        assert "starting engine" not in server.log()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--engine-python", "/no/such/python"), ("--engine-python", "/no/such/python")),
        (("--max-model-len", "99999999"), ("--max-model-len",)),
        (("--tokenizer", "/no/such/folder"), ("/no/such/folder",)),
        (("--chat-template", "/no/such/file.jinja"), ("/no/such/file.jinja",)),
        (("--host", "\u00e9" * 70), ("cannot listen", "--host")),
        (("--uds", "/tmp/" + "x" * 200), ("cannot listen", "too long", "--uds")),
    ],
)  # fmt: skip
def test_flags_that_cannot_be_followed(start: StartServer, flags: tuple[str, ...], words: tuple[str, ...]) -> None:
    fails(start(*flags), *words)


def test_a_model_that_is_not_there(start: StartServer, tmp_path: Path) -> None:
    fails(start(model="/no/such/model"), "/no/such/model")
    empty = tmp_path / "empty"
    empty.mkdir()
    fails(start(model=empty), str(empty))


def test_flags_that_are_wrong(start: StartServer) -> None:
    fails(start("--no-such-flag"), "--no-such-flag", status=2)
    fails(start("--lanes", "0"), "--lanes", status=2)


def test_connections_are_refused_until_the_server_is_ready(start: StartServer, tmp_path: Path) -> None:
    """So that an open port means readiness; then the first connection is served."""
    port = free_port()
    loaded = tmp_path / "loaded"
    server = start("--port", str(port), mock_flags=("--load-until", str(loaded)))
    joining(server)
    for _ in range(20):
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port)) != 0
    loaded.touch()

    def connects() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    wait_for(connects, "an open port", LIMIT_S, every_s=0)
    assert httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False, verify=False, timeout=LIMIT_S).status_code == 200


def test_a_unix_socket(start: StartServer, tmp_path: Path) -> None:
    path = tmp_path / "http.sock"
    server = start("--uds", str(path))
    wait_for(lambda: "ready in" in server.log(), "a ready server", LIMIT_S)
    with Connection(str(path)) as connection:
        for _ in range(3):
            connection.send(post("/v1/completions", {"prompt": "hello", "max_tokens": 1}))
            assert connection.response().status == 200


# ---- engines elsewhere


@contextmanager
def alone(start: StartServer, *flags: str) -> Iterator[tuple[Server, int]]:
    """A frontend that waits for engines at a port."""
    port = free_port()
    server = start("--data-parallel-size-local", "0", "--data-parallel-rpc-port", str(port), *flags, mock=None)
    wait_for(lambda: "waiting for" in server.log(), "a waiting frontend", LIMIT_S)
    yield server, port


@contextmanager
def engines(port: int, folder: Path, *ranks: int, flags: tuple[str, ...] = ()) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Headless mocks of these ranks."""
    processes = [headless_mock(port, MockEngine(folder, *flags), rank) for rank in ranks]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_an_engine_of_a_rank_that_is_not_expected(start: StartServer, tmp_path: Path) -> None:
    with alone(start) as (server, port), engines(port, tmp_path, 5):
        fails(server, "engine 5", "serves rank 0 (--data-parallel-size)")


def test_two_engines_of_one_rank(start: StartServer, tmp_path: Path) -> None:
    with alone(start, "--data-parallel-size", "2") as (server, port), engines(port, tmp_path, 1):
        joining(server)
        with engines(port, tmp_path, 1):
            fails(server, "engine 1", "twice")


def test_an_engine_that_comes_late_does_no_harm(start: StartServer, tmp_path: Path) -> None:
    with alone(start) as (server, port), engines(port, tmp_path, 0) as (first,):
        server.wait_ready()
        with engines(port, tmp_path, 0), engines(port, tmp_path, 7):
            for _ in range(50):
                assert server.completion(max_tokens=1).status_code == 200
        assert first.poll() is None


def test_garbage_at_the_handshake_port(start: StartServer, tmp_path: Path) -> None:
    """Bytes that are not the transport's protocol are dropped by it; or they are, as random bytes can be in its first version."""
    messages = (b"\x03\0ab\x03\0cd", b"\x02\0a\x03\0cd", b"\x03\0\0\0\x03\0\xc1\xc1", b"\x03\0ab\x02\1c\x02\0d")
    with alone(start) as (server, port):
        for garbage in (b"GET / HTTP/1.1\r\n\r\n", os.urandom(100), b"\xff" + b"\0" * 8 + b"\x7f\x03", *messages):
            with socket.create_connection(("127.0.0.1", port), 5) as peer:
                peer.sendall(garbage)
        wait_for(lambda: server.log().count("not an engine") >= len(messages), "garbage that was read", LIMIT_S)
        with engines(port, tmp_path, 0):
            server.wait_ready()
            assert server.completion(max_tokens=1).status_code == 200


def test_an_engine_that_leaves_before_it_is_ready(start: StartServer, tmp_path: Path) -> None:
    """A frontend cannot see how an engine elsewhere fares: the limit ends the wait."""
    with alone(start, "--engine-ready-timeout", "2") as (server, port), engines(port, tmp_path, 0, flags=("--startup", "exit")):
        fails(server, "0 of 1 engines were ready after 2 s")


def test_the_handshake_port_in_use(start: StartServer) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        server = start("--data-parallel-size-local", "0", "--data-parallel-rpc-port", str(port), mock=None)
        fails(server, str(port), "--data-parallel-rpc-port")
