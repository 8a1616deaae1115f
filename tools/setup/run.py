"""Running commands: output to a log, progress to the console, failures with the log's tail and advice."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_TAIL_LINES = 20
_POLL_S = 0.1


class StepFailed(Exception):
    """A step could not be done. The message says what was tried, what came of it and what to do."""

    def __init__(self, what: str, advice: str, log: Path | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.advice = advice
        self.log = log

    def report(self) -> str:
        """The whole message, several lines: what was tried, the log's last lines, what to do."""
        parts = [f"FAILED: {self.what}"]
        if self.log is not None and self.log.exists():
            parts.append(f"last lines of {self.log}:")
            parts += ["    " + line for line in tail(self.log)]
        parts.append(f"What to do: {self.advice}")
        return "\n".join(parts)


@dataclass(frozen=True)
class Command:
    """One command of a step.

    `advice` is shown when it fails. `describe` is given each line of output and returns progress text (None: no news).
    `env` is added to the current environment. `timeout_s` of None waits for ever.
    """

    argv: Sequence[str]
    advice: str
    cwd: Path | None = None
    env: Mapping[str, str] | None = None
    timeout_s: float | None = None
    describe: Callable[[str], str | None] = str.strip


def run(command: Command, log: Path, progress: Callable[[str], None]) -> str:
    """Run `command` and return its output; `StepFailed` when it exits non-zero, is not there or takes too long.

    Output (stdout and stderr together) replaces the content of `log`. The command gets a process group of its own,
    which is ended with it when this function is left by an exception.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    shown = shlex.join(command.argv)
    with log.open("wb") as sink:
        try:
            process = subprocess.Popen(
                list(command.argv),
                cwd=command.cwd,
                env={**os.environ, **(command.env or {})},
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise StepFailed(f"{shown}: {error}", command.advice) from error
    try:
        _follow(process, command, log, progress)
    except BaseException:
        _end_group(process)
        raise
    if process.returncode != 0:
        raise StepFailed(f"{shown}: exit status {process.returncode}", command.advice, log)
    return log.read_text(encoding="utf-8", errors="replace")


def _follow(process: subprocess.Popen[bytes], command: Command, log: Path, progress: Callable[[str], None]) -> None:
    began = time.monotonic()
    unfinished = b""
    with log.open("rb") as source:
        while True:
            try:
                process.wait(_POLL_S)
            except subprocess.TimeoutExpired:
                pass
            else:
                return
            *lines, unfinished = (unfinished + source.read()).split(b"\n")
            for line in lines:
                text = command.describe(line.decode("utf-8", "replace"))
                if text:
                    progress(text)
            if command.timeout_s is not None and time.monotonic() - began > command.timeout_s:
                what = f"{shlex.join(command.argv)}: no result after {command.timeout_s:.0f} s"
                raise StepFailed(what, command.advice, log)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def output_of(argv: Sequence[str], timeout_s: float = 20.0) -> str | None:
    """Standard output of a quick query, stripped; None when it cannot be run, fails or takes too long."""
    try:
        done = subprocess.run(list(argv), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def tail(log: Path, lines: int = _TAIL_LINES) -> list[str]:
    """The last lines of a log, carriage-return progress collapsed to its final state."""
    text = log.read_bytes().decode("utf-8", "replace")
    return [line.rsplit("\r", 1)[-1].rstrip() for line in text.rstrip("\n").split("\n")[-lines:]]
