"""How many cores this process may use: of the machine's, those it may run on and those that its control groups pay for."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")


def usable_cores(groups: Path = _GROUPS, own: Path = _OWN) -> int:
    """At least 1. A share of a core that a container has counts as one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for folder in _folders(groups, own):
        with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
            if (folder / "cpu.max").exists():
                quota, period = _read(folder, "cpu.max").split()
            else:
                quota, period = _read(folder, "cpu.cfs_quota_us"), _read(folder, "cpu.cfs_period_us")
            if quota != "max" and int(quota) > 0:
                cores = min(cores, -(-int(quota) // int(period)))
    return max(1, cores)


def _folders(groups: Path, own: Path) -> Iterator[Path]:
    """Folders of the groups this process is in, whose limits all hold. In a container its own may be the root of what is seen."""
    try:
        lines = own.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if (number, controllers) == ("0", ""):
            root = groups
        elif "cpu" in controllers.split(","):
            root = groups / "cpu"
        else:
            continue
        inner = Path(path.lstrip("/"))
        for part in (inner, *inner.parents):
            yield root / part


def _read(folder: Path, name: str) -> str:
    return (folder / name).read_text(encoding="ascii").strip()
