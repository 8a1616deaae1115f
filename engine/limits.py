"""What this process may use of the machine: cores and memory, with what its control groups (a container's limits) leave."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")
_MEMORY = Path("/proc/meminfo")


def usable_cores(groups: Path = _GROUPS, own: Path = _OWN) -> int:
    """Cores that may run this process, no more than its CPU time lasts for; at least 1."""
    cores = len(os.sched_getaffinity(0))
    for folder in _folders("cpu", groups, own):
        with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
            if (folder / "cpu.max").exists():
                quota, period = (folder / "cpu.max").read_text(encoding="ascii").split()
            else:
                quota, period = (_read(folder, f"cpu.cfs_{name}_us") for name in ("quota", "period"))
            if quota != "max" and int(quota) > 0:
                cores = min(cores, int(quota) // int(period))
    return max(1, cores)


def available_memory(groups: Path = _GROUPS, own: Path = _OWN, machine: Path = _MEMORY) -> int:
    """Bytes of main memory that can be had without swapping, or being killed for it."""
    try:
        fields = _fields(machine, ":")
        left = int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError):
        left = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    for folder in _folders("memory", groups, own):
        with contextlib.suppress(OSError, ValueError, KeyError):
            if (folder / "memory.max").exists():
                limit, used, idle = _read(folder, "memory.max"), _read(folder, "memory.current"), "inactive_file"
            else:
                limit, used = (_read(folder, f"memory.{name}_in_bytes") for name in ("limit", "usage"))
                idle = "total_inactive_file"
            if limit != "max":
                # Pages of files that nobody has used for a while make room by themselves.
                left = min(left, int(limit) - int(used) + int(_fields(folder / "memory.stat", " ")[idle]))
    return max(0, left)


def _folders(controller: str, groups: Path, own: Path) -> Iterator[Path]:
    """Folders of the groups this process is in, whose limits all hold. In a container its own may be the root of what is seen."""
    try:
        lines = own.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            root = groups
        elif controller in controllers.split(","):
            root = groups / controller
        else:
            continue
        inner = Path(path.lstrip("/"))
        for part in (inner, *inner.parents):
            yield root / part


def _read(folder: Path, name: str) -> str:
    return (folder / name).read_text(encoding="ascii").strip()


def _fields(path: Path, separator: str) -> dict[str, str]:
    return dict(line.split(separator, 1) for line in path.read_text(encoding="ascii").splitlines())
