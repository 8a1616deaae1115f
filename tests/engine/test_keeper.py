"""A keeper passes on signals and the status, and leaves nothing of its command."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import session_members, shared_memory
from tests.support.waiting import wait_for

KEEPER = Path(__file__).resolve().parents[2] / "engine" / "keeper.py"
SHARING = """
import multiprocessing.shared_memory, os, subprocess, sys
subprocess.Popen(["sleep", "600"], start_new_session=False)
segment = multiprocessing.shared_memory.SharedMemory(sys.argv[1], create=True, size=64)
print("ready", flush=True)
if sys.argv[2] == "wait":
    import signal
    signal.pause()
os.kill(os.getpid(), 9)
"""


@pytest.fixture
def name() -> Iterator[str]:
    """Of a shared memory segment that must not stay."""
    found = f"fastfront-test-{secrets.token_hex(6)}"
    yield found
    assert found not in shared_memory()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A temporary folder of its own, with a path short enough for sockets."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="ff-") as name:
        yield Path(name)


def keep(*command: str) -> subprocess.Popen[str]:
    words = [sys.executable, str(KEEPER), "kept", *command]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True)


def gone(keeper: subprocess.Popen[str]) -> None:
    wait_for(lambda: not any(state not in "ZX" for state in session_members(keeper.pid).values()), "the end of all processes")


@pytest.mark.parametrize(("code", "status"), [("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 9)", 137), ("", 0)])
def test_the_status_is_the_command_s(code: str, status: int) -> None:
    with keep(sys.executable, "-c", code) as keeper:
        assert keeper.wait(30) == status


def test_a_command_that_is_not_there() -> None:
    with keep("/no/such/program") as keeper:
        assert keeper.wait(30) == 127


def test_sigterm_is_passed_on() -> None:
    code = "import signal; signal.signal(15, lambda *_: exit(5)); print('ready', flush=True); signal.pause()"
    with keep(sys.executable, "-c", code) as keeper:
        assert keeper.stdout is not None
        assert keeper.stdout.readline() == "ready\n"
        keeper.terminate()
        assert keeper.wait(30) == 5


def test_shared_memory_of_a_command_that_is_killed_is_removed(name: str) -> None:
    """Children that it leaves are ended, too."""
    with keep(sys.executable, "-c", SHARING, name, "die") as keeper:
        assert keeper.wait(30) == 137
        gone(keeper)


def test_the_parent_is_killed(name: str) -> None:
    """A program that starts a keeper and is killed: the keeper ends the command, whose memory is removed."""
    code = "import subprocess, sys; subprocess.Popen(sys.argv[1:]).wait()"
    command = [sys.executable, "-c", code, sys.executable, str(KEEPER), "kept", sys.executable, "-c", SHARING, name, "wait"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "ready\n"
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
        gone(parent)


def test_sockets_that_a_command_leaves_are_removed(folder: Path) -> None:
    """So are those of a keeper that was killed, by the next one; not those of one that runs."""
    left = (
        "import os, pathlib, sys, tempfile; pathlib.Path(os.environ['VLLM_RPC_BASE_PATH'], 'socket').touch();"
        "tempfile.mkstemp(); print('ready', flush=True)"
    )
    env = {**os.environ, "TMPDIR": str(folder)}
    words = [sys.executable, str(KEEPER), "kept", sys.executable, "-c"]
    waits = [*words, left + "; sys.stdin.read()"]
    with (
        subprocess.Popen(waits, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as living,
        subprocess.Popen(waits, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as killed,
    ):
        for keeper in (living, killed):
            assert keeper.stdout is not None
            assert keeper.stdout.readline() == "ready\n"
        killed.kill()
        killed.wait()
        assert len(list(folder.glob("*/socket"))) == 2
        subprocess.run([*words, left], env=env, check=True, stdout=subprocess.DEVNULL)
        assert len(list(folder.glob("*/socket"))) == 1
        living.communicate()
    assert list(folder.iterdir()) == []


def test_a_place_for_sockets_that_is_set_stays(folder: Path) -> None:
    code = "import os; raise SystemExit(os.environ['VLLM_RPC_BASE_PATH'] != '/elsewhere')"
    env = {**os.environ, "TMPDIR": str(folder), "VLLM_RPC_BASE_PATH": "/elsewhere"}
    subprocess.run([sys.executable, str(KEEPER), "kept", sys.executable, "-c", code], env=env, check=True)
    assert list(folder.iterdir()) == []
