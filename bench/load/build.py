"""The generator's program, compiled when its sources have changed."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

from bench.load.options import LoadError
from tools.setup import machine

SOURCES = Path(__file__).parent / "native"
ROOT = Path(__file__).resolve().parents[2]
FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-pthread")


def compiler() -> str:
    """$CC, cc or gcc. Raises LoadError if there is none."""
    found = machine.compiler()
    if found is not None:
        return found
    raise LoadError("the load generator needs a C compiler (cc): install gcc or clang, or name one in $CC")


def program(folder: Path = ROOT / "build" / "load") -> Path:
    """The program for these sources, built into `folder` if it is not there. Raises LoadError with the compiler's words."""
    digest = hashlib.sha256("\0".join(FLAGS).encode())
    for source in sorted(SOURCES.glob("*.[ch]")):
        digest.update(source.name.encode() + source.read_bytes())
    path = folder / f"load-{digest.hexdigest()[:16]}"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / f"{path.name}.{os.getpid()}"
    sources = sorted(str(source) for source in SOURCES.glob("*.c"))
    argv = [compiler(), *FLAGS, "-o", str(unfinished), *sources, "-lm"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        unfinished.unlink(missing_ok=True)
        raise LoadError(f"the load generator does not compile:\n{done.stderr}")
    # Two builders at once: both put the same in place.
    unfinished.rename(path)
    return path
