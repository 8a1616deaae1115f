"""Fixtures of the engine tests: a minimal frontend and mock engines started as processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
for folder in (ROOT, Path(__file__).resolve().parent):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

from wire_frontend import WireFrontend  # noqa: E402 - needs the path above

StartMock = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def frontend(tmp_path: Path) -> Iterator[WireFrontend]:
    """One client, one engine, ipc sockets."""
    with WireFrontend(tmp_path) as fe:
        yield fe


@pytest.fixture
def spawn(frontend: WireFrontend) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start `python -m MODULE ARGS --handshake <frontend>`; whatever still runs at the end is killed."""
    started: list[subprocess.Popen[bytes]] = []

    def start(module: str, *args: str, **more: object) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-W", "error", "-m", module, *args, "--handshake", frontend.handshake_address]
        process = subprocess.Popen(command, cwd=ROOT, **more)  # type: ignore[call-overload]
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
