"""Fixtures of the engine tests: a minimal frontend, engines started as processes, tiny models made on the fly."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.wire_frontend import WireFrontend

# Before anything imports torch: its idle threads must not burn the cores that other tests need.
os.environ.setdefault("GOMP_SPINCOUNT", "0")
ROOT = Path(__file__).resolve().parents[2]
Spawn = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def frontend(tmp_path: Path) -> Iterator[WireFrontend]:
    """One client, one engine, ipc sockets."""
    with WireFrontend(tmp_path) as fe:
        yield fe


@pytest.fixture
def spawn(frontend: WireFrontend, tmp_path: Path) -> Iterator[Spawn]:
    """Start `python -m MODULE ARGS --handshake <frontend>`; stderr is a pipe. What still runs at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(module: str, *args: object, handshake: str = frontend.handshake_address) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", module, *map(str, args), "--handshake", handshake]
        process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Folder of a random model, made once per (architecture, options): `tiny_model("llama", num_hidden_layers=3)`."""
    made: dict[Any, Path] = {}

    def make(kind: str, **options: Any) -> Path:
        from tests.engine.tiny import save_tiny  # noqa: PLC0415 - torch only for those who ask

        key = (kind, repr(sorted(options.items())))
        if key not in made:
            made[key] = save_tiny(kind, tmp_path_factory.mktemp(kind), **options)
        return made[key]

    return make
