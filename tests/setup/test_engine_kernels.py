"""The step that compiles the engine's CPU kernels."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from tools.setup.console import Console
from tools.setup.engine_kernels import kernels_ready, levels, make_kernels
from tools.setup.paths import Paths
from tools.setup.plan import Context


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    """A clone with one source, and a compiler that writes what it was asked into its output; told to, it fails for one level."""
    native = tmp_path / "clone" / "engine" / "native"
    native.mkdir(parents=True)
    (native / "one.c").write_text("int one;\n")
    compiler = tmp_path / "cc"
    compiler.write_text(
        '#!/bin/sh\nwhile [ $# -gt 0 ]; do\n  case "$1" in -o) out=$2;; -m*) flag=$1;; esac\n  shift\ndone\n'
        '[ "$flag" = "$REFUSED" ] && exit 1\necho "$flag" > "$out"\n'
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    monkeypatch.setenv("REFUSED", "-none")
    return Context(Paths(tmp_path / "clone", tmp_path / "cache"), dict(os.environ), Console(io.StringIO()))


def built(context: Context) -> list[str]:
    return sorted(path.name for path in (context.paths.root / "engine" / "native" / "lib").iterdir())


def test_every_level_is_built_once(context: Context) -> None:
    assert not kernels_ready(context)
    make_kernels(context)
    assert built(context) == sorted(f"kernels-{level}.so" for level in levels())
    assert kernels_ready(context)
    (context.paths.root / "engine" / "native" / "one.c").write_text("int two;\n")
    assert not kernels_ready(context)


def test_a_level_that_the_compiler_does_not_know_is_left_out(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    first = next(iter(levels()))
    make_kernels(context)
    monkeypatch.setenv("REFUSED", next(flag for flag in reversed(levels()[first]) if flag.startswith("-m")))
    make_kernels(context)
    assert built(context) == sorted(f"kernels-{level}.so" for level in levels() if level != first)
    assert kernels_ready(context)
