"""The frontend environment and the extension modules built into the tree."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

from tools.setup.interpreter import interpreter
from tools.setup.machine import ensure_compiler
from tools.setup.plan import Context
from tools.setup.run import Command
from tools.setup.stamps import digest, is_current, record
from tools.setup.uv import uv_command

_ADVICE = "Check that the package index can be reached (pip's or uv's settings are used), then run this again."


def _env_stamp(context: Context) -> tuple[Path, str]:
    files = [context.paths.requirements / name for name in ("frontend.txt", "dev.txt")]
    inputs = digest({"python": str(interpreter(context)), "root": str(context.paths.root)}, files)
    return context.paths.venv / "fastfront.stamp", inputs


def frontend_env_ready(context: Context) -> bool:
    """Whether .venv was made from the current requirements and interpreter."""
    return is_current(*_env_stamp(context)) and (context.paths.venv / "bin" / "python").exists()


def make_frontend_env(context: Context) -> None:
    """Make .venv anew and install the requirements."""
    stamp, inputs = _env_stamp(context)
    venv = str(context.paths.venv)
    context.run(uv_command(context, ["venv", "--clear", "--python", str(interpreter(context)), venv], _ADVICE))
    install = ["pip", "install", "--python", venv, "--compile-bytecode", "--find-links", str(context.paths.wheels)]
    files = [str(context.paths.requirements / name) for name in ("frontend.txt", "dev.txt")]
    context.run(uv_command(context, [*install, *(flag for file in files for flag in ("-r", file))], _ADVICE))
    record(stamp, inputs)


def _project_stamp(context: Context) -> tuple[Path, str]:
    files = [context.paths.root / "pyproject.toml", context.paths.root / "setup.py"]
    return context.paths.venv / "fastfront-project.stamp", digest({}, files)


def _extension_stamp(context: Context) -> tuple[Path, str]:
    folder = context.paths.root / "fastfront" / "_speedups"
    sources = [path for pattern in ("*.pyx", "*.pxd", "*.h") for path in folder.glob(pattern)]
    variables = {name: context.environ.get(name, "") for name in ("FASTFRONT_CHECKS", "FASTFRONT_CFLAGS")}
    inputs = digest({"python": str(interpreter(context)), **variables}, [*sources, context.paths.root / "setup.py"])
    return context.paths.venv / "fastfront-extensions.stamp", inputs


def project_ready(context: Context) -> bool:
    """Whether the project is installed in place and its extension modules were built from the current sources."""
    folder = context.paths.root / "fastfront" / "_speedups"
    built = all(any(folder.glob(f"{source.stem}.*.so")) for source in folder.glob("*.pyx"))
    return built and is_current(*_project_stamp(context)) and is_current(*_extension_stamp(context))


def make_project(context: Context) -> None:
    """Install the project in place, and compile those extension modules whose sources changed."""
    advice = "See the compiler's message in the log."
    extensions = _extension_stamp(context)
    project = _project_stamp(context)
    ensure_compiler(context)
    python = str(context.paths.venv / "bin" / "python")
    build = [python, "setup.py", "build_ext", "--inplace", f"--parallel={os.cpu_count() or 1}"]
    context.run(Command(build, advice, cwd=context.paths.root, describe=_module))
    if not is_current(*project):
        # `compat` is a plain .pth file; the default would put a finder into every start of the interpreter.
        flags = ["--no-deps", "--no-build-isolation", "--config-setting", "editable_mode=compat", "--editable", "."]
        context.log_name = "project-install"
        install = uv_command(context, ["pip", "install", "--python", str(context.paths.venv), *flags], advice)
        env = {**(install.env or {}), "FASTFRONT_SKIP_EXTENSIONS": "1"}
        context.run(replace(install, env=env, describe=lambda line: "installing the project in place"))
        record(*project)
    record(*extensions)


def _module(line: str) -> str | None:
    """Progress of a build: the module that is translated to C, then compiled."""
    if match := re.search(r"(\d+)/(\d+)\] Cythonizing .*?(\w+)\.pyx", line):
        return f"translating {match[3]} ({match[1]} of {match[2]})"
    match = re.search(r"building '([\w.]+)' extension", line)
    return f"compiling {match[1]}" if match else None
