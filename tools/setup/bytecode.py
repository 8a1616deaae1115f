"""Bytecode of the project's own packages, so that starts are quick also where Python may not write it itself."""

from __future__ import annotations

from pathlib import Path

from tools.setup.plan import Context
from tools.setup.run import Command
from tools.setup.stamps import digest, is_current, record


def _packages(context: Context) -> tuple[tuple[Path, str], ...]:
    """Each environment's interpreter with the package that it runs."""
    paths = context.paths
    return (paths.venv / "bin" / "python", "fastfront"), (paths.engine_venv / "bin" / "python", "engine")


def _stamp(context: Context) -> tuple[Path, str]:
    root = context.paths.root
    state = {
        str(path.relative_to(root)): str(path.stat().st_mtime_ns)
        for _, package in _packages(context)
        for path in (root / package).rglob("*.py")
    }
    pythons = {str(python): str(python.resolve()) for python, _ in _packages(context)}
    return root / ".fastfront" / "bytecode.stamp", digest({**state, **pythons})


def bytecode_ready(context: Context) -> bool:
    """Whether no source changed since the last time."""
    return is_current(*_stamp(context))


def make_bytecode(context: Context) -> None:
    """Compile what changed."""
    stamp, inputs = _stamp(context)
    for python, package in _packages(context):
        compile_all = [str(python), "-m", "compileall", "-q", package]
        advice = "Mend the file named in the log."
        context.run(Command(compile_all, advice, cwd=context.paths.root))
    record(stamp, inputs)
