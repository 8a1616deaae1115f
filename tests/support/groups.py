"""Control groups as the kernel shows them, for tests of what a container's limits mean."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def make_groups(folder: Path, own: str, files: Mapping[str, str]) -> dict[str, Path]:
    """What functions that read them take: `own` are the lines of /proc/self/cgroup, `files` are by path below the root."""
    for name, content in files.items():
        path = folder / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content + "\n", encoding="ascii")
    (folder / "own").write_text(own + "\n", encoding="ascii")
    return {"groups": folder / "cgroup", "own": folder / "own"}
