"""A whole run: peers in turn, again and again, so that a machine that drifts drifts for all of them."""

from __future__ import annotations

import json
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.machine import commit, machine, versions
from bench.peers.base import Peer, Running, Setting
from bench.peers.processes import PeerFailed
from bench.process import snapshot
from bench.record import FORMAT, Record
from bench.report.figures import first_token
from bench.scenarios.measure import Sample, climb, measure, pauses
from bench.scenarios.points import Point, points, ramp, ramp_point
from tools.setup.paths import Paths

_LANES_S = 120
_LANES_EXPECTED_S = 5.0
_START_S = 6.0
"""Starting and stopping a frontend, in the mean: a second for some, a dozen for others."""


@dataclass(frozen=True)
class Plan:
    """What to measure. Controls, which no target depends on, are measured once and at the main points only."""

    peers: tuple[Peer, ...]
    scenarios: frozenset[str]
    repeats: int
    quick: bool
    model: Path
    controls: frozenset[str]
    narrow: dict[str, frozenset[str]]
    """Peers that are wanted for some points only, by `scenario/point`."""

    def points_of(self, peer: Peer, repeat: int) -> list[Point]:
        """What is measured of a peer in a repeat."""
        if repeat and peer.name in self.controls:
            return []
        wanted = self.narrow.get(peer.name)
        return [
            point
            for point in points(self.scenarios, self.quick)
            if not (point.once and repeat)
            and not (point.once and peer.name in self.controls)
            and peer.name not in point.without
            and (wanted is None or f"{point.scenario}/{point.name}" in wanted)
        ]

    def climbs(self, peer: Peer, repeat: int) -> bool:
        """Whether a peer's ceiling is looked for in a repeat."""
        return "saturation" in self.scenarios and repeat == 0 and peer.name not in (*self.narrow, *self.controls)

    def expected_s(self) -> float:
        """About how long all of it takes on a quiet machine."""
        total = _LANES_EXPECTED_S
        for repeat in range(self.repeats):
            for peer in self.peers:
                of_points = sum(point.expected_s for point in self.points_of(peer, repeat))
                of_ramp = sum(ramp_point(streams, self.quick).expected_s for streams in ramp(self.quick))
                climbing = of_ramp if self.climbs(peer, repeat) else 0.0
                total += of_points + climbing + (_START_S if of_points or climbing else 0.0)
        return total


def run(
    plan: Plan,
    paths: Paths,
    command: Sequence[str],
    say: Callable[[str], None],
    keep: Callable[[Record], object] = lambda _: None,
) -> Record:
    """Measure everything; a peer that fails is noted in the record and left out of that repeat.

    `keep` is given the record as far as it has come whenever a peer is done.
    Ctrl-C ends it early, with everything stopped and the record as far as it goes.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    pythons = {"frontend": paths.venv / "bin" / "python", "engine": paths.engine_venv / "bin" / "python"}
    pythons["vllm"] = paths.peers / "vllm" / "bin" / "python"
    began = time.time()
    record: Record = {
        "format": FORMAT,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began)),
        "command": list(command),
        "quick": plan.quick,
        "repeats": plan.repeats,
        "model": plan.model.name,
        **commit(paths.root),
        "machine": machine(),
        "versions": versions(pythons),
        "peers": {peer.name: {"title": peer.title, "version": peer.version(paths)} for peer in plan.peers},
        "starts": [],
        "samples": [],
        "failures": [],
        "lanes": None,
        "seconds": 0.0,
    }
    say(f"about {plan.expected_s() / 60:.0f} minutes")
    try:
        for repeat in range(plan.repeats):
            for peer in plan.peers:
                if plan.points_of(peer, repeat) or plan.climbs(peer, repeat):
                    _turn(plan, paths, peer, repeat, record, lambda text: say(f"{time.time() - began:5.0f} s  {text}"))
                    record["seconds"] = round(time.time() - began, 1)
                    keep(record)
        record["lanes"] = lanes(paths, plan.model, say)
    except KeyboardInterrupt:
        say("interrupted; what was measured is kept")
        record["failures"].append({"peer": "-", "repeat": 0, "error": "interrupted"})
    record["seconds"] = round(time.time() - began, 1)
    keep(record)
    return record


def _turn(plan: Plan, paths: Paths, peer: Peer, repeat: int, record: Record, say: Callable[[str], None]) -> None:
    """One peer in one repeat: start, all points, stop."""
    with tempfile.TemporaryDirectory(prefix="fastfront-bench-") as folder:
        running = None
        try:
            with peer.start(Setting(paths, plan.model, Path(folder))) as running:
                record["starts"].append(start_sample(running, repeat))
                say(f"[{repeat + 1}/{plan.repeats}] {peer.name}: ready in {running.ready_s:.2f} s")
                for point in plan.points_of(peer, repeat):
                    sample = measure(point, running, repeat, seed=repeat)
                    record["samples"].append(sample)
                    say(f"[{repeat + 1}/{plan.repeats}] {told(sample)}")
                    if sample["left_running"]:
                        error = (
                            f"{point.name}: {sample['left_running']} requests still ran at the engine when all clients had left"
                        )
                        record["failures"].append({"peer": peer.name, "repeat": repeat, "error": error})
                if plan.climbs(peer, repeat):
                    for sample in climb(running, plan.quick, repeat):
                        record["samples"].append(sample)
                        say(f"[{repeat + 1}/{plan.repeats}] {told(sample)}")
                record["starts"][-1] |= end_facts(running)
        except (PeerFailed, OSError, LookupError, ValueError) as error:
            # Whatever is wrong with one frontend, the minutes spent on the others are not to be lost.
            text = str(error) if isinstance(error, PeerFailed) else f"{type(error).__name__}: {error}"
            say(f"{peer.name}: {text}")
            record["failures"].append({"peer": peer.name, "repeat": repeat, "error": text})
        if running is not None and running.complaints:
            say("\n".join(running.complaints))
            record["failures"].append({"peer": peer.name, "repeat": repeat, "error": "; ".join(running.complaints)})


def start_sample(running: Running, repeat: int) -> dict[str, Any]:
    """How a peer came up, and its memory before the first request."""
    at_start = snapshot(running.front.pid)
    return {
        "peer": running.name,
        "repeat": repeat,
        "ready_s": running.ready_s,
        "rss_bytes": at_start.rss_bytes,
        "pss_bytes": at_start.pss_bytes,
        "processes": len(at_start.processes),
    }


def end_facts(running: Running) -> dict[str, Any]:
    """Memory after all load, and for fastfront the longest stop-the-world pause since it was ready."""
    at_end = snapshot(running.front.pid)
    facts: dict[str, Any] = {"end_rss_bytes": at_end.rss_bytes, "end_pss_bytes": at_end.pss_bytes}
    found = pauses(running)
    if found is not None:
        facts["gc_longest_pause_s"] = found[2]
    return facts


def told(sample: Sample) -> str:
    """One line about a sample, for who waits."""
    load = sample["load"]
    ttft = [first_token(quantile)(sample) or 0.0 for quantile in ("p50", "p99")]
    return (
        f"{sample['peer']:14} {sample['scenario']}/{sample['point']:24} {load['tokens_per_s'] or 0:8.0f} tok/s"
        f" {load['requests_per_s'] or 0:7.0f} req/s  ttft {ttft[0]:7.1f} / {ttft[1]:7.1f} ms"
        f"  {sample['cpu_us_per_token'] or 0:6.1f} us/token {sample['cpu_us_per_request'] or 0:7.0f} us/request"
        f"  failed {load['requests']['failed']}, others {sample['others_cores']:.2f} cores"
    )


def lanes(paths: Paths, model: Path, say: Callable[[str], None]) -> dict[str, Any] | None:
    """The token path alone, one lane against two: what `python -m bench.step` measures; None if it cannot run."""
    with tempfile.TemporaryDirectory(prefix="fastfront-bench-") as folder:
        out = Path(folder) / "step.json"
        argv = [str(paths.venv / "bin" / "python"), "-m", "bench.step", "--json", str(out)]
        try:
            subprocess.run(
                [*argv, "--tokenizer", str(model / "tokenizer.json")], cwd=paths.root, stdout=subprocess.DEVNULL,
                timeout=_LANES_S, check=True,
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError) as error:
            say(f"lanes: {error}")
            return None
        found: dict[str, Any] = json.loads(out.read_text())
        return found
