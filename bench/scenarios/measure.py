"""From a point and a running frontend to a sample: the load generator's result and who used how much of the machine."""

from __future__ import annotations

import contextlib
import os
import re
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.load import Load, LoadError, Phase
from bench.load import run as run_load
from bench.peers.base import SERVED, Running
from bench.peers.processes import PeerFailed
from bench.process import Snapshot, Usage, snapshot
from bench.scenarios.placement import apart
from bench.scenarios.points import Point, beyond, ramp, ramp_point

_GC = re.compile(r"^fastfront:gc_(pause_seconds_count|pause_seconds_sum|longest_pause_seconds)(?:\{[^}]*\})? (\S+)$", re.M)
_IDLE_S = 15.0
_POLL_S = 0.05
_SETTLE_S = 0.2
_QUIET_CORES = 0.1
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_THREADS_KEPT = 12

Sample = dict[str, Any]


def pauses(running: Running) -> tuple[int, float, float] | None:
    """fastfront's stop-the-world collections so far: how many, seconds in all, seconds of the longest. None: another peer."""
    if not running.name.startswith("fastfront"):
        return None
    with urllib.request.urlopen(f"http://{running.address}/metrics", timeout=10) as answer:
        found = {name: float(value) for name, value in _GC.findall(answer.read().decode())}
    return int(found["pause_seconds_count"]), found["pause_seconds_sum"], found["longest_pause_seconds"]


def longest_pause_s(before: tuple[int, float, float] | None, after: tuple[int, float, float] | None) -> float | None:
    """The longest of the pauses in between, or what they took together where the longest was before."""
    if before is None or after is None:
        return None
    return min(after[2], after[1] - before[1]) if after[0] > before[0] else 0.0


class _Meter:
    """Reads clocks when a measuring phase begins and when it ends."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._before: tuple[Snapshot, Snapshot | None, tuple[float, float]] | None = None
        self.front: Usage | None = None
        self.engine: Usage | None = None
        self.busy_s = self.interrupts_s = 0.0
        self.pauses: tuple[int, float, float] | None = None
        self.longest_pause_s: float | None = None

    def __call__(self, phase: Phase) -> None:
        engine = self._running.engine
        if phase == "measuring":
            self.pauses = pauses(self._running)
        now = (
            snapshot(self._running.front.pid, pss=False),
            snapshot(engine.child.pid, pss=False) if engine else None,
            machine_busy_s(),
        )
        if phase == "measuring":
            self._before = now
            return
        assert self._before is not None
        self.front = now[0].since(self._before[0])
        if now[1] is not None and self._before[1] is not None:
            self.engine = now[1].since(self._before[1])
        self.busy_s, self.interrupts_s = (after - before for after, before in zip(now[2], self._before[2], strict=True))
        self.longest_pause_s = longest_pause_s(self.pauses, pauses(self._running))


def machine_busy_s() -> tuple[float, float]:
    """Processor time on this machine since the boot, seconds: of programs and what a hypervisor took away; of interrupts.

    What the kernel does for sockets while an interrupt ends belongs to no program.
    """
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    user, nice, system, _, _, irq, softirq, steal = fields[:8]
    return (user + nice + system + steal) * _TICK_S, (irq + softirq) * _TICK_S


def cpu_s(usage: Usage) -> float:
    """Processor time, exact where the threads' own clocks account for all of it: ticks are 10 ms."""
    exact = sum(thread.cpu_s for _, thread in usage.by_thread)
    return exact if abs(exact - usage.cpu_s) <= 4 * _TICK_S * max(1, usage.processes) else usage.cpu_s


def measure(point: Point, running: Running, repeat: int, seed: int) -> Sample:
    """Put the load on, wait until engine and frontend are idle again; `PeerFailed` when a process ends."""
    running.clock(point.step_ms)
    load = Load(
        port=running.port, model=SERVED, streams=point.streams, warmup_s=point.warmup_s, seconds=point.measure_s,
        drain_s=point.drain_s, seed=seed, progress=False, **point.fields,
    )  # fmt: skip
    meter = _Meter(running)
    try:
        with apart(running.front.pid) if point.apart else contextlib.nullcontext():
            result = run_load(load, meter)
    except LoadError as error:
        running.check()
        raise PeerFailed(f"{running.name}: {error}") from error
    running.check()
    left = wait_idle(running)
    settle(running)
    assert meter.front is not None
    front_s = cpu_s(meter.front)
    engine_s = cpu_s(meter.engine) if meter.engine else 0.0
    load_s = result["cpu"]["user_s"] + result["cpu"]["system_s"]
    elapsed = result["elapsed_s"]
    return {
        "peer": running.name,
        "scenario": point.scenario,
        "point": point.name,
        "repeat": repeat,
        "streams": point.streams,
        "step_ms": point.step_ms,
        "drain_s": point.drain_s,
        "apart": point.apart,
        "cpu_us_per_token": _per(front_s, result["tokens"]),
        "cpu_us_per_request": _per(front_s, result["completed"]),
        "front": _kept(meter.front, front_s),
        "engine_cores": engine_s / elapsed,
        "load_cores": load_s / elapsed,
        "others_cores": max(0.0, meter.busy_s - front_s - engine_s - load_s) / elapsed,
        "interrupt_cores": meter.interrupts_s / elapsed,
        "left_running": left,
        "gc_longest_pause_s": meter.longest_pause_s,
        "load": {key: value for key, value in result.items() if key != "load"} | {"fields": dict(point.fields), "seed": seed},
    }


def _per(seconds: float, count: int) -> float | None:
    return seconds * 1e6 / count if count else None


def _kept(usage: Usage, exact_s: float) -> dict[str, Any]:
    fields = usage.as_dict()
    return {**fields, "cpu_s": exact_s, "cores": exact_s / usage.wall_s, "by_thread": fields["by_thread"][:_THREADS_KEPT]}


def wait_idle(running: Running) -> int:
    """Wait until the engine has nothing to do; how many requests still run after a while (0: as it should be)."""
    if running.engine is None:
        return 0
    until = time.monotonic() + _IDLE_S
    while True:
        counts = running.engine.counts()
        left = int(counts["running"]) + int(counts["waiting"])
        if not left or time.monotonic() > until:
            return left
        time.sleep(_POLL_S)


def settle(running: Running) -> None:
    """Wait until the frontend has worked off what it is behind with: less than a tenth of a core, or for so long."""
    until = time.monotonic() + _IDLE_S
    now = snapshot(running.front.pid, pss=False)
    while time.monotonic() < until:
        time.sleep(_SETTLE_S)
        before, now = now, snapshot(running.front.pid, pss=False)
        used = now.since(before)
        if cpu_s(used) < _QUIET_CORES * used.wall_s:
            return


def rungs(known: Mapping[int, bool], quick: bool) -> Iterator[int]:
    """Streams of the ramp that are still to be looked at, upwards; the caller stops at the first that is beyond.

    `known` says of streams whether they have been found to be beyond the ceiling. Nothing known: the whole ramp.
    """
    kept_up = max((streams for streams, is_beyond in known.items() if not is_beyond), default=0)
    failed = min((streams for streams, is_beyond in known.items() if is_beyond), default=None)
    return (streams for streams in ramp(quick) if streams > kept_up and (failed is None or streams < failed))


def climb(running: Running, quick: bool, seed: int, known: Mapping[int, bool]) -> Iterator[Sample]:
    """Samples of the ramp, the last of them the first whose time to first token (p99) is beyond the ceiling."""
    for streams in rungs(known, quick):
        sample = measure(ramp_point(streams, quick), running, 0, seed)
        yield sample
        if beyond(sample):
            break
