"""CPU time and memory of a process and everything below it, from /proc.

    before = snapshot(pid)
    ...
    used = snapshot(pid).since(before)

A tree is what descends from its root, and what belongs to a session that one of these leads: helpers whose parent has
ended are found too. Time of processes that ended in between is counted when their parent has waited for them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

_PROC = Path("/proc")
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclasses.dataclass(frozen=True, slots=True)
class Thread:
    """A thread so far, or in between. `cpu_s` is exact, `user_s` and `system_s` go in clock ticks (10 ms mostly)."""

    name: str
    cpu_s: float
    user_s: float
    system_s: float
    voluntary: int
    involuntary: int


@dataclasses.dataclass(frozen=True, slots=True)
class Process:
    """A process so far. Its times include threads that have ended and children that it has waited for."""

    pid: int
    started: int
    """Clock ticks since the boot: with `pid` the process's identity."""
    name: str
    user_s: float
    system_s: float
    rss_bytes: int
    peak_rss_bytes: int
    pss_bytes: int
    """0 where the kernel does not tell, or if it was not asked for."""
    threads: dict[int, Thread]
    """By thread id."""


@dataclasses.dataclass(frozen=True, slots=True)
class Usage:
    """What a tree used between two snapshots; memory and counts are as of the later one."""

    wall_s: float
    user_s: float
    system_s: float
    rss_bytes: int
    peak_rss_bytes: int
    """The sum of each process's own peak."""
    pss_bytes: int
    processes: int
    threads: int
    voluntary_switches: int
    involuntary_switches: int
    by_thread: tuple[tuple[int, Thread], ...]
    """(how many, sum) for threads of one name, the busiest first; threads that have ended in between are not in it."""

    @property
    def cpu_s(self) -> float:
        """User and system time."""
        return self.user_s + self.system_s

    @property
    def cores(self) -> float:
        """Processors kept busy, in the mean."""
        return self.cpu_s / self.wall_s if self.wall_s > 0 else 0.0

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "by_thread"}
        threads = [{"count": count, **dataclasses.asdict(thread)} for count, thread in self.by_thread]
        return {**fields, "cpu_s": self.cpu_s, "cores": self.cores, "by_thread": threads}


@dataclasses.dataclass(frozen=True, slots=True)
class Snapshot:
    """A tree at one moment."""

    at_s: float
    """time.monotonic()."""
    processes: tuple[Process, ...]

    @property
    def rss_bytes(self) -> int:
        """Resident memory; what processes share counts for each."""
        return sum(process.rss_bytes for process in self.processes)

    @property
    def pss_bytes(self) -> int:
        """Resident memory with what is shared divided among those who share it."""
        return sum(process.pss_bytes for process in self.processes)

    def since(self, before: Snapshot) -> Usage:
        """What the tree used since `before`, which must be of the same root."""
        known = {(process.pid, process.started): process for process in before.processes}
        names: dict[str, list[Thread]] = {}
        for process in self.processes:
            old = known.get((process.pid, process.started))
            for tid, thread in process.threads.items():
                names.setdefault(thread.name, []).append(_difference(thread, old.threads.get(tid) if old else None))
        by_thread = sorted(
            ((len(threads), _total(name, threads)) for name, threads in names.items()), key=lambda pair: -pair[1].cpu_s
        )
        return Usage(
            wall_s=self.at_s - before.at_s,
            # A child's time moves to its parent when it ends, so that sums over the tree can be subtracted.
            user_s=_sum(self, "user_s") - _sum(before, "user_s"),
            system_s=_sum(self, "system_s") - _sum(before, "system_s"),
            rss_bytes=self.rss_bytes,
            peak_rss_bytes=sum(process.peak_rss_bytes for process in self.processes),
            pss_bytes=self.pss_bytes,
            processes=len(self.processes),
            threads=sum(len(process.threads) for process in self.processes),
            voluntary_switches=sum(thread.voluntary for _, thread in by_thread),
            involuntary_switches=sum(thread.involuntary for _, thread in by_thread),
            by_thread=tuple(by_thread),
        )


def snapshot(root: int, *, without: Collection[int] = (), pss: bool = True) -> Snapshot:
    """The tree under `root` now, without the trees under `without`. `pss` takes some milliseconds of each process.

    Raises ProcessLookupError if there is no such process.
    """
    at_s = time.monotonic()
    left_out = {pid for other in without for pid in tree(other)}
    processes = []
    for pid in tree(root):
        if pid in left_out:
            continue
        # One that ends while it is looked at is left out.
        with contextlib.suppress(OSError):
            processes.append(_process(pid))
    if pss:  # takes long: times have been read before, as close together as can be
        processes = [dataclasses.replace(process, pss_bytes=_pss(_PROC / str(process.pid))) for process in processes]
    if not processes or processes[0].pid != root:
        raise ProcessLookupError(f"no process {root}")
    return Snapshot(at_s, tuple(processes))


def tree(root: int) -> list[int]:
    """Process ids, `root` first whether it exists or not."""
    children: dict[int, list[int]] = {}
    members: dict[int, list[int]] = {}
    for pid, fields in all_processes():
        children.setdefault(int(fields[1]), []).append(pid)
        members.setdefault(int(fields[3]), []).append(pid)
    found = {root: None}
    queue = [root]
    for pid in queue:
        for other in (*children.get(pid, ()), *members.get(pid, ())):
            if other not in found:
                found[other] = None
                queue.append(other)
    return list(found)


def all_processes() -> Iterator[tuple[int, list[str]]]:
    """All of this machine: (id, the fields of its stat file behind the name)."""
    for entry in os.listdir(_PROC):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                yield int(entry), _stat(_PROC / entry)[1]


def _stat(folder: Path) -> tuple[str, list[str]]:
    """(name, the fields behind it) of a process or thread; the name may contain anything."""
    before, _, after = (folder / "stat").read_text(errors="replace").rpartition(")")
    return before.partition("(")[2], after.split()


def _status(folder: Path) -> dict[str, int]:
    """The numbers in a status file by name; sizes are in KiB."""
    lines = (line.partition(":") for line in (folder / "status").read_text(errors="replace").splitlines())
    return {name: int(words[0]) for name, _, value in lines if (words := value.split()) and words[0].isdigit()}


def _process(pid: int) -> Process:
    folder = _PROC / str(pid)
    name, fields = _stat(folder)
    status = _status(folder)
    threads = {}
    for entry in os.listdir(folder / "task"):
        with contextlib.suppress(OSError):
            threads[int(entry)] = _thread(folder / "task" / entry)
    return Process(
        pid=pid,
        started=int(fields[19]),
        name=name,
        user_s=(int(fields[11]) + int(fields[13])) * _TICK_S,
        system_s=(int(fields[12]) + int(fields[14])) * _TICK_S,
        rss_bytes=status.get("VmRSS", 0) << 10,
        peak_rss_bytes=status.get("VmHWM", 0) << 10,
        pss_bytes=0,
        threads=threads,
    )


def _thread(folder: Path) -> Thread:
    name, fields = _stat(folder)
    status = _status(folder)
    user_s, system_s = int(fields[11]) * _TICK_S, int(fields[12]) * _TICK_S
    cpu_s = user_s + system_s
    with contextlib.suppress(OSError, ValueError, IndexError):  # not in every kernel
        cpu_s = int((folder / "schedstat").read_text().split()[0]) / 1e9
    switches = (status.get("voluntary_ctxt_switches", 0), status.get("nonvoluntary_ctxt_switches", 0))
    return Thread(name, cpu_s, user_s, system_s, *switches)


def _pss(folder: Path) -> int:
    with contextlib.suppress(OSError):  # of another user, or not in this kernel
        for line in (folder / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    return 0


def _difference(now: Thread, before: Thread | None) -> Thread:
    if before is None:
        return now
    return Thread(
        now.name,
        now.cpu_s - before.cpu_s,
        now.user_s - before.user_s,
        now.system_s - before.system_s,
        now.voluntary - before.voluntary,
        now.involuntary - before.involuntary,
    )


def _total(name: str, threads: list[Thread]) -> Thread:
    return Thread(
        name,
        sum(thread.cpu_s for thread in threads),
        sum(thread.user_s for thread in threads),
        sum(thread.system_s for thread in threads),
        sum(thread.voluntary for thread in threads),
        sum(thread.involuntary for thread in threads),
    )


def _sum(of: Snapshot, field: str) -> float:
    return sum(float(getattr(process, field)) for process in of.processes)
