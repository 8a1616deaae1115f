"""Which ordinary interpreter carries the engine."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tools.setup.engine_env import choose_engine_python
from tools.setup.run import StepFailed

FakePython = Callable[..., Path]


def environ_with(tmp_path: Path, **more: str) -> dict[str, str]:
    return {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path / "home"), **more}


def gil(fake_python: FakePython, path: str, minor: int, **facts: object) -> Path:
    return fake_python(path, version=(3, minor, 1), free_threaded=False, **facts)


def test_preference_is_by_version_before_place(fake_python: FakePython, tmp_path: Path) -> None:
    gil(fake_python, "bin/python3.11", 11)
    gil(fake_python, "bin/python3.14", 14)
    wanted = gil(fake_python, "home/.pyenv/versions/3.12.1/bin/python", 12)
    assert choose_engine_python(environ_with(tmp_path)) == wanted


def test_shims_that_do_not_run_are_passed_over(fake_python: FakePython, tmp_path: Path) -> None:
    gil(fake_python, "bin/python3.12", 12, status=127)
    wanted = gil(fake_python, "bin/python3.11", 11)
    assert choose_engine_python(environ_with(tmp_path)) == wanted


def test_free_threaded_builds_are_passed_over(fake_python: FakePython, tmp_path: Path) -> None:
    fake_python("bin/python3.13")
    assert choose_engine_python(environ_with(tmp_path)) is None


@pytest.mark.parametrize(
    ("version", "free_threaded", "reason"),
    [((3, 10, 4), False, "older than 3.11"), ((3, 13, 5), True, "is a free-threaded build")],
)
def test_asked_one_is_taken_or_refused(
    fake_python: FakePython, tmp_path: Path, version: tuple[int, int, int], free_threaded: bool, reason: str
) -> None:
    gil(fake_python, "bin/python3.12", 12)
    asked = fake_python("asked", version=version, free_threaded=free_threaded)
    with pytest.raises(StepFailed, match=reason):
        choose_engine_python(environ_with(tmp_path, FASTFRONT_ENGINE_PYTHON=str(asked)))
    good = gil(fake_python, "good", 11)
    assert choose_engine_python(environ_with(tmp_path, FASTFRONT_ENGINE_PYTHON=str(good))) == good
