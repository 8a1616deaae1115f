"""Which free-threaded interpreter is taken: the asked one or a failure, else PATH, else the newest of pyenv."""

import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.setup.cpython import Flavour, built_pythons
from tools.setup.interpreter import choose_installed, interpreter, interpreter_ready, make_interpreter, probe
from tools.setup.plan import Context
from tools.setup.run import StepFailed

FakePython = Callable[..., Path]


def environ_with(tmp_path: Path, **more: str) -> dict[str, str]:
    return {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path / "home"), **more}


def test_probe_reports_what_the_interpreter_says(fake_python: FakePython) -> None:
    found = probe(fake_python("bin/python3.13t", version=(3, 13, 2), missing=("ssl",)))
    assert found is not None
    assert (found.version, found.free_threaded, found.missing) == ((3, 13, 2), True, ("ssl",))


def test_probe_of_something_that_does_not_run_is_none(fake_python: FakePython, tmp_path: Path) -> None:
    assert probe(tmp_path / "absent") is None
    assert probe(fake_python("bin/broken", status=1)) is None


def test_probe_of_this_interpreter_names_its_build() -> None:

    found = probe(Path(sys.executable))
    assert found is not None
    assert found.version == sys.version_info[:3]
    assert found.free_threaded == bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def test_asked_interpreter_wins_over_path(fake_python: FakePython, tmp_path: Path) -> None:
    fake_python("bin/python3.13t")
    asked = fake_python("elsewhere/python")
    found = choose_installed(environ_with(tmp_path, FASTFRONT_PYTHON=str(asked)))
    assert found is not None
    assert found.path == asked


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"free_threaded": False}, "not a free-threaded build"),
        ({"version": (3, 12, 9)}, "older than 3.13"),
        ({"missing": ("ssl", "zlib")}, "without ssl, zlib"),
        ({"status": 3}, "does not run"),
    ],
)
def test_asked_interpreter_that_will_not_do_is_refused_not_passed_over(
    fake_python: FakePython, tmp_path: Path, facts: dict[str, object], reason: str
) -> None:
    fake_python("bin/python3.13t")
    asked = fake_python("elsewhere/python", **facts)
    with pytest.raises(StepFailed, match=reason):
        choose_installed(environ_with(tmp_path, FASTFRONT_PYTHON=str(asked)))


def test_path_comes_before_pyenv(fake_python: FakePython, tmp_path: Path) -> None:
    on_path = fake_python("bin/python3.13t")
    fake_python("home/.pyenv/versions/3.13.9t/bin/python3.13t")
    found = choose_installed(environ_with(tmp_path))
    assert found is not None
    assert found.path == on_path


def test_newest_of_pyenv_is_taken_by_number_not_by_letters(fake_python: FakePython, tmp_path: Path) -> None:
    for version in ("3.13.2t", "3.13.10t", "3.13.9t"):
        fake_python(f"home/.pyenv/versions/{version}/bin/python3.13t")
    found = choose_installed(environ_with(tmp_path))
    assert found is not None
    assert "3.13.10t" in str(found.path)


def test_useless_ones_on_path_are_passed_over(fake_python: FakePython, tmp_path: Path) -> None:
    fake_python("bin/python3.13t", missing=("ctypes",))
    good = fake_python("home/.pyenv/versions/3.13.1t/bin/python3.13t")
    found = choose_installed(environ_with(tmp_path))
    assert found is not None
    assert found.path == good


def test_none_installed(tmp_path: Path) -> None:
    assert choose_installed(environ_with(tmp_path)) is None


def test_choice_is_recorded_and_made_anew_when_the_wish_changes(fake_python: FakePython, context: Context) -> None:
    asked = fake_python("elsewhere/python")
    context.environ["FASTFRONT_PYTHON"] = str(asked)
    assert not interpreter_ready(context)
    make_interpreter(context)
    assert interpreter_ready(context)
    assert interpreter(context) == asked
    other = fake_python("other/python")
    context.environ["FASTFRONT_PYTHON"] = str(other)
    assert not interpreter_ready(context)
    make_interpreter(context)
    assert interpreter(context) == other
    other.unlink()
    assert not interpreter_ready(context)


def test_interpreter_built_earlier_is_reused(
    fake_python: FakePython, context: Context
) -> None:
    context.environ["PATH"] = "/nonexistent"
    built = fake_python("cache/python/cpython-3.13.5-2t-pgo/bin/python3.13t")
    make_interpreter(context)
    assert interpreter(context) == built


@pytest.mark.parametrize(
    ("environ", "name", "asked"),
    [
        ({}, "pgo", False),
        ({"FASTFRONT_PGO": "0"}, "plain", False),
        ({"FASTFRONT_PGO": "1", "FASTFRONT_LTO": "1"}, "pgo-lto", True),
        ({"FASTFRONT_PGO": "0", "FASTFRONT_LTO": "1"}, "lto", True),
    ],
)
def test_flavour_of_a_build(environ: dict[str, str], name: str, asked: bool) -> None:
    flavour = Flavour.from_environ(environ)
    assert (flavour.name, flavour.asked) == (name, asked)


def test_builds_of_another_flavour_do_not_count(fake_python: FakePython, tmp_path: Path) -> None:
    plain = fake_python("python/cpython-3.13.5-2t-plain/bin/python3.13t")
    fake_python("python/cpython-3.13.5-2t-pgo-lto/bin/python3.13t")
    flavour = Flavour.from_environ({"FASTFRONT_PGO": "0"})
    assert list(built_pythons(tmp_path / "python", flavour)) == [plain]
