"""The free-threaded interpreter of the frontend: which one, and where it comes from."""

from __future__ import annotations

import glob
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.setup.cpython import Flavour, build_cpython, built_pythons
from tools.setup.debian import ADVICE
from tools.setup.plan import Context
from tools.setup.run import StepFailed, output_of
from tools.setup.uv import uv_command

VERSION = "3.13t"
_UV_TIMEOUT_S = 300.0
_PROBE = """
import json, sys, sysconfig
missing = []
for name in ("ssl", "ctypes", "zlib"):
    try:
        __import__(name)
    except ImportError:
        missing.append(name)
print(json.dumps({
    "version": list(sys.version_info[:3]),
    "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    "missing": missing,
    "tag": sys.implementation.cache_tag + sys.abiflags,
}))
"""


@dataclass(frozen=True)
class Found:
    """An interpreter that was asked about itself."""

    path: Path
    version: tuple[int, int, int]
    free_threaded: bool
    missing: tuple[str, ...]
    tag: str

    def problem(self) -> str | None:
        """Why the frontend cannot run on it, or None."""
        if not self.free_threaded:
            return f"{self.path} is not a free-threaded build"
        if self.version < (3, 13):
            return f"{self.path} is older than 3.13"
        if self.missing:
            return f"{self.path} was built without {', '.join(self.missing)}"
        return None


def probe(path: Path) -> Found | None:
    """What the interpreter at `path` is; None when it does not run."""
    answer = output_of([str(path), "-I", "-c", _PROBE])
    if answer is None:
        return None
    try:
        told = json.loads(answer.splitlines()[-1])
        major, minor, micro = told["version"]
        return Found(path, (major, minor, micro), told["free_threaded"], tuple(told["missing"]), told["tag"])
    except (ValueError, KeyError, IndexError):
        return None


def installed_candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    """Free-threaded 3.13 interpreters that may be on this machine: on PATH, then pyenv's, newest first."""
    on_path = shutil.which("python3.13t", path=environ.get("PATH"))
    if on_path:
        yield Path(on_path)
    root = environ.get("PYENV_ROOT") or os.path.join(environ.get("HOME", "/nonexistent"), ".pyenv")
    folders = glob.glob(os.path.join(glob.escape(root), "versions", "3.13*t"))
    for folder in sorted(folders, key=_version_key, reverse=True):
        yield Path(folder) / "bin" / "python3.13t"


def _version_key(folder: str) -> tuple[int, ...]:
    digits = os.path.basename(folder).rstrip("t").split("-")[0].split(".")
    return tuple(int(part) for part in digits if part.isdigit())


def choose_installed(environ: Mapping[str, str]) -> Found | None:
    """The interpreter to use among those already there, or None when one has to be got.

    `FASTFRONT_PYTHON` is taken or refused (`StepFailed`), never passed over.
    """
    asked = environ.get("FASTFRONT_PYTHON")
    if asked:
        found = probe(Path(asked))
        problem = f"{asked} does not run" if found is None else found.problem()
        if problem is not None:
            raise StepFailed(f"FASTFRONT_PYTHON: {problem}", "Point it at a free-threaded CPython 3.13, or unset it.")
        return found
    for path in installed_candidates(environ):
        found = probe(path)
        if found is not None and found.problem() is None:
            return found
    return None


def _record_path(context: Context) -> Path:
    return context.paths.root / ".fastfront" / "python.json"


def _wish(context: Context) -> dict[str, str]:
    """The variables that decide the choice: when one changes, the choice is made anew."""
    flavour = Flavour.from_environ(context.environ)
    cache = str(context.paths.cache)
    return {"FASTFRONT_PYTHON": context.environ.get("FASTFRONT_PYTHON", ""), "flavour": flavour.name, "cache": cache}


def interpreter_ready(context: Context) -> bool:
    """Whether a choice is on record, still there and still wanted."""
    try:
        record = json.loads(_record_path(context).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return bool(record.get("wish") == _wish(context)) and os.access(record["path"], os.X_OK)


def interpreter(context: Context) -> Path:
    """The interpreter on record; the interpreter step comes first."""
    return Path(json.loads(_record_path(context).read_text(encoding="utf-8"))["path"])


def at_hand(context: Context) -> Found | None:
    """The interpreter that would be chosen without getting one: installed, or built before."""
    return choose_installed(context.environ) or _built(context)


def make_interpreter(context: Context) -> None:
    """Find, download or build the interpreter, in this order, and put the choice on record."""
    found = at_hand(context) or _from_uv(context) or _build(context)
    context.console.note(f"using {found.path} ({'.'.join(map(str, found.version))}, free-threaded)")
    record = _record_path(context)
    record.parent.mkdir(exist_ok=True)
    record.write_text(json.dumps({"path": str(found.path), "wish": _wish(context)}) + "\n", encoding="utf-8")


def _built(context: Context) -> Found | None:
    for path in built_pythons(context.paths.pythons, Flavour.from_environ(context.environ)):
        found = probe(path)
        if found is not None and found.problem() is None:
            return found
    return None


def _from_uv(context: Context) -> Found | None:
    """uv's build, downloaded if need be; None where its download does not work."""
    console = context.console
    if Flavour.from_environ(context.environ).asked:
        console.note("FASTFRONT_PGO or FASTFRONT_LTO is set: building instead of downloading")
        return None
    console.note(f"no free-threaded Python here; trying `uv python install {VERSION}`")
    try:
        context.run(uv_command(context, ["python", "install", VERSION], ADVICE, _UV_TIMEOUT_S))
        path = context.run(uv_command(context, ["python", "find", "--managed-python", VERSION], ADVICE)).strip()
    except StepFailed as error:
        console.note(f"that did not work ({_reason(error)}); building from source instead")
        return None
    found = probe(Path(path.splitlines()[-1]))
    return found if found is not None and found.problem() is None else None


def _reason(error: StepFailed) -> str:
    """The innermost cause that uv gave."""
    if error.log is None or not error.log.exists():
        return error.what
    lines = [line.strip() for line in error.log.read_text(encoding="utf-8", errors="replace").splitlines()]
    return next((line for line in reversed(lines) if line), error.what)[:160]


def _build(context: Context) -> Found:
    path = build_cpython(context, Flavour.from_environ(context.environ))
    found = probe(path)
    problem = f"{path} does not run" if found is None else found.problem()
    if found is None or problem is not None:
        raise StepFailed(f"the interpreter just built cannot be used: {problem}", ADVICE)
    return found
