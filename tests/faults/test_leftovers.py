"""A frontend that is killed leaves nothing: no process, no file, no bound port; and a new one starts where it stood."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.ports import free_port
from tests.support.fixtures import StartServer
from tests.support.http1 import post
from tests.support.mock import MockEngine, scripted
from tests.support.paths import SMOLLM2
from tests.support.processes import session_members, shared_memory, socket_inodes, title, unix_sockets, wait_gone, with_parent
from tests.support.server import COMPLETIONS, Server, headless_mock
from tests.support.waiting import wait_for

LIMIT_S = 60.0


def own_sockets(server: Server) -> set[str]:
    """Unix sockets bound by the server's frontend."""
    return unix_sockets(socket_inodes(server.pid))


@pytest.fixture
def temporary(tmp_path: Path) -> Iterator[Path]:
    """A folder for temporary files that must be empty at the end."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    yield folder
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("when", ["loading", "idle", "load"])
def test_c72_the_frontend_is_killed(start: StartServer, temporary: Path, a: int, when: str) -> None:
    port = free_port()
    env = {"TMPDIR": str(temporary)}
    segments = shared_memory()
    mock_flags = ("--load-ms", "60000") if when == "loading" else ()
    server = start("--port", str(port), mock_flags=mock_flags, env=env)
    if when == "loading":
        wait_for(lambda: "has joined" in server.log(), "a loading engine")
    else:
        server.wait_ready()
    if when == "load":
        for k in range(20):
            connection = server.connect()
            connection.send(
                post(COMPLETIONS, {"prompt": "hello", "stream": k % 2 == 0, "max_tokens": 5000, **scripted(a, then="loop")})
            )
        assert server.mock is not None
        server.mock.wait_adds(20)
    assert len(session_members(server.pid)) == 2
    sockets = own_sockets(server)
    assert sockets or when != "idle"
    server.kill()
    wait_gone(server.pid, LIMIT_S)
    assert not sockets & unix_sockets()
    assert not {name for name in shared_memory() - segments if "fastfront" in name}
    again = start("--port", str(port), env=env).wait_ready()
    assert again.port == port
    assert again.completion(max_tokens=1).status_code == 200


def test_c71_the_whole_tree_is_killed_again_and_again(start: StartServer, temporary: Path) -> None:
    segments = shared_memory()
    for _ in range(5):
        server = start(env={"TMPDIR": str(temporary)}).wait_ready()
        assert server.completion(max_tokens=1).status_code == 200
        for pid in session_members(server.pid):
            os.kill(pid, signal.SIGKILL)
        server.hang_up()
        server.process.wait()
        wait_gone(server.pid, LIMIT_S)
    assert not {name for name in shared_memory() - segments if "fastfront" in name}


def test_a_headless_engine_leaves_when_the_frontend_is_killed(start: StartServer, tmp_path: Path) -> None:
    port = free_port()
    server = start("--data-parallel-size-local", "0", "--data-parallel-rpc-port", str(port), mock=None)
    engine = headless_mock(port, MockEngine(tmp_path, "--linger-s", "1"))
    try:
        server.wait_ready()
        assert server.completion(max_tokens=1).status_code == 200
        server.kill()
        assert engine.wait(LIMIT_S) == 0
    finally:
        engine.kill()
        engine.wait()


def test_c70_long_paths(start: StartServer, tmp_path: Path) -> None:
    """A TMPDIR of 120 characters and a model path of 200: sockets do not depend on either."""
    long_tmp = tmp_path / ("t" * (120 - len(str(tmp_path)) - 1))
    long_tmp.mkdir(parents=True)
    folder = tmp_path / ("m" * 100) / ("n" * 100)
    folder.parent.mkdir()
    folder.symlink_to(SMOLLM2)
    assert len(str(long_tmp)) == 120
    assert len(str(folder)) >= 200
    servers = [start(model=folder, env={"TMPDIR": str(long_tmp)}) for _ in range(2)]
    bound: list[set[str]] = []
    for server in servers:
        server.wait_ready()
        assert server.post(COMPLETIONS, {"prompt": "hello", "max_tokens": 1}).status_code == 200
        bound.append(own_sockets(server))
    assert all(len(name.encode()) <= 107 for names in bound for name in names)
    assert bound[0]
    assert not bound[0] & bound[1]
    assert list(long_tmp.iterdir()) == []


def test_a_clean_stop_leaves_nothing_either(start: StartServer, temporary: Path) -> None:
    segments = shared_memory()
    server = start(env={"TMPDIR": str(temporary)}).wait_ready()
    sockets = own_sockets(server)
    assert server.stop() == 0
    assert not sockets & unix_sockets()
    assert not {name for name in shared_memory() - segments if "fastfront" in name}


def test_what_a_killed_test_run_has_started_ends(tmp_path: Path) -> None:
    """Only where util-linux can tell a process of its parent's end."""
    if not with_parent():
        pytest.skip("no setpriv")
    program = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen([*{with_parent()!r}, 'sleep', '1000'], stdout=subprocess.DEVNULL, start_new_session=True)\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(1000)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=tmp_path) as run:
        assert run.stdout is not None
        child = int(run.stdout.readline())
        # It is told of its parent's end from when it has become sleep.
        wait_for(lambda: title(child).startswith("sleep"), "the child's program", LIMIT_S)
        run.kill()
    wait_gone(child)
