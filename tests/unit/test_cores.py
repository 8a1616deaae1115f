"""The cores that a container has count, not the machine's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fastfront.config import default_lanes, default_request_threads
from fastfront.cores import usable_cores
from tests.support.groups import make_groups

CASES = [
    # lines of /proc/self/cgroup, files, cores of the 16 that the process may run on
    ("0::/", {}, 16),
    ("0::/", {"cpu.max": "max 100000"}, 16),
    ("0::/", {"cpu.max": "200000 100000"}, 2),
    ("0::/", {"cpu.max": "150000 100000"}, 2),
    ("0::/", {"cpu.max": "50000 100000"}, 1),
    ("0::/a/b", {"a/b/cpu.max": "max 100000", "a/cpu.max": "300000 100000"}, 3),
    ("0::/not/seen/here", {"cpu.max": "400000 100000"}, 4),
    ("0::/../other", {"cpu.max": "400000 100000"}, 4),
    ("0::/", {"cpu.max": "nonsense"}, 16),
    ("0::/", {"cpu.max": "100000 0"}, 16),
    ("3:cpu,cpuacct:/d\n0::/", {"cpu/d/cpu.cfs_quota_us": "600000", "cpu/d/cpu.cfs_period_us": "100000"}, 6),
    ("3:cpu,cpuacct:/d\n0::/", {"cpu/d/cpu.cfs_quota_us": "-1", "cpu/d/cpu.cfs_period_us": "100000"}, 16),
    ("3:cpuset:/d", {"cpu.max": "100000 100000"}, 16),
]


@pytest.mark.parametrize(("own", "files", "cores"), CASES)
def test_what_control_groups_pay_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str, files: dict[str, str], cores: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    assert usable_cores(**make_groups(tmp_path, own, files)) == cores


def test_defaults_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, lanes in ((1, 1), (2, 2), (3, 2), (8, 4)):
        monkeypatch.setattr("fastfront.config.usable_cores", lambda cores=cores: cores)
        assert (default_request_threads(), default_lanes()) == (cores, lanes)


def test_without_control_groups(tmp_path: Path) -> None:
    assert usable_cores(tmp_path, tmp_path / "own") == len(os.sched_getaffinity(0))
