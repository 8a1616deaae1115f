"""What --dry-run prints is what starts."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from bench.ports import free_port
from tests.support.fixtures import StartServer
from tests.support.mock import ranks
from tests.support.paths import FASTFRONT, environment
from tests.support.processes import session_members, title
from tests.support.waiting import wait_for

LIMIT_S = 60.0


def planned(*flags: str) -> tuple[list[str], list[str]]:
    """Titles that a dry run prints, and the lines behind them."""
    command = [str(FASTFRONT), "serve", "smollm2", *flags, "--dry-run"]
    out = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True, timeout=60).stdout
    lines = out.splitlines()
    end = next(k for k, line in enumerate(lines) if re.match(r"\d+ process", line))
    return [re.sub(r"^[│ ]*[├└]─ |^[│ ]+", "", line).partition("  (")[0] for line in lines[:end]], lines[end:]


def running(session: int) -> list[str]:
    """Titles of a session's processes."""
    return [title(pid) for pid in session_members(session)]


def same(plan: list[str], found: list[str]) -> bool:
    """Whether each planned title, or its beginning, is that of one process, and no other process is there."""
    left = sorted(found)
    for wanted in sorted(plan, reverse=True):
        match = next((name for name in left if name.startswith(wanted)), None)
        if match is None:
            return False
        left.remove(match)
    return not left


@pytest.mark.parametrize("engines", [1, 2])
def test_mock_engines(start: StartServer, tmp_path: Path, engines: int) -> None:
    flags = ["--data-parallel-size", str(engines)]
    titles, (count,) = planned(*flags, "--engine", "mock", "--port", "0", "--host", "127.0.0.1")
    told, _ = ranks(tmp_path, engines)
    server = start(*flags, mock=told).wait_ready()
    assert count == f"{engines + 1} processes: 1 frontend, {engines} engine{'s' * (engines > 1)}, 0 workers"
    assert titles[0] == "fastfront serve smollm2 127.0.0.1:"
    found = running(server.pid)
    assert same(titles, found), (titles, found)
    assert len(found) == int(count.split()[0])


def test_engines_elsewhere_are_named(start: StartServer, tmp_path: Path) -> None:
    titles, (_, elsewhere) = planned("--data-parallel-size", "3", "--data-parallel-size-local", "1", "--engine", "mock")
    assert titles[1:] == ["fastfront::mock-engine-0"]
    assert elsewhere == "2 engines from elsewhere: they join at 127.0.0.1:29550"


def test_headless_engines_serve_a_frontend_elsewhere(start: StartServer, tmp_path: Path) -> None:
    """Two commands, two machines: here two addresses of one. Everything ends with SIGTERM, or when the keeper is killed."""
    port = str(free_port())
    where = ["--data-parallel-address", "127.0.0.2", "--data-parallel-rpc-port", port]
    flags = ["--headless", "--engine", "mock", "--data-parallel-size", "3", "--data-parallel-start-rank", "1", *where]
    titles, (count, join) = planned(*flags)
    assert count == "5 processes: 1 for all, 2 keepers, 2 engines, 0 workers"
    assert join == f"they join a frontend at 127.0.0.2:{port}"
    told, _ = ranks(tmp_path, 1)
    server = start("--data-parallel-size", "3", "--data-parallel-size-local", "1", *where, mock=told)
    with (tmp_path / "headless.log").open("wb") as log:
        engines = subprocess.Popen(
            [str(FASTFRONT), "serve", "smollm2", *flags], env=environment(), stdout=log, stderr=log, start_new_session=True
        )
    try:
        server.wait_ready()
        for _ in range(3):
            assert server.completion(max_tokens=1).status_code == 200
        found = running(engines.pid)
        assert same(titles, found), (titles, found)
        engines.terminate()
        assert engines.wait(LIMIT_S) == 0
        wait_for(lambda: not session_members(engines.pid), "the end of all engines", LIMIT_S)
        assert server.completion(max_tokens=1).status_code == 200
    finally:
        engines.kill()
        engines.wait()


def test_headless_engines_end_with_what_has_started_them(tmp_path: Path) -> None:
    """SIGKILL leaves nothing, and an engine that ends is said and counted."""
    where = ["--data-parallel-rpc-port", str(free_port()), "--engine-args", "--startup silent"]
    command = [str(FASTFRONT), "serve", "smollm2", "--headless", "--engine", "mock", *where]
    with (tmp_path / "headless.log").open("wb") as log:
        engines = subprocess.Popen(command, env=environment(), stdout=log, stderr=log, start_new_session=True)
    wait_for(lambda: any(name.startswith("fastfront::mock-engine-0") for name in running(engines.pid)), "an engine", LIMIT_S)
    engines.kill()
    engines.wait()
    wait_for(lambda: not session_members(engines.pid), "the end of all engines", LIMIT_S)
    failing = subprocess.run([*command, "--", "--no-such-flag"], env=environment(), capture_output=True, text=True, timeout=60)
    assert failing.returncode == 1
    assert "engine 0 ended with exit status 2" in failing.stderr
