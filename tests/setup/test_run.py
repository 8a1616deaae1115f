"""A failing command says what was tried, the end of its log and what to do; nothing of it is left running."""

import sys
import time
from pathlib import Path

import pytest

from tools.setup.run import Command, StepFailed, output_of, run, tail


def silent(text: str) -> None:
    """Progress that nobody sees."""


def test_output_is_returned_and_logged(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "step.log"
    program = "import os, sys; print('out', flush=True); print(os.environ['EXTRA'], file=sys.stderr)"
    output = run(Command([sys.executable, "-c", program], "none", env={"EXTRA": "err"}), log, silent)
    assert output == "out\nerr\n"
    assert log.read_text() == output


def test_failure_reports_command_log_and_advice(tmp_path: Path) -> None:
    program = "for i in range(50): print('line', i)\nraise SystemExit(7)"
    log = tmp_path / "step.log"
    with pytest.raises(StepFailed) as caught:
        run(Command([sys.executable, "-c", program], "Feed the cat."), log, silent)
    report = caught.value.report()
    assert "exit status 7" in report
    assert "line 49" in report
    assert "line 10\n" not in report
    assert str(log) in report
    assert report.endswith("What to do: Feed the cat.")


def test_missing_program_is_a_failure_with_advice(tmp_path: Path) -> None:
    with pytest.raises(StepFailed, match="no-such-program"):
        run(Command(["no-such-program"], "Install it."), tmp_path / "log", silent)


def test_too_slow_command_is_ended_with_its_children(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    shell = f"sleep 600 & echo $! > {pid_file}; wait"
    with pytest.raises(StepFailed, match=r"no result after 5 s"):
        run(Command(["sh", "-c", shell], "none", timeout_s=5), tmp_path / "log", silent)
    status = Path("/proc") / pid_file.read_text().strip() / "status"
    deadline = time.monotonic() + 30
    while _runs(status):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _runs(status: Path) -> bool:
    """Whether the process is there; a killed one may stay as a zombie until its new parent reaps it."""
    try:
        return "\nState:\tZ" not in status.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_progress_gets_whole_lines(tmp_path: Path) -> None:
    seen: list[str] = []
    gate = tmp_path / "gate"
    program = (
        "import pathlib, sys, time\n"
        "sys.stdout.write('half '); sys.stdout.flush(); time.sleep(0.3)\n"
        "print('line', flush=True)\n"
        f"while not pathlib.Path({str(gate)!r}).exists(): time.sleep(0.01)\n"
    )

    def describe(line: str) -> str:
        gate.touch()
        return f"<{line}>"

    run(Command([sys.executable, "-c", program], "none", describe=describe), tmp_path / "log", seen.append)
    assert seen == ["<half line>"]


def test_output_of_a_failing_query_is_none() -> None:
    assert output_of([sys.executable, "-c", "print(' x ')"]) == "x"
    assert output_of([sys.executable, "-c", "raise SystemExit(1)"]) is None
    assert output_of(["no-such-program"]) is None


def test_tail_collapses_carriage_returns(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("one\n10%\r50%\r100%\n")
    assert tail(log) == ["one", "100%"]
