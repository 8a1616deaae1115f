"""The native parts of the load generator, loaded into the test process."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest

from bench.load.build import SOURCES, compiler


@pytest.fixture(scope="session")
def probe(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """`probe.c` with the generator's own sources."""
    library = tmp_path_factory.mktemp("probe") / "probe.so"
    sources = [Path(__file__).parent / "probe.c", SOURCES / "response.c", SOURCES / "answer.c"]
    flags = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", f"-I{SOURCES}"]
    subprocess.run([compiler(), *flags, "-o", str(library), *map(str, sources)], check=True)
    return ctypes.CDLL(str(library))
