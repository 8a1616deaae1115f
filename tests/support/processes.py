"""What a tree of processes is made of and what it leaves behind, read from /proc."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import subprocess
from pathlib import Path

from tests.support.waiting import wait_for


@functools.cache
def with_parent() -> tuple[str, ...]:
    """What stands before a command that is to get SIGTERM when the thread that starts it ends: also that of a run that is killed.

    Empty where util-linux is missing or old: what a killed run has started stays then.
    """
    command = ("setpriv", "--pdeathsig", "TERM", "--")
    if shutil.which(command[0]) is None or subprocess.run([*command, "true"], stderr=subprocess.DEVNULL, check=False).returncode:
        return ()
    return command


def session_members(session: int) -> dict[int, str]:
    """Processes of a session (pid: state letter), zombies included."""
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            after_name = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            if int(after_name[3]) == session:
                found[int(entry)] = after_name[0]
    return found


def wait_gone(session: int, timeout_s: float = 60.0) -> None:
    """Fails unless every process of the session ends within the time; what is left is killed."""
    try:
        wait_for(lambda: not session_members(session), "the end of all processes of the server", timeout_s)
    except AssertionError as error:
        left = {pid: (state, title(pid)) for pid, state in session_members(session).items()}
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        raise AssertionError(f"still there: {left}") from error


def title(pid: int) -> str:
    """The command line of a process as ps shows it; empty if it has gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return ""


def thread_titles(pid: int) -> list[str]:
    """Titles of a process's threads, but for those that end meanwhile."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            found.append((task / "comm").read_text().strip())
    return found


def socket_inodes(pid: int) -> set[str]:
    """Sockets that a process has open; descriptors that are closed meanwhile do not count."""
    found = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            target = os.readlink(f"/proc/{pid}/fd/{fd}")
            if target.startswith("socket:"):
                found.add(target[8:-1])
    return found


def open_files(pid: int) -> int:
    """Number of open file descriptors."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def resident_bytes(pid: int) -> int:
    """Resident set size."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def unix_sockets(inodes: set[str] | None = None) -> set[str]:
    """Names of bound Unix sockets, all of this machine's or those of `inodes`; those in the abstract namespace begin with `@`."""
    lines = Path("/proc/net/unix").read_text().splitlines()[1:]
    rows = [row for line in lines if len(row := line.split(maxsplit=7)) == 8]
    return {row[7] for row in rows if inodes is None or row[6] in inodes}


def shared_memory() -> set[str]:
    """Names of the shared memory segments of this machine."""
    return set(os.listdir("/dev/shm")) if Path("/dev/shm").is_dir() else set()
