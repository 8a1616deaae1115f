"""The engine's CPU kernels, compiled into the tree: one library per level of processor."""

from __future__ import annotations

import platform
import shutil
from pathlib import Path

from tools.setup.machine import compiler, ensure_compiler
from tools.setup.plan import Context
from tools.setup.run import Command, StepFailed
from tools.setup.stamps import digest, is_current, record

FLAGS = ("-std=gnu11", "-O3", "-ffp-contract=fast", "-fno-math-errno", "-Wno-psabi", "-fPIC", "-shared", "-pthread")
_ADVICE = "See the compiler's message in the log; GCC 11 or newer is needed for all levels."


def levels() -> dict[str, tuple[str, ...]]:
    """Compiler flags by level, as `engine.native.library.level` names what a processor can do."""
    if platform.machine() != "x86_64":
        return {"native": ("-mcpu=native",)}
    return {"x86-64-v4": ("-march=x86-64-v4", "-mprefer-vector-width=512"), "x86-64-v3": ("-march=x86-64-v3",)}


def _sources(context: Context) -> list[Path]:
    folder = context.paths.root / "engine" / "native"
    return sorted([*folder.glob("*.c"), *folder.glob("*.h")])


def _library(context: Context, level: str) -> Path:
    return context.paths.root / "engine" / "native" / "lib" / f"kernels-{level}.so"


def _stamp(context: Context) -> tuple[Path, str]:
    values = {"compiler": compiler() or "", "flags": " ".join(FLAGS), "levels": repr(levels())}
    return context.paths.root / ".fastfront" / "kernels.stamp", digest(values, _sources(context))


def kernels_ready(context: Context) -> bool:
    """Whether the libraries were built from the current sources, or could not be."""
    return is_current(*_stamp(context))


def make_kernels(context: Context) -> None:
    """Compile every level. One that this compiler does not know is left out, and said: engines run without, slower."""
    ensure_compiler(context)
    stamp, inputs = _stamp(context)
    cc = compiler()
    assert cc is not None
    sources = [str(path) for path in _sources(context) if path.suffix == ".c"]
    for level, flags in levels().items():
        library = _library(context, level)
        scratch = library.with_suffix(".building")
        library.parent.mkdir(parents=True, exist_ok=True)
        context.console.note(f"compiling for {level}")
        try:
            context.run(Command([cc, *FLAGS, *flags, "-o", str(scratch), *sources, "-lm"], _ADVICE))
        except StepFailed as error:
            context.console.note(f"not built for {level}, engines will be slower: {error.what}")
            library.unlink(missing_ok=True)
        else:
            # A new file, not new content of the old one, which an engine may have mapped.
            shutil.move(scratch, library)
    record(stamp, inputs)
