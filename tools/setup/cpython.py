"""Building free-threaded CPython from Debian's source package."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.setup.debian import ADVICE, fetch_source, unpack
from tools.setup.machine import ensure_compiler, ensure_headers
from tools.setup.plan import Context
from tools.setup.run import Command

_CONFIGURE = ("--disable-gil", "--without-ensurepip", "--disable-test-modules")


@dataclass(frozen=True)
class Flavour:
    """How the interpreter is optimised. `asked` tells whether a variable demanded it."""

    pgo: bool
    lto: bool
    asked: bool

    @staticmethod
    def from_environ(environ: Mapping[str, str]) -> Flavour:
        """FASTFRONT_PGO and FASTFRONT_LTO, each 0 or 1. Unset: PGO (two minutes more), no LTO (many more)."""
        pgo, lto = environ.get("FASTFRONT_PGO", ""), environ.get("FASTFRONT_LTO", "")
        return Flavour(pgo != "0", lto == "1", "1" in (pgo, lto))

    @property
    def name(self) -> str:
        parts = [name for name, on in (("pgo", self.pgo), ("lto", self.lto)) if on]
        return "-".join(parts) or "plain"


def built_pythons(folder: Path, flavour: Flavour) -> Iterator[Path]:
    """Interpreters built here earlier, newest version first."""
    for install in sorted(folder.glob(f"cpython-*t-{flavour.name}"), reverse=True):
        yield from install.glob("bin/python3.*t")


def build_cpython(context: Context, flavour: Flavour) -> Path:
    """Build and install into the cache; returns the interpreter's path.

    The installation appears under its name only when it is complete. Scratch folders are removed on success.
    """
    ensure_compiler(context)
    ensure_headers(context)
    scratch = context.paths.build / "cpython"
    shutil.rmtree(scratch, ignore_errors=True)
    package = fetch_source(context, scratch)
    source = unpack(package, scratch, context)
    prefix = context.paths.pythons / f"cpython-{package.version}t-{flavour.name}"
    jobs = os.cpu_count() or 1
    what = f"CPython {package.version} ({flavour.name})"
    context.console.note(f"building {what} with {jobs} jobs, about {_guess(flavour)}")

    options = [*_CONFIGURE, f"--prefix={prefix}"]
    options += ["--enable-optimizations"] if flavour.pgo else []
    options += ["--with-lto"] if flavour.lto else []
    context.log_name = "cpython-configure"
    context.run(Command(["./configure", *options], ADVICE, cwd=source, describe=lambda line: f"configure: {line}"))

    context.log_name = "cpython-make"
    training = context.paths.root / "tools" / "pgo_train.py"
    make = ["make", f"-j{jobs}", *([f"PROFILE_TASK={training}"] if flavour.pgo else [])]
    context.run(Command(make, ADVICE, cwd=source, describe=_compiled()))

    context.log_name = "cpython-install"
    staging = scratch / "staging"
    install = ["make", "install", f"DESTDIR={staging}"]
    context.run(Command(install, ADVICE, cwd=source, describe=lambda line: "installing" if line else None))
    shutil.rmtree(prefix, ignore_errors=True)
    prefix.parent.mkdir(parents=True, exist_ok=True)
    (staging / prefix.relative_to("/")).rename(prefix)
    shutil.rmtree(scratch, ignore_errors=True)
    return next(prefix.glob("bin/python3.*t"))


def _guess(flavour: Flavour) -> str:
    minutes = {"plain": 2, "pgo": 4, "lto": 8, "pgo-lto": 17}
    return f"{minutes[flavour.name]} minutes on two cores"


def _compiled() -> Callable[[str], str | None]:
    """Progress of a make run: the number of files compiled so far and the newest one."""
    count = 0

    def describe(line: str) -> str | None:
        nonlocal count
        words = line.split()
        if " -c " not in line or not words or not words[-1].endswith((".c", ".S")):
            return None
        count += 1
        return f"{count} files compiled, now {words[-1]}"

    return describe
