"""Engines with two workers each: what runs is what a dry run prints; whoever is killed, nothing hangs and nothing is left."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.faults.test_process_tree import planned, running, same
from tests.support.fixtures import StartServer
from tests.support.http1 import Connection, post
from tests.support.processes import session_members, shared_memory, socket_inodes, title, wait_gone
from tests.support.server import COMPLETIONS, Server
from tests.support.sse import frames
from tests.support.waiting import wait_for

pytestmark = pytest.mark.slow
START_S = 280.0
LIMIT_S = 60.0
FLAGS = ("--tensor-parallel-size", "2", "--max-num-seqs", "8", "--kv-cache-memory-bytes", "256M", "--max-model-len", "2048")
# Libraries of the engine have deprecations of their own.
ENV = {"PYTHONWARNINGS": "default"}
LONG = {"prompt": "Once upon a time", "max_tokens": 2000, "temperature": 0, "ignore_eos": True}


def pid_of(server: Server, wanted: str) -> int:
    (pid,) = (pid for pid in session_members(server.pid) if title(pid) == wanted)
    return pid


def open_sockets(server: Server) -> set[str]:
    """Inodes of the sockets that the server's processes have open."""
    return {inode for pid in session_members(server.pid) for inode in socket_inodes(pid)}


def existing_inodes() -> set[str]:
    """Sockets of this machine."""
    unix = {line.split()[6] for line in Path("/proc/net/unix").read_text().splitlines()[1:]}
    tables = [Path(f"/proc/net/{name}") for name in ("tcp", "tcp6")]
    return unix | {line.split()[9] for table in tables if table.exists() for line in table.read_text().splitlines()[1:]}


def stream(server: Server, engine: int = 0) -> Connection:
    """A long stream that an engine has begun."""
    connection = server.connect(LIMIT_S)
    connection.send(post(COMPLETIONS, {**LONG, "stream": True}, **{"X-data-parallel-rank": str(engine)}))
    assert connection.response_head()[0] == 200
    connection.piece()
    return connection


def check_failed(connection: Connection) -> None:
    """The stream ends with an error event."""
    *_, error, done = frames(connection.response_body())
    assert done == "[DONE]"
    assert json.loads(error)["error"]["code"] == 503


def check_nothing_is_left(server: Server, segments: set[str], sockets: set[str]) -> None:
    wait_gone(server.pid, LIMIT_S)
    assert sockets
    wait_for(lambda: not sockets & existing_inodes(), "the end of all sockets")
    assert not {name for name in shared_memory() - segments if "fastfront" in name}


def tree(server: Server, *flags: str) -> None:
    """What runs is what a dry run prints."""
    titles, _ = planned(*flags, "--port", "0", "--host", "127.0.0.1")
    assert same(titles, running(server.pid)), (titles, running(server.pid))


def test_the_frontend_is_killed(start: StartServer) -> None:
    segments = shared_memory()
    server = start(*FLAGS, mock=None, env=ENV).wait_ready(START_S)
    tree(server, *FLAGS)
    answer = server.post(COMPLETIONS, {"prompt": "The capital of France is", "max_tokens": 8, "temperature": 0})
    assert answer.json()["choices"][0]["text"].startswith(" Paris")
    connection, sockets = stream(server), open_sockets(server)
    server.kill()
    connection.close()
    check_nothing_is_left(server, segments, sockets)


def test_a_worker_is_killed_and_then_the_other_engine_core(start: StartServer) -> None:
    segments = shared_memory()
    flags = (*FLAGS, "--data-parallel-size", "2")
    server = start(*flags, mock=None, env=ENV).wait_ready(START_S)
    tree(server, *flags)
    first, second, sockets = stream(server, 0), stream(server, 1), open_sockets(server)
    worker = pid_of(server, "fastfront::worker-1-1")
    os.kill(worker, signal.SIGKILL)
    check_failed(second)
    assert f"worker 1 of engine 1 (pid {worker}) ended with signal SIGKILL; the last lines of its output:" in server.log()
    ended = ("fastfront::engine-core-1", "fastfront::worker-1-")
    wait_for(lambda: not [name for name in running(server.pid) if name.startswith(ended)], "the end of engine 1")
    for _ in range(3):
        assert server.completion(max_tokens=1).status_code == 200
    os.kill(pid_of(server, "fastfront::engine-core-0"), signal.SIGKILL)
    check_failed(first)
    assert server.exits(LIMIT_S) == 1
    check_nothing_is_left(server, segments, sockets)
