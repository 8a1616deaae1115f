"""Builds every Cython module of `fastfront/_speedups`; all other project data is in pyproject.toml.

Environment variables read here:
  FASTFRONT_CHECKS=1   compile the extra internal checks in (macro FASTFRONT_CHECKS)
  FASTFRONT_CFLAGS     further compiler flags, for instance `-march=native`
  FASTFRONT_SKIP_EXTENSIONS=1   install without them (set-up builds them in place, in a step of its own)
"""

import os
import shlex
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

SPEEDUPS = Path("fastfront/_speedups")
PARSER = SPEEDUPS / "vendor" / "llhttp"  # C sources of the HTTP parser, as its authors generate them


def extensions() -> list[Extension]:
    """One extension per .pyx file, named by its place in the package."""
    if os.environ.get("FASTFRONT_SKIP_EXTENSIONS") == "1":
        return []
    checks = os.environ.get("FASTFRONT_CHECKS") == "1"
    flags = ["-O3", "-fno-semantic-interposition", *shlex.split(os.environ.get("FASTFRONT_CFLAGS", ""))]
    return [
        Extension(
            ".".join(source.with_suffix("").parts),
            [str(source), *(map(str, sorted(PARSER.glob("*.c"))) if source.stem == "http_message" else ())],
            include_dirs=[str(SPEEDUPS)],
            extra_compile_args=flags,
            define_macros=[("FASTFRONT_CHECKS", "1")] if checks else [],
            depends=sorted(str(path) for path in SPEEDUPS.glob("*.h")),
        )
        for source in sorted(SPEEDUPS.glob("*.pyx"))
    ]


# Whether a module is freethreading_compatible is said in the module itself, once its stress tests exist.
setup(ext_modules=cythonize(extensions(), build_dir="build/cython", language_level=3, nthreads=0))
