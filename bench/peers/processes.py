"""Child processes of a benchmark: their output in a file, gone with it, and whatever they started gone with them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.process import all_processes

_PR_SET_PDEATHSIG = 1
_PATIENCE_S = 20.0
_POLL_S = 0.02
_LIBC = ctypes.CDLL(None, use_errno=True)


class PeerFailed(Exception):
    """A process of a benchmark did not do what it was started for; the message has the end of its log."""


def session_members(session: int) -> list[int]:
    """Processes of a session that have not ended, zombies left out."""
    return [pid for pid, fields in all_processes() if int(fields[3]) == session and fields[0] not in "ZX"]


def die_with_parent() -> None:
    """For a child that has not become its program yet: SIGTERM when the thread that started it ends."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


class Child:
    """One program in a session of its own. It gets SIGTERM when the thread that started it ends.

    Used by one thread, which must live as long as the child. `stop` may be called more than once.
    """

    def __init__(
        self, name: str, argv: Sequence[str], log: Path, env: Mapping[str, str] | None = None, stdin: bool = False
    ) -> None:
        """`env` is added to ours; output goes to the end of `log`; with `stdin`, `tell` reaches the program."""
        self.name = name
        self.log = log
        with log.open("ab") as sink:
            try:
                self.process = subprocess.Popen(
                    list(argv),
                    # Ours points at this clone, which is none of the business of programs in other environments.
                    env={**os.environ, "PYTHONPATH": "", **(env or {})},
                    stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
                    stdout=sink,
                    stderr=sink,
                    start_new_session=True,
                    preexec_fn=die_with_parent,
                )
            except OSError as error:
                raise PeerFailed(f"{name}: {error}") from error

    @property
    def pid(self) -> int:
        return self.process.pid

    def check(self) -> None:
        """`PeerFailed` if the program has ended."""
        if self.process.poll() is not None:
            raise PeerFailed(f"{self.name} ended with status {self.process.returncode}; the end of its log:\n{self.tail()}")

    def tail(self, size: int = 3000) -> str:
        """The end of what it has printed."""
        return self.log.read_bytes()[-size:].decode("utf-8", "replace")

    def tell(self, line: str) -> None:
        """A line to the program's standard input."""
        assert self.process.stdin is not None, "started with stdin=True"
        try:
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        except OSError as error:
            raise PeerFailed(f"{self.name} takes no orders: {error}\n{self.tail()}") from error

    def stop(self) -> list[str]:
        """End the program and everything in its session; what went wrong with that, one line each."""
        complaints = []
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(_PATIENCE_S)
            except subprocess.TimeoutExpired:
                complaints.append(f"{self.name} did not end within {_PATIENCE_S:.0f} s after SIGTERM and was killed")
                self.process.kill()
                self.process.wait()
        until = time.monotonic() + _PATIENCE_S / 4
        while (left := session_members(self.pid)) and time.monotonic() < until:
            time.sleep(_POLL_S)
        if left:
            complaints.append(f"{self.name} left {len(left)} processes behind, which were killed")
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return complaints
