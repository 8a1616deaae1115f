"""Engine processes of this frontend: started, watched, stopped."""

from __future__ import annotations

import logging
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import setproctitle

from fastfront.errors import EngineError

STOP_TIMEOUT_S = 10.0
STOP_POLL_S = 0.01
WATCH_S = 1.0
log = logging.getLogger("fastfront.engines")


class Supervisor:
    """The local engine processes, each the leader of a group of its own: what is left of a group when its leader ends is killed.

    `on_exit(index, status)` is called on the watcher's thread when one ends unasked. `restart` and `kill` belong to one thread.
    """

    def __init__(
        self,
        commands: Mapping[int, list[str]],
        environments: Mapping[int, Mapping[str, str]],
        on_exit: Callable[[int, int], None],
    ) -> None:
        """`commands` and `environments` by rank."""
        self._commands = commands
        self._environments = environments
        self._on_exit = on_exit
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._watcher: threading.Thread | None = None
        self._stopping = threading.Event()
        self._lock = threading.Lock()  # nothing is started once it stops
        self._started = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def start(self) -> None:
        for index in self._commands:
            self._processes[index] = self._start(index)

    def _start(self, index: int) -> subprocess.Popen[bytes]:
        command = self._commands[index]
        log.info("starting engine: %s", " ".join(command))
        return subprocess.Popen(command, env=self._environments[index], stdin=subprocess.DEVNULL, process_group=0)

    def restart(self, index: int) -> None:
        """Starts an engine whose process has ended once more. Raises OSError if that is not possible."""
        with self._lock:
            if not self._stopping.is_set():
                self._processes[index] = self._start(index)
                os.eventfd_write(self._started, 1)

    def kill(self, index: int) -> None:
        """Ends an engine's process at once, if it is still there."""
        if ended(self._processes[index]) is None:
            self._processes[index].kill()

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes.values()]

    def check(self) -> None:
        """Raises EngineError when a process has ended already."""
        for index, process in self._processes.items():
            status = ended(process)
            if status is not None:
                raise EngineError(
                    f"engine {index} (pid {process.pid}) ended during start-up with {describe(status)}; its output above says why"
                )

    def watch(self) -> None:
        """From here on ends are reported through `on_exit`."""
        if self._processes:
            self._watcher = threading.Thread(target=self._watch, name="engine-watcher", daemon=True)
            self._watcher.start()

    def _watch(self) -> None:
        setproctitle.setthreadtitle("engine-watcher")
        over: set[subprocess.Popen[bytes]] = set()
        while not self._stopping.is_set():
            waiting = [(index, process) for index, process in self._processes.items() if process not in over]
            fds = []
            try:
                for _, process in waiting:
                    fds.append(os.pidfd_open(process.pid))
            except (OSError, AttributeError):
                self._stopping.wait(0.2)
            else:
                wait_readable([*fds, self._started], WATCH_S)
            for fd in fds:
                with suppress(OSError):  # when the server stops, HTTP closes its socket twice: it may have hit this one
                    os.close(fd)
            with suppress(BlockingIOError):
                os.eventfd_read(self._started)
            for index, process in waiting:
                status = ended(process)
                if status is not None:
                    over.add(process)
                    if not self._stopping.is_set():
                        self._on_exit(index, status)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S, hurry: Callable[[], bool] = lambda: False) -> None:
        """Ends every process: SIGTERM, and SIGKILL after `timeout_s` or when `hurry` says so. Returns when all are gone."""
        with self._lock:
            self._stopping.set()
        for process in self._processes.values():
            if ended(process) is None:
                process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + timeout_s
        while any(ended(process) is None for process in self._processes.values()):
            if time.monotonic() > deadline or hurry():
                break
            time.sleep(STOP_POLL_S)
        for process in self._processes.values():
            if ended(process) is None:
                kill_group(process.pid)
                process.wait()


def ended(process: subprocess.Popen[bytes]) -> int | None:
    """The exit status of a group's leader, None while it runs. What is left of its group is killed.

    That happens before its status is fetched: until then no other process can get its id.
    """
    with suppress(ChildProcessError):
        if process.returncode is None and os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            kill_group(process.pid)
    return process.poll()


def kill_group(leader: int) -> None:
    """Kills a group of processes that this one started and whose leader it has not waited for.

    Python's resource trackers are left: they end by themselves then, and remove shared memory that the others have left.
    """
    while doomed := [pid for pid in group_members(leader) if not is_tracker(pid)]:
        for pid in doomed:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(STOP_POLL_S)


def group_members(group: int) -> list[int]:
    """Processes of a group that have not ended."""
    found = []
    for entry in os.listdir("/proc"):
        with suppress(OSError, ValueError, IndexError):
            state, _, of = Path(f"/proc/{int(entry)}/stat").read_text().rpartition(")")[2].split()[:3]
            if int(of) == group and state not in "ZX":
                found.append(int(entry))
    return found


def is_tracker(pid: int) -> bool:
    """Whether a process is one of multiprocessing's resource trackers."""
    with suppress(OSError):
        return b"multiprocessing.resource_tracker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def wait_readable(fds: list[int], timeout_s: float) -> None:
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    poll.poll(timeout_s * 1000)


def describe(status: int) -> str:
    """An exit status in words."""
    if status < 0:
        try:
            return f"signal {signal.Signals(-status).name}"
        except ValueError:
            return f"signal {-status}"
    return f"exit status {status}"
