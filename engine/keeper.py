"""Runs a command and sees to it that nothing of it is left, however this process or its parent ends.

    keeper.py TITLE COMMAND...

Ends with the command's exit status (128 + N for signal N). SIGTERM and SIGINT are passed on. When the parent ends, or the command
does, all that descends from the command is killed, and the folder removed where vLLM's processes make sockets for each other, and
temporary files.
A file of its own, with nothing but the standard library, so that any interpreter can run it.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import getpass
import glob
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
LOOK_S = 1.0
TRACKERS_S, TRACKERS_POLL_S = 3.0, 0.02
ORPHANED = 1
SOCKETS = "VLLM_RPC_BASE_PATH"
COMPILED = "TORCHINDUCTOR_CACHE_DIR"
FOLDER = "fastfront-keeper-"
LONGEST = 40  # of a folder's path, in bytes: with ours and a name of 36 below it a socket's may have 107
WATCHED = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGUSR1}


def main(argv: list[str]) -> int:
    """Run the command; returns its exit status."""
    title, *command = argv
    parent = os.getppid()
    name_process(title)
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    if sys.platform.startswith("linux"):
        libc = ctypes.CDLL(None, use_errno=True)
        # Orphans of the command become our children: they can be found and waited for. Ours is told to end with its parent.
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGUSR1, 0, 0, 0)
    if SOCKETS in os.environ:
        return keep(command, dict(os.environ), parent)
    with socket_folder() as sockets:
        return keep(command, {**os.environ, SOCKETS: sockets, **temporary_files(sockets)}, parent)


def temporary_files(folder: str) -> dict[str, str]:
    """Has temporary files made in the folder, if it lies where they would be; what is compiled stays where it is found again."""
    usual = tempfile.gettempdir()
    if os.path.dirname(folder) != usual:
        return {}
    try:
        user = getpass.getuser()
    except (KeyError, ImportError, OSError):
        user = f"uid_{os.getuid()}"
    return {"TMPDIR": folder, COMPILED: os.environ.get(COMPILED) or os.path.join(usual, f"torchinductor_{user}")}


def keep(command: list[str], env: dict[str, str], parent: int) -> int:
    """Run the command and end what is left of it; its exit status."""
    try:
        child = subprocess.Popen(command, env=env, preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED))
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        return 127
    try:
        while (status := child.poll()) is None and os.getppid() == parent:
            got = signal.sigtimedwait(WATCHED, LOOK_S)
            if got is not None and got.si_signo in (signal.SIGTERM, signal.SIGINT):
                child.send_signal(got.si_signo)
    finally:
        kill_descendants()
    return ORPHANED if status is None else 128 - status if status < 0 else status


@contextlib.contextmanager
def socket_folder() -> Iterator[str]:
    """A new folder, removed at the end. Its lock tells that it is in use: those of keepers that were killed are removed first."""
    where = tempfile.gettempdir()
    if len(os.fsencode(where)) > LONGEST:
        where = "/tmp"
    for left in glob.glob(os.path.join(glob.escape(where), FOLDER + "*")):
        with contextlib.suppress(OSError):
            lock = locked(left, fcntl.LOCK_NB)
            try:
                shutil.rmtree(left)
            finally:
                os.close(lock)
    while True:
        path = tempfile.mkdtemp(prefix=FOLDER, dir=where)
        with contextlib.suppress(FileNotFoundError):  # another keeper has removed it before it was locked
            lock = locked(path)
            break
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def locked(path: str, how: int = 0) -> int:
    """A descriptor of a folder, with a lock. OSError if it is not there, or another process has one and LOCK_NB is given."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | how)
        os.stat(path)
    except OSError:
        os.close(folder)
        raise
    return folder


def kill_descendants() -> None:
    """Kills children until there are none; theirs become ours when they are gone.

    Python's resource trackers get a moment: they end by themselves, and remove shared memory that others have left.
    """
    until = time.monotonic() + TRACKERS_S
    while children := children_of(os.getpid()):
        doomed = [pid for pid in children if time.monotonic() > until or not is_tracker(pid)]
        for pid in doomed:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in children:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0 if pid in doomed else os.WNOHANG)
        if not doomed:
            time.sleep(TRACKERS_POLL_S)


def is_tracker(pid: int) -> bool:
    """Whether a process is one of multiprocessing's resource trackers."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as words:
        return b"multiprocessing.resource_tracker" in words.read()
    return False


def children_of(parent: int) -> list[int]:
    """Direct children, from /proc."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{entry}/stat") as stat:
                if int(stat.read().rpartition(")")[2].split()[1]) == parent:
                    found.append(int(entry))
    return found


def name_process(title: str) -> None:
    """Shows the title in ps, where the interpreter has what that takes."""
    with contextlib.suppress(ImportError):
        from setproctitle import setproctitle  # noqa: PLC0415 - any interpreter can run this

        setproctitle(title)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
