"""Watching worker processes: their output is passed on, their end is noticed at once."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from engine.shm.peer import Peer

TAIL_LINES = 20
SETTLE_S = 0.05
"""One worker's end makes others fail: all that end within that time are looked at, the cause is told."""
_CHUNK = 65536


class Failure(NamedTuple):
    """A worker that ended unasked: its rank, its status as `subprocess` gives it, the last lines of its output."""

    rank: int
    status: int
    tail: tuple[str, ...]
    text: str


class WorkerProcess:
    """A worker as the engine core sees it. Its standard output and error are one pipe."""

    def __init__(self, rank: int, title: str, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        self.rank = rank
        self.title = title
        self.process = process
        self.peer = Peer(process.pid, title)
        self.output = process.stdout.fileno()
        os.set_blocking(self.output, False)
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._rest = b""

    def pass_on(self) -> bool:
        """Copy what it has written to standard error, and remember the last lines; False at the end of its output."""
        while True:
            try:
                data = os.read(self.output, _CHUNK)
            except BlockingIOError:
                return True
            except OSError:
                return False
            *lines, self._rest = (self._rest + data).split(b"\n")
            if not data and self._rest:
                lines, self._rest = [self._rest], b""
            texts = [line.decode("utf-8", "replace") for line in lines]
            self.tail += texts
            if texts:
                with contextlib.suppress(OSError, ValueError):
                    sys.stderr.write("".join(f"{text}\n" for text in texts))
                    sys.stderr.flush()
            if not data:
                return False

    def close(self) -> None:
        """After its end."""
        self.peer.close()
        if self.process.stdout is not None:
            self.process.stdout.close()


class WorkerMonitor(threading.Thread):
    """Runs until all workers have ended. Reports the first that ends before `expect_end`, then kills the others."""

    def __init__(self, engine: int, workers: list[WorkerProcess], failed: Callable[[Failure], None]) -> None:
        """`failed` is called once at most, on this thread."""
        super().__init__(name="worker-monitor", daemon=True)
        self._engine = engine
        self._workers = workers
        self._failed = failed
        self._expected = threading.Event()

    def expect_end(self) -> None:
        """From now on an ending worker is no failure."""
        self._expected.set()

    def run(self) -> None:
        """Poll pipes and processes."""
        poll = select.poll()
        speaking = {worker.output: worker for worker in self._workers}
        living = {worker.peer.fd: worker for worker in self._workers}
        for fd in (*speaking, *living):
            poll.register(fd, select.POLLIN)
        while living:
            for fd, _ in poll.poll():
                if fd in speaking:
                    if not speaking[fd].pass_on():
                        poll.unregister(fd)
                        del speaking[fd]
                elif fd in living:
                    if not self._expected.is_set():
                        self._report()
                        self.expect_end()
                    poll.unregister(fd)
                    living.pop(fd).process.wait()
        for worker in speaking.values():
            worker.pass_on()

    def _report(self) -> None:
        time.sleep(SETTLE_S)
        ended = [worker for worker in self._workers if worker.peer.gone()]
        for worker in ended:
            worker.process.wait()
        # Killed by a signal comes before an error about that.
        cause = min(ended, key=lambda worker: worker.process.returncode >= 0)
        cause.pass_on()
        for worker in self._workers:
            worker.process.kill()
        status, tail = cause.process.returncode, tuple(cause.tail)
        text = f"worker {cause.rank} of engine {self._engine} (pid {cause.process.pid}) ended with {describe(status)}"
        if tail:
            text += "; the last lines of its output:\n" + "\n".join(f"  {line}" for line in tail)
        self._failed(Failure(cause.rank, status, tail, text))


def describe(status: int) -> str:
    """An exit status in words."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"signal {signal.Signals(-status).name}"
    except ValueError:
        return f"signal {-status}"
