"""Peers come up, serve the same request, and leave nothing behind."""

from __future__ import annotations

import http.client
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from bench.peers.base import SERVED, Peer, Setting, start_in_front, wait_healthy
from bench.peers.processes import Child, PeerFailed, session_members
from bench.peers.registry import PEERS
from bench.ports import free_port
from tools.setup.paths import find_paths

PATHS = find_paths(os.environ)
OWN = ("floor", "fastfront", "fastfront-gil", "classic-2")
HELLO = [{"role": "user", "content": "hello"}]


def ask(port: int, **fields: Any) -> tuple[int, bytes]:
    """A chat request; status and body."""
    body = {"model": SERVED, "messages": HELLO, **fields}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def events(body: bytes) -> list[dict[str, Any]]:
    lines = [line[6:] for line in body.split(b"\n") if line.startswith(b"data: ")]
    assert lines[-1] == b"[DONE]"
    return [json.loads(line) for line in lines[:-1]]


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(PATHS, PATHS.models / "smollm2", tmp_path, step_ms=1.0, ready_timeout_s=120.0)


def test_all_frontends_are_there_once() -> None:
    names = [peer.name for peer in PEERS]
    assert sorted(names) == sorted(set(names))
    assert {*OWN, "vllm-rust", "vllm-python-1", "vllm-python-2"} == set(names)


@pytest.mark.parametrize("peer", [peer for peer in PEERS if peer.name in OWN], ids=lambda peer: peer.name)
def test_peer_serves_and_leaves_nothing(peer: Peer, setting: Setting) -> None:
    assert peer.problem(PATHS) is None
    with peer.start(setting) as running:
        assert 0 < running.ready_s < 60
        pids = session_members(running.front.pid)
        assert running.front.pid in pids
        for step_ms in (1.0, 0.0):
            running.clock(step_ms)
            status, body = ask(running.port, stream=True, max_tokens=6, ignore_eos=True, stream_options={"include_usage": True})
            assert status == 200
            assert events(body)[-1]["usage"]["completion_tokens"] == 6
        status, body = ask(running.port, max_tokens=3, ignore_eos=True)
        assert (status, json.loads(body)["usage"]["completion_tokens"]) == (200, 3)
        running.check()
    assert running.complaints == []
    assert session_members(running.front.pid) == []
    assert running.engine is None or session_members(running.engine.child.pid) == []


def test_floor_keeps_the_clock(setting: Setting) -> None:
    floor = next(peer for peer in PEERS if peer.name == "floor")
    with floor.start(setting) as running:
        running.clock(20)
        began = time.monotonic()
        assert ask(running.port, stream=True, max_tokens=11)[0] == 200
        assert time.monotonic() - began > 0.15  # ten steps
        running.front.process.stdin.close()  # type: ignore[union-attr]
        assert running.front.process.wait(60) == 0


def test_program_that_ends_early_is_reported_with_its_log(tmp_path: Path) -> None:
    child = Child("short", [sys.executable, "-c", "print('why it ended'); exit(3)"], tmp_path / "log")
    with pytest.raises(PeerFailed, match=r"short ended with status 3[\s\S]*why it ended"):
        wait_healthy(free_port(), [child], 30)
    with pytest.raises(PeerFailed, match="absent"):
        Child("absent", [str(tmp_path / "absent")], tmp_path / "log")


def test_frontend_that_is_not_ready_in_time_takes_its_engine_with_it(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Child] = []
    real = Child.__init__

    def remember(self: Child, *arguments: Any, **more: Any) -> None:
        real(self, *arguments, **more)
        started.append(self)

    monkeypatch.setattr(Child, "__init__", remember)
    sleeper = [sys.executable, "-c", "import time; time.sleep(60)"]
    short = Setting(setting.paths, setting.model, setting.folder, ready_timeout_s=0.3)
    with pytest.raises(PeerFailed, match="not ready after 0 s"):
        start_in_front("sleeper", short, sleeper, free_port(), free_port(), {})
    assert len(started) == 2
    assert [session_members(child.pid) for child in started] == [[], []]


def test_what_a_program_leaves_behind_is_killed_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.peers.processes._PATIENCE_S", 2.0)
    stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    program = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {stubborn!r}]).wait()"
    child = Child("parent", [sys.executable, "-c", program], tmp_path / "log")
    while b"up" not in child.log.read_bytes():
        child.check()
        time.sleep(0.01)
    assert child.stop() == ["parent left 1 processes behind, which were killed"]
    assert child.stop() == []
