"""Folders of programs that were killed do not stay."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from bench.peers.processes import session_members
from tests.bench.tiny_server import Exchange, TinyServer
from tests.support.waiting import wait_for
from tools import scratch

ROOT = Path(__file__).resolve().parents[2]
MAKER = """
import sys
from tools.scratch import scratch_folder
with scratch_folder("test") as folder:
    (folder / "inner").mkdir()
    (folder / "inner" / "file").write_text("x")
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder of this test alone."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def maker() -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen([sys.executable, "-c", MAKER], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_a_folder_is_gone_with_its_block(temporary: Path) -> None:
    with scratch.scratch_folder("test") as folder:
        (folder / "file").touch()
    assert list(temporary.iterdir()) == []


def test_what_a_killed_program_left_is_removed_by_the_next_and_nothing_else(temporary: Path) -> None:
    with maker()[0] as living, maker()[0] as killed:
        killed.kill()
        killed.wait()
        (temporary / "fastfront-load-of-others").mkdir()
        (temporary / "target").mkdir()
        (temporary / "fastfront-scratch-link").symlink_to("target")
        kept = {"fastfront-load-of-others", "target", "fastfront-scratch-link"}
        with scratch.scratch_folder("next") as own:
            names = {path.name for path in temporary.iterdir()}
            assert own.name in names
            assert len(names - kept - {own.name}) == 1, "the living one's"
        living.communicate()
        assert {path.name for path in temporary.iterdir()} == kept


def test_makers_do_not_take_each_other_s(temporary: Path) -> None:
    """A folder is swept, if it is, before its maker has it."""
    barrier = threading.Barrier(4)

    def work() -> None:
        barrier.wait()
        for _ in range(100):
            with scratch.scratch_folder("many") as folder:
                (folder / "file").touch()
                (folder / "file").unlink()
            done.append(folder)

    done: list[Path] = []
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(done)) == len(done) == 400
    assert list(temporary.iterdir()) == []


def test_a_load_that_is_killed_leaves_no_process_and_no_folder_for_long(temporary: Path) -> None:
    asked = threading.Event()

    def never(exchange: Exchange) -> None:
        asked.set()
        ended.wait()

    ended = threading.Event()
    with TinyServer(never) as server:
        argv = [sys.executable, "-m", "bench.load", "--port", str(server.port), "--streams", "1", "--requests", "1"]
        with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.DEVNULL, start_new_session=True) as load:
            assert asked.wait(60)
            load.kill()
            load.wait()
            wait_for(lambda: not session_members(load.pid), "the end of the generator")
        ended.set()
    assert len(list(temporary.iterdir())) == 1
    scratch.sweep()
    assert list(temporary.iterdir()) == []
