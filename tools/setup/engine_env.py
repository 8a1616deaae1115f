"""The engine environment: ordinary CPython with torch and what engine-side tests need."""

from __future__ import annotations

import glob
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

from tools.setup.interpreter import Found, probe
from tools.setup.plan import Context
from tools.setup.run import Command, StepFailed, output_of
from tools.setup.stamps import digest, is_current, record
from tools.setup.uv import uv_command

_TORCH_INDEX = "https://download.pytorch.org/whl/cpu/"
_PROBE_S = 4.0
_FILES = ("engine.txt", "engine-dev.txt")
# Newest well-supported first; 3.14 last, because wheels for it come late.
_VERSIONS = ("3.12", "3.13", "3.11", "3.14")
_ADVICE = "Check that the package index can be reached (pip's or uv's settings are used), then run this again."
_FIRST_IMPORT = (
    "import gguf, msgspec, orjson, safetensors.torch, setproctitle, torch, zmq; "
    "from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM"
)
_IMPORT_ADVICE = "The installed packages do not work together: delete .venv-engine, then run this again."
_PYTHON_ADVICE = (
    "Install an ordinary CPython 3.11 to 3.14 with its venv support, or name one by FASTFRONT_ENGINE_PYTHON, then run this again."
)


def candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    """Interpreters that may be here, in the order of preference: by version, on PATH before pyenv's."""
    folders = [folder for folder in environ.get("PATH", "").split(os.pathsep) if folder]
    root = environ.get("PYENV_ROOT") or os.path.join(environ.get("HOME", "/nonexistent"), ".pyenv")
    for version in _VERSIONS:
        for folder in folders:
            path = Path(folder) / f"python{version}"
            if path.exists():
                yield path
        for path_text in sorted(glob.glob(os.path.join(glob.escape(root), "versions", f"{version}*", "bin", "python"))):
            yield Path(path_text)


def problem_of(found: Found | None) -> str | None:
    """Why an interpreter cannot carry the engine, or None."""
    if found is None:
        return "does not run"
    if found.free_threaded:
        return "is a free-threaded build"
    if found.version < (3, 11):
        return "is older than 3.11"
    if found.missing:
        return f"was built without {', '.join(found.missing)}"
    return None


def choose_engine_python(environ: Mapping[str, str]) -> Path | None:
    """The interpreter to use, or None when none here will do; FASTFRONT_ENGINE_PYTHON is taken or refused."""
    asked = environ.get("FASTFRONT_ENGINE_PYTHON")
    if asked:
        problem = problem_of(probe(Path(asked)))
        if problem is not None:
            raise StepFailed(f"FASTFRONT_ENGINE_PYTHON: {asked} {problem}", _PYTHON_ADVICE)
        return Path(asked)
    return next((path for path in candidates(environ) if problem_of(probe(path)) is None), None)


def torch_index_problem() -> str | None:
    """Why PyTorch's own index cannot be used, or None when it answers."""
    request = urllib.request.Request(_TORCH_INDEX, method="HEAD")
    try:
        with urllib.request.urlopen(request, timeout=_PROBE_S, context=ssl.create_default_context()):
            return None
    except urllib.error.URLError as error:
        return str(error.reason)
    except OSError as error:
        return str(error)


def _stamp(context: Context) -> tuple[Path, str]:
    values = {"root": str(context.paths.root), "asked": context.environ.get("FASTFRONT_ENGINE_PYTHON", "")}
    inputs = digest(values, [context.paths.requirements / name for name in _FILES])
    return context.paths.engine_venv / "fastfront.stamp", inputs


def engine_env_ready(context: Context) -> bool:
    """Whether .venv-engine was made from the current requirements."""
    return is_current(*_stamp(context)) and (context.paths.engine_venv / "bin" / "python").exists()


def make_engine_env(context: Context) -> None:
    """Make .venv-engine anew, install the requirements and make the clone's packages importable from it."""
    stamp, inputs = _stamp(context)
    console = context.console
    chosen = choose_engine_python(context.environ)
    if chosen is None:
        console.note("no ordinary CPython 3.11 or newer here; asking uv for 3.12")
        context.run(uv_command(context, ["python", "install", "3.12"], _PYTHON_ADVICE, 300))
    venv = str(context.paths.engine_venv)
    console.note(f"interpreter: {chosen or 'uv 3.12'}")
    context.run(uv_command(context, ["venv", "--clear", "--python", str(chosen or "3.12"), venv], _PYTHON_ADVICE))
    problem = torch_index_problem()
    if problem is None:
        backend = ["--torch-backend=auto"]
        console.note("torch: the build that fits this machine (CPU or CUDA), because PyTorch's own index answers")
    else:
        backend = []
        console.note("torch: the ordinary build from the package index, 5 GB on disk,")
        console.note(f"because PyTorch's own index does not answer: {problem}")
    requirements = [flag for name in _FILES for flag in ("-r", str(context.paths.requirements / name))]
    context.run(uv_command(context, ["pip", "install", "--python", venv, *backend, *requirements], _ADVICE))
    site = output_of([f"{venv}/bin/python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"])
    if not site:
        raise StepFailed(f"{venv}/bin/python does not run", _PYTHON_ADVICE)
    (Path(site) / "fastfront_root.pth").write_text(f"{context.paths.root}\n", encoding="utf-8")
    console.note("first import, which compiles what engines load")
    context.log_name = "engine-import"
    # Bytecode is wanted here even where the machine's settings keep Python from writing it: without it every engine
    # start would compile torch and transformers again, about ten seconds.
    env = {"PYTHONDONTWRITEBYTECODE": ""}
    context.run(Command([f"{venv}/bin/python", "-c", _FIRST_IMPORT], _IMPORT_ADVICE, env=env))
    record(stamp, inputs)
