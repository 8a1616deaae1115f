"""CPU time and memory of process trees."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from bench.process import Usage, snapshot, tree

# Does what it is told, a line at a time, and answers with a line.
CHILD = r"""
import ctypes, os, subprocess, sys, threading, time

def burn(seconds, name=None):
    if name:
        ctypes.CDLL(None).prctl(15, name.encode(), 0, 0, 0)
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(1000))

kept, threads, stop = [], [], threading.Event()

def work(name):
    burn(0.15, name)
    done.set()
    stop.wait()

for line in sys.stdin:
    word = line.strip()
    answer = ""
    if word == "burn":
        burn(0.15)
    elif word == "system":
        end = time.process_time() + 0.15
        with open("/dev/zero", "rb", buffering=0) as file:
            while time.process_time() < end:
                file.read(1 << 20)
    elif word == "thread":
        done = threading.Event()
        threads.append(threading.Thread(target=work, args=("lane (7)",)))
        threads[-1].start()
        done.wait()
    elif word == "child":
        subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.15: pass"], check=True)
    elif word == "grow":
        kept.append(b"x" * (64 << 20))
    elif word == "shrink":
        kept.clear()
    elif word == "orphan":
        script = "import subprocess, sys; p = subprocess.Popen(['sleep', '600'], stdout=-3, stderr=-3); print(p.pid)"
        answer = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.strip()
    elif word == "sleep":
        for _ in range(50):
            time.sleep(0.001)
    print(answer, flush=True)
stop.set()
"""


class Child:
    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        self.pid = self._process.pid
        self.tell("")

    def tell(self, word: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def used_by(self, word: str) -> Usage:
        before = snapshot(self.pid)
        self.tell(word)
        return snapshot(self.pid).since(before)

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


@pytest.fixture
def child() -> Iterator[Child]:
    child = Child()
    yield child
    child.close()


TICK = 1 / os.sysconf("SC_CLK_TCK")


def test_time_in_the_program(child: Child) -> None:
    used = child.used_by("burn")
    assert used.user_s > 0.1
    assert used.cpu_s >= 0.15 - 2 * TICK
    assert used.cores == pytest.approx(used.cpu_s / used.wall_s)
    ((count, thread),) = used.by_thread
    assert count == 1
    assert thread.cpu_s >= 0.149


def test_time_in_the_kernel(child: Child) -> None:
    used = child.used_by("system")
    assert used.system_s > used.user_s


def test_threads_by_name(child: Child) -> None:
    used = child.used_by("thread")
    assert (used.by_thread[0][0], used.by_thread[0][1].name) == (1, "lane (7)")
    assert used.by_thread[0][1].cpu_s >= 0.149
    again = child.used_by("thread")
    assert (again.threads, again.by_thread[0][0]) == (3, 2), "two of that name"
    assert 0.149 <= again.by_thread[0][1].cpu_s < 0.29, "the first one's time was before"


def test_children_that_have_ended_count(child: Child) -> None:
    used = child.used_by("child")
    assert used.cpu_s >= 0.15 - 2 * TICK
    assert used.processes == 1


def test_a_child_that_lives_through_the_first_snapshot_is_not_counted_twice() -> None:
    script = """
import subprocess, sys
burning = "import time\\nwhile time.process_time() < 0.3: pass\\nprint(1, flush=True); input()"
child = subprocess.Popen([sys.executable, "-c", burning], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
print("burnt", flush=True)
input()
child.communicate(b"\\n")
print("ended", flush=True)
input()
"""
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        assert parent.stdout.readline() == "burnt\n"
        before = snapshot(parent.pid)
        assert len(before.processes) == 2
        parent.stdin.write("\n")
        parent.stdin.flush()
        assert parent.stdout.readline() == "ended\n"
        after = snapshot(parent.pid)
        assert len(after.processes) == 1
        assert after.since(before).cpu_s < 0.2, "the child had used 0.3 s before"
        parent.stdin.write("\n")


def test_memory(child: Child) -> None:
    before = snapshot(child.pid)
    grown = child.used_by("grow")
    assert grown.rss_bytes - before.rss_bytes > 60 << 20
    assert 60 << 20 < grown.pss_bytes <= grown.rss_bytes
    child.tell("shrink")
    after = snapshot(child.pid)
    assert after.rss_bytes < grown.rss_bytes - (60 << 20)
    assert after.since(before).peak_rss_bytes - before.rss_bytes > 60 << 20
    assert snapshot(child.pid, pss=False).pss_bytes == 0


def test_switches(child: Child) -> None:
    assert child.used_by("sleep").voluntary_switches >= 50


def test_processes_whose_parent_has_gone_belong_to_the_tree(child: Child) -> None:
    orphan = int(child.tell("orphan"))
    try:
        assert tree(child.pid) == [child.pid, orphan]
        assert [process.name for process in snapshot(child.pid).processes][1:] == ["sleep"]
        assert len(snapshot(child.pid, without=[orphan]).processes) == 1
    finally:
        os.kill(orphan, 9)


def test_a_process_that_is_not_there() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    with pytest.raises(ProcessLookupError, match=str(process.pid)):
        snapshot(process.pid)


def test_usage_is_json(child: Child) -> None:
    found = json.loads(json.dumps(child.used_by("burn").as_dict()))
    assert {"wall_s", "user_s", "system_s", "cpu_s", "cores", "rss_bytes", "pss_bytes", "by_thread"} <= set(found)
    assert found["by_thread"][0]["count"] == 1


def test_one_that_ends_meanwhile_is_left_out() -> None:
    """Snapshots of a tree whose children come and go."""
    script = "import subprocess\nprint(1, flush=True)\nwhile True: subprocess.run(['true'])"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        before = snapshot(parent.pid)
        for _ in range(20):
            assert snapshot(parent.pid).processes[0].pid == parent.pid
        assert snapshot(parent.pid).since(before).cpu_s >= 0
        with contextlib.suppress(ProcessLookupError):
            parent.kill()
