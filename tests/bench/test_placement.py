"""Frontend and load generator on cores of their own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from bench.scenarios.placement import apart

_THREADS = """
import os, sys, threading
threading.Thread(target=sys.stdin.read).start()
print(flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_the_load_has_a_core_that_the_frontend_does_not_use() -> None:
    before = os.sched_getaffinity(0)
    command = [sys.executable, "-c", _THREADS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as front:
        assert front.stdin is not None
        assert front.stdout is not None
        front.stdout.readline()

        def allowed() -> list[set[int]]:
            threads = os.listdir(f"/proc/{front.pid}/task")
            assert len(threads) == 2
            return [os.sched_getaffinity(int(thread)) for thread in threads]

        with apart(front.pid):
            load = subprocess.run(["nproc"], stdout=subprocess.PIPE, check=True)
            inside, ours = allowed(), os.sched_getaffinity(0)
        assert int(load.stdout) == len(ours) == 1
        assert inside == [before - ours] * 2
        assert allowed() == [before] * 2
        assert os.sched_getaffinity(0) == before
        front.stdin.close()


def test_a_frontend_that_has_ended_is_no_reason_to_fail() -> None:
    front = subprocess.Popen([sys.executable, "-c", ""])
    front.wait()
    with apart(front.pid):
        pass
