"""`fastfront bench`: benchmarks of frontends side by side. They are part of the repository, not of the package."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

import fastfront
from fastfront.errors import SetupError


def add_arguments(parser: ArgumentParser) -> None:
    """The words are the benchmarks' own."""
    parser.add_argument("words", nargs="*", metavar="...", help="list, run, report: see `fastfront bench --help`")


def parse(words: Sequence[str], parser: ArgumentParser) -> Namespace:
    """All words are handed on as they are."""
    return Namespace(words=list(words))


def run(args: Namespace, parser: ArgumentParser) -> int:
    """Become the benchmarks' driver in the engine environment. Raises SetupError where there is none."""
    root = Path(fastfront.__file__).resolve().parents[1]
    python = root / ".venv-engine" / "bin" / "python"
    if not (root / "bench" / "__main__.py").is_file():
        raise SetupError(f"bench: there is no bench/ beside the package in {root}: benchmarks run in a clone of the repository")
    if not os.access(python, os.X_OK):
        raise SetupError(f"bench: {python} is missing: run `make setup`")
    path = os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH"))))
    os.execve(python, [str(python), "-m", "bench", *args.words], {**os.environ, "PYTHONPATH": path})
