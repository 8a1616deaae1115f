"""The native modules keep to what ordinary CPython has from 3.11 on."""

from __future__ import annotations

import re
import subprocess
import sysconfig
from pathlib import Path

import pytest

from tools.setup.machine import compiler

ROOT = Path(__file__).resolve().parents[2]
ENGINE_PYTHON = ROOT / ".venv-engine" / "bin" / "python"
BLOCK = re.compile(r'^cdef extern from "Python\.h".*:\n((?:[ \t]+.*\n|\n)+)', re.M)
FUNCTION = re.compile(r"\b(_?Py\w+)\s*\(")


def declared() -> set[str]:
    """Functions and macros of Python's that the modules declare."""
    folder = ROOT / "fastfront" / "_speedups"
    texts = [path.read_text() for pattern in ("*.pyx", "*.pxd") for path in folder.glob(pattern)]
    return {name for text in texts for block in BLOCK.findall(text) for name in FUNCTION.findall(block)}


def unknown_to(names: set[str], include: str) -> str:
    """What the compiler says against these names with Python's headers in that folder."""
    uses = "\n".join(f"#ifndef {name}\n(void){name};\n#endif" for name in sorted(names))
    cc = compiler()
    assert cc is not None
    program = f"#include <Python.h>\nvoid use(void) {{\n{uses}\n}}\n"
    command = [cc, "-fsyntax-only", "-w", f"-I{include}", "-xc", "-"]
    done = subprocess.run(command, input=program, capture_output=True, text=True, check=False)
    return done.stderr


def test_names_are_those_of_the_engines_interpreter_too() -> None:
    """An interpreter with a GIL, older than this one: extensions would load here only."""
    ask = "import sysconfig; print(sysconfig.get_path('include'))"
    include = subprocess.run([ENGINE_PYTHON, "-c", ask], capture_output=True, text=True, check=True).stdout.strip()
    if not (Path(include) / "Python.h").exists():
        pytest.skip("the engine's interpreter came without its headers")
    names = declared()
    assert len(names) > 10
    assert unknown_to(names, include) == ""


def test_the_compiler_tells_a_name_that_there_is_not() -> None:
    assert "PyDict_NoSuch" in unknown_to({"PyDict_NoSuch"}, sysconfig.get_path("include"))
