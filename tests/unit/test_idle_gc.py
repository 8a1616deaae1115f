"""Garbage is collected while nobody waits."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref

import pytest

from fastfront.server import idle_gc
from fastfront.server.idle_gc import IdleCollector


class Loop:
    """An object that holds itself."""

    def __init__(self) -> None:
        self.me = self


def garbage() -> weakref.ref[Loop]:
    """More than enough of it, one of which is returned."""
    found = [Loop()]
    while gc.get_count()[0] < 2000:  # what was freed before counts against it
        found += [Loop() for _ in range(1000)]
    return weakref.ref(found[-1])


def test_it_waits_for_a_quiet_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    live = [1]
    collector = IdleCollector(lambda: live[0])
    collector.look()
    monkeypatch.setattr(idle_gc, "WORTH_IT", 100)
    gc.disable()
    try:
        left = garbage()
        assert not collector.look()
        assert left() is not None
        live[0] = 0
        assert collector.look()
        assert left() is None
        assert not collector.look(), "nothing new"
    finally:
        gc.enable()


CODE = """
import gc, threading, time
from fastfront.server import idle_gc
idle_gc.LOOK_EVERY_S = 0.01
idle_gc.IdleCollector(lambda: 0).start()
assert gc.get_freeze_count() > 1000
assert gc.get_threshold()[0] == idle_gc.AT_ONCE
before = sum(stats["collections"] for stats in gc.get_stats())
kept = [[] for _ in range(2 * idle_gc.WORTH_IT)]
deadline = time.monotonic() + 60
while sum(stats["collections"] for stats in gc.get_stats()) == before:
    assert time.monotonic() < deadline
    time.sleep(0.01)
"""


def test_started_it_freezes_what_is_there_and_looks_by_itself() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_a_moment_between_answers_is_not_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    given = [0]
    collector = IdleCollector(lambda: 0, lambda: given[0])
    monkeypatch.setattr(idle_gc, "WORTH_IT", 100)
    gc.disable()
    try:
        left = garbage()
        for _ in range(3):
            given[0] += 1
            assert not collector.look()
        assert left() is not None
        assert collector.look(), "nothing has been sent since the last look"
        assert left() is None
    finally:
        gc.enable()
