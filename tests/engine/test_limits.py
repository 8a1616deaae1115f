"""What a container leaves of the machine counts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.limits import available_memory, usable_cores
from tests.support.groups import make_groups

GIB = 1 << 30
NEW = {"memory.max": "3221225472", "memory.current": "1073741824", "memory.stat": "anon 5\ninactive_file 1024"}
OLD = {
    "memory/d/memory.limit_in_bytes": "3221225472", "memory/d/memory.usage_in_bytes": "1073741824",
    "memory/d/memory.stat": "inactive_file 5\ntotal_inactive_file 1024",
}  # fmt: skip


@pytest.mark.parametrize(
    ("own", "files", "left"),
    [
        ("0::/", {}, 8 * GIB),
        ("0::/", NEW, 2 * GIB + 1024),
        ("0::/", {**NEW, "memory.max": "max"}, 8 * GIB),
        ("0::/", {**NEW, "memory.max": "99999999999"}, 8 * GIB),
        ("0::/", {**NEW, "memory.current": "4294967296"}, 0),
        ("0::/a", {**NEW, "a/memory.max": "max", "a/memory.current": "5", "a/memory.stat": "inactive_file 0"}, 2 * GIB + 1024),
        ("0::/", {**NEW, "memory.stat": "anon 5"}, 8 * GIB),
        ("4:memory:/d", OLD, 2 * GIB + 1024),
        ("4:memory:/d", {**OLD, "memory/d/memory.limit_in_bytes": "9223372036854771712"}, 8 * GIB),
    ],
)
def test_memory(tmp_path: Path, own: str, files: dict[str, str], left: int) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 99 kB\nMemAvailable:    8388608 kB\n", encoding="ascii")
    assert available_memory(**make_groups(tmp_path, own, files), machine=tmp_path / "meminfo") == left


@pytest.mark.parametrize(
    ("files", "cores"),
    [({}, 16), ({"cpu.max": "max 100000"}, 16), ({"cpu.max": "250000 100000"}, 2), ({"cpu.max": "50000 100000"}, 1)],
)
def test_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], cores: int) -> None:
    """More threads than CPU time would only wait for each other."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    assert usable_cores(**make_groups(tmp_path, "0::/", files)) == cores


def test_without_control_groups_and_meminfo(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    assert usable_cores(tmp_path, nowhere) == len(os.sched_getaffinity(0))
    assert available_memory(tmp_path, nowhere, nowhere) == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
