"""`python3 -m tools.checks [part...] [-- pytest arguments]`: lint, types and tests, with one summary.

Tests of the engine run in the engine environment, all others in the frontend's. Every part runs, whatever the
others say; a failing one fails the whole.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ENGINE_TESTS = ("tests/engine", "tests/interop", "tests/bench")
# Benchmarks that run in the frontend's environment; the others drive servers from the engine's.
IN_FRONTEND = ("bench/native.py", "bench/step.py", "bench/prepare.py", "bench/peers/with_gil.py")
_NO_TESTS_COLLECTED = 5


@dataclass(frozen=True)
class Part:
    """One check: its name and its command. `is_pytest` says that further pytest arguments apply to it."""

    name: str
    argv: tuple[str, ...]
    is_pytest: bool = False


@dataclass(frozen=True)
class Result:
    name: str
    ok: bool
    elapsed_s: float


def packages(root: Path, names: Sequence[str]) -> tuple[str, ...]:
    """Those of the packages that exist."""
    return tuple(name for name in names if (root / name / "__init__.py").exists())


def parts(root: Path) -> list[Part]:
    """Every check of the project. ruff and mypy run from the engine environment for both sides."""
    frontend, engine = f"{root}/.venv/bin/python", f"{root}/.venv-engine/bin/python"
    mypy = (engine, "-m", "mypy")
    engine_tests = [folder for folder in ENGINE_TESTS if (root / folder).is_dir()]
    ignores = [f"--ignore={folder}" for folder in ENGINE_TESTS]
    excluded = ("--exclude", "^({})$".format("|".join(map(re.escape, IN_FRONTEND))))
    found = [
        Part("lint", (engine, "-m", "ruff", "check", ".")),
        Part(
            "types: frontend",
            (*mypy, "--python-executable", frontend, *packages(root, ("fastfront", "tools")), *IN_FRONTEND),
        ),
        Part(
            "types: engine",
            (*mypy, "--python-executable", engine, *excluded, *packages(root, ("engine", "bench"))),
        ),
        Part("tests: frontend", (frontend, "-m", "pytest", "tests", *ignores), True),
    ]
    if engine_tests:
        found.append(Part("tests: engine", (engine, "-m", "pytest", *engine_tests), True))
    return found


def run_part(part: Part, extra: Sequence[str]) -> Result:
    """Run one check in the project's root; a pytest run that selects nothing counts as good if it was narrowed."""
    began = time.monotonic()
    argv = [*part.argv, *(extra if part.is_pytest else ())]
    print(f"== {part.name}: {' '.join(argv)}".replace(f"{ROOT}/", ""), flush=True)
    # PYTHON_GIL would hide an import that turns the GIL on.
    env = {name: value for name, value in os.environ.items() if name != "PYTHON_GIL"}
    status = subprocess.run(argv, cwd=ROOT, env=env, check=False).returncode
    ok = status == 0 or (bool(extra) and part.is_pytest and status == _NO_TESTS_COLLECTED)
    return Result(part.name, ok, time.monotonic() - began)


def main(argv: Sequence[str]) -> int:
    """Exit status 0 when every chosen part passed. Parts are chosen by the beginning of their names; none means all."""
    cut = argv.index("--") if "--" in argv else len(argv)
    wanted, extra = tuple(argv[:cut]), argv[cut + 1 :]
    chosen = [part for part in parts(ROOT) if not wanted or part.name.startswith(wanted)]
    if not chosen:
        print(f"no part is called {' or '.join(wanted)}", file=sys.stderr)
        return 2
    results = [run_part(part, extra) for part in chosen]
    print("== summary")
    for result in results:
        print(f"{'ok    ' if result.ok else 'FAILED'}  {result.elapsed_s:7.1f} s  {result.name}")
    return 0 if all(result.ok for result in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
