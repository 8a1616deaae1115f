"""Fakes for set-up tests: interpreters that answer as told, and a context on temporary folders."""

import io
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.setup.console import Console
from tools.setup.paths import Paths
from tools.setup.plan import Context

FakePython = Callable[..., Path]


@pytest.fixture
def fake_python(tmp_path: Path) -> FakePython:
    """Makes an executable that answers the probe with the given facts."""

    def make(
        path: str,
        version: tuple[int, int, int] = (3, 13, 5),
        free_threaded: bool = True,
        missing: tuple[str, ...] = (),
        status: int = 0,
    ) -> Path:
        tag = f"cpython-{version[0]}{version[1]}" + ("t" if free_threaded else "")
        answer = {"version": version, "free_threaded": free_threaded, "missing": missing, "tag": tag}
        target = tmp_path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(answer)}\nEND\nexit {status}\n")
        target.chmod(0o755)
        return target

    return make


@pytest.fixture
def context(tmp_path: Path) -> Context:
    """A context whose clone and cache are empty temporary folders; what it prints is kept in memory."""
    root, cache = tmp_path / "clone", tmp_path / "cache"
    root.mkdir()
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home"), "FASTFRONT_CACHE": str(cache)}
    return Context(Paths(root, cache), environ, Console(io.StringIO()))
