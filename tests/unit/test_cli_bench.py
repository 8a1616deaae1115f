"""`fastfront bench` hands its words to the benchmarks of the clone, or says that there are none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import fastfront
from fastfront.cli.main import main


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that the package seems to lie in."""
    monkeypatch.setattr(fastfront, "__file__", str(tmp_path / "fastfront" / "__init__.py"))
    return tmp_path


def test_package_without_clone_says_so(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "run"]) == 1
    assert f"there is no bench/ beside the package in {root}" in capsys.readouterr().err


def test_missing_engine_environment_is_named(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "bench").mkdir()
    (root / "bench" / "__main__.py").touch()
    assert main(["bench"]) == 1
    assert ".venv-engine/bin/python is missing: run `make setup`" in capsys.readouterr().err


def test_all_words_are_handed_on(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "bench").mkdir()
    (root / "bench" / "__main__.py").touch()
    python = root / ".venv-engine" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch(0o755)
    seen: list[object] = []

    def become(path: Path, argv: list[str], env: dict[str, str]) -> None:
        seen.extend([path, argv, env["PYTHONPATH"].split(os.pathsep)[0]])
        raise SystemExit(0)

    monkeypatch.setattr(os, "execve", become)
    with pytest.raises(SystemExit):
        main(["bench", "run", "--quick", "--peers", "floor,fastfront", "--help"])
    words = ["run", "--quick", "--peers", "floor,fastfront", "--help"]
    assert seen == [python, [str(python), "-m", "bench", *words], str(root)]
