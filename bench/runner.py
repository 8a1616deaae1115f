"""A whole run: peers in turn, again and again, so that a machine that drifts drifts for all of them."""

from __future__ import annotations

import json
import resource
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.machine import commit, machine, versions
from bench.peers.base import Peer, Running, Setting
from bench.peers.processes import PeerFailed, die_with_parent
from bench.plan import Plan
from bench.process import snapshot
from bench.record import FORMAT, Record, RecordError
from bench.report.figures import first_token
from bench.scenarios.measure import Sample, climb, measure, pauses
from bench.scenarios.points import ceiling_known
from tools.scratch import scratch_folder
from tools.setup.paths import Paths

INTERRUPTED = {"peer": "-", "repeat": 0, "error": "interrupted"}
_LANES_S = 240


def run(
    plan: Plan,
    paths: Paths,
    command: Sequence[str],
    say: Callable[[str], None],
    keep: Callable[[Record], object] = lambda _: None,
    record: Record | None = None,
) -> Record:
    """Measure everything; a peer that fails is noted in the record and left out of that repeat.

    `keep` is given the record as far as it has come whenever a point is done. Ctrl-C ends it early, with everything stopped and
    the record as far as it goes: given as `record`, it is taken up again where it stopped. Raises RecordError for one that
    was taken of another commit or machine.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if record is None:
        record = begin(plan, paths, command)
    else:
        take_up(record, paths)
    state = _Run(plan, paths, record, say, keep)
    say(f"about {plan.expected_s() / 60:.0f} minutes in all")
    try:
        for repeat in range(plan.repeats):
            for peer in plan.peers:
                state.turn(peer, repeat)
        if plan.lanes and record["lanes"] is None:
            record["lanes"] = lanes(paths, plan.model, say)
    except KeyboardInterrupt:
        say("interrupted; what was measured is kept")
        record["failures"].append(INTERRUPTED)
    state.note()
    return record


def begin(plan: Plan, paths: Paths, command: Sequence[str]) -> Record:
    """A record of a run in which nothing has been measured yet."""
    pythons = {"frontend": paths.venv / "bin" / "python", "engine": paths.engine_venv / "bin" / "python"}
    pythons["vllm"] = paths.peers / "vllm" / "bin" / "python"
    return {
        "format": FORMAT,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "command": list(command),
        "quick": plan.quick,
        "repeats": plan.repeats,
        "model": plan.model.name,
        **commit(paths.root),
        "machine": machine(),
        "versions": versions(pythons),
        "peers": {peer.name: {"title": peer.title, "version": peer.version(paths)} for peer in plan.peers},
        "left_out": dict(plan.left_out),
        "starts": [],
        "samples": [],
        "climbed": [],
        "failures": [],
        "taken_up": [],
        "lanes": None,
        "seconds": 0.0,
    }


def take_up(record: Record, paths: Paths) -> None:
    """Prepare an interrupted record for going on; raises RecordError where the figures would not belong together."""
    now, here = commit(paths.root), machine()
    if record["commit"] != now["commit"]:
        raise RecordError(f"--resume: the record is of commit {record['commit']}, this is {now['commit']}")
    for key in ("processor", "cores"):
        if record["machine"][key] != here[key]:
            raise RecordError(f"--resume: the record is of another machine: {record['machine'][key]}, this is {here[key]}")
    record["changed"] = record["changed"] or now["changed"]
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    record["taken_up"].append({"at": at, "samples": len(record["samples"]), "load_average": here["load_average"]})
    record["failures"] = [failure for failure in record["failures"] if failure != INTERRUPTED]


class _Run:
    """One run under way, used by one thread."""

    def __init__(
        self, plan: Plan, paths: Paths, record: Record, say: Callable[[str], None], keep: Callable[[Record], object]
    ) -> None:
        self._plan = plan
        self._paths = paths
        self._record = record
        self._keep = keep
        self._began = time.monotonic() - record["seconds"]
        self._tell = say

    def note(self) -> None:
        """Give the record to who keeps it."""
        self._record["seconds"] = round(time.monotonic() - self._began, 1)
        self._keep(self._record)

    def turn(self, peer: Peer, repeat: int) -> None:
        """One peer in one repeat: start, all points that are not there yet, stop."""
        done = {(s["scenario"], s["point"]) for s in self._record["samples"] if (s["peer"], s["repeat"]) == (peer.name, repeat)}
        todo = [point for point in self._plan.points_of(peer, repeat) if (point.scenario, point.name) not in done]
        climbs = self._plan.climbs(peer, repeat) and peer.name not in self._record["climbed"]
        if not todo and not climbs:
            return
        running = None
        with scratch_folder("bench") as folder:
            try:
                with peer.start(Setting(self._paths, self._plan.model, folder)) as running:
                    self._record["starts"].append(start_sample(running, repeat))
                    self._say(f"[{repeat + 1}/{self._plan.repeats}] {peer.name}: ready in {running.ready_s:.2f} s")
                    for point in todo:
                        self._take(measure(point, running, repeat, seed=repeat))
                    if climbs:
                        self._climb(running, repeat)
                    if not done:  # taken up in the middle, it has not had all the load
                        self._record["starts"][-1] |= end_facts(running)
            except (PeerFailed, OSError, LookupError, ValueError) as error:
                # Whatever is wrong with one frontend, the minutes spent on the others are not to be lost.
                self._fail(peer.name, repeat, str(error) if isinstance(error, PeerFailed) else f"{type(error).__name__}: {error}")
            if running is not None and running.complaints:
                self._fail(peer.name, repeat, "; ".join(running.complaints))
        self.note()

    def _climb(self, running: Running, repeat: int) -> None:
        samples = [s for s in self._record["samples"] if (s["peer"], s["repeat"]) == (running.name, repeat)]
        for sample in climb(running, self._plan.quick, repeat, ceiling_known(samples)):
            self._take(sample)
        self._record["climbed"].append(running.name)

    def _take(self, sample: Sample) -> None:
        self._record["samples"].append(sample)
        self._say(f"[{sample['repeat'] + 1}/{self._plan.repeats}] {told(sample)}")
        if sample["left_running"]:
            what = f"{sample['left_running']} requests still ran at the engine when all clients had left"
            self._fail(sample["peer"], sample["repeat"], f"{sample['point']}: {what}")
        self.note()

    def _fail(self, peer: str, repeat: int, error: str) -> None:
        self._say(f"{peer}: {error}")
        self._record["failures"].append({"peer": peer, "repeat": repeat, "error": error})

    def _say(self, text: str) -> None:
        self._tell(f"{time.monotonic() - self._began:5.0f} s  {text}")


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
    """Memory after all load of a turn, and for fastfront the longest stop-the-world pause since it was ready."""
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
    with scratch_folder("bench") as folder:
        out = folder / "step.json"
        argv = [str(paths.venv / "bin" / "python"), "-m", "bench.step", "--json", str(out)]
        try:
            subprocess.run(
                [*argv, "--tokenizer", str(model / "tokenizer.json")], cwd=paths.root, stdout=subprocess.DEVNULL,
                timeout=_LANES_S, check=True, preexec_fn=die_with_parent,
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError) as error:
            say(f"lanes: {error}")
            return None
        found: dict[str, Any] = json.loads(out.read_text())
        return found
