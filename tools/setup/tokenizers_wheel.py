"""The `tokenizers` wheel for the free-threaded interpreter: from the index if it has one, else compiled once."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from tools.setup.interpreter import at_hand, interpreter, probe
from tools.setup.machine import ensure_cargo, ensure_compiler
from tools.setup.plan import Context
from tools.setup.run import Command, StepFailed
from tools.setup.uv import pip_settings, uv_command

_ADVICE = (
    "See the log. Rust's packages come from its registry: check that cargo reaches it (a mirror is set in "
    "~/.cargo/config.toml), then run this again; finished parts are not compiled twice."
)


def pinned_version(requirements: Path, name: str) -> str:
    """The version that a requirements file pins `name` to."""
    match = re.search(rf"^{re.escape(name)}==(\S+)", requirements.read_text(encoding="utf-8"), re.MULTILINE)
    if match is None:
        raise StepFailed(f"{requirements} does not pin {name}", "Restore the file from version control.")
    return match[1]


def wheel_tag(cache_tag: str) -> str:
    """The tags of a wheel for one interpreter, from its cache tag and ABI flags: cpython-313t gives cp313-cp313t."""
    match = re.fullmatch(r"cpython-(\d+)(\w*)", cache_tag)
    if match is None:
        raise StepFailed(f"unknown interpreter tag {cache_tag!r}", "Use a CPython build.")
    return f"cp{match[1]}-cp{match[1]}{match[2]}"


def find_wheel(wheels: Path, version: str, tag: str) -> Path | None:
    """The wheel of that version and interpreter in the folder."""
    return next(iter(sorted(wheels.glob(f"tokenizers-{version}-{tag}-*.whl"))), None)


def _wanted(context: Context) -> tuple[str, str]:
    record = context.paths.root / ".fastfront" / "wheel.json"
    python = str(interpreter(context))
    try:
        known: dict[str, str] = json.loads(record.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        known = {}
    if known.get("python") != python:
        found = probe(Path(python))
        if found is None:
            raise StepFailed(f"{python} does not run", "Delete the folder .fastfront in the clone and run this again.")
        known = {"python": python, "tag": wheel_tag(found.tag)}
        record.write_text(json.dumps(known) + "\n", encoding="utf-8")
    return pinned_version(context.paths.requirements / "frontend.txt", "tokenizers"), known["tag"]


def wheel_ready(context: Context) -> bool:
    """Whether the cache has the wheel."""
    return find_wheel(context.paths.wheels, *_wanted(context)) is not None


def wheel_kept(context: Context) -> bool:
    """Whether the cache has the wheel for an interpreter that is at hand, which need not have been chosen yet."""
    found = at_hand(context)
    version = pinned_version(context.paths.requirements / "frontend.txt", "tokenizers")
    return found is not None and find_wheel(context.paths.wheels, version, wheel_tag(found.tag)) is not None


def make_wheel(context: Context) -> None:
    """Put the wheel into the cache: downloaded where the index has it, else built with cargo."""
    version, tag = _wanted(context)
    environment = context.paths.build / "wheels" / "env"
    shutil.rmtree(environment, ignore_errors=True)
    context.run(uv_command(context, ["venv", "--python", str(interpreter(context)), str(environment)], _ADVICE))
    python = str(environment / "bin" / "python")
    context.run(uv_command(context, ["pip", "install", "--python", python, "pip"], _ADVICE))
    context.paths.wheels.mkdir(parents=True, exist_ok=True)
    requirement = f"tokenizers=={version}"
    if not _download(context, python, requirement):
        context.console.note(f"{requirement} has no wheel for {tag}: compiling it with cargo,")
        context.console.note("about 3 minutes on two cores; the wheel is kept in the cache")
        ensure_compiler(context)
        ensure_cargo(context)
        _compile(context, python, requirement)
    if find_wheel(context.paths.wheels, version, tag) is None:
        raise StepFailed(f"no wheel of {requirement} for {tag} came out of the build", _ADVICE)
    shutil.rmtree(context.paths.build / "wheels", ignore_errors=True)


def _download(context: Context, python: str, requirement: str) -> bool:
    only_binary = ["--no-deps", "--only-binary", ":all:", "--dest", str(context.paths.wheels), requirement]
    try:
        context.run(Command([python, "-m", "pip", "download", *only_binary], _ADVICE, timeout_s=300))
    except StepFailed:
        return False
    return True


def _compile(context: Context, python: str, requirement: str) -> None:
    env = {"CARGO_TARGET_DIR": str(context.paths.build / "wheels" / "target"), **_pip_certificate(context)}
    out = ["--no-deps", "--verbose", "--wheel-dir", str(context.paths.wheels), requirement]
    context.run(Command([python, "-m", "pip", "wheel", *out], _ADVICE, env=env, describe=_crates()))


def _pip_certificate(context: Context) -> dict[str, str]:
    certificate = pip_settings(context.environ).get("SSL_CERT_FILE")
    return {"CARGO_HTTP_CAINFO": certificate} if certificate else {}


def _crates() -> Callable[[str], str | None]:
    count = 0

    def describe(line: str) -> str | None:
        nonlocal count
        match = re.search(r"Compiling (\S+) v", line)
        if match is None:
            return None
        count += 1
        return f"{count} crates, now {match[1]}"

    return describe
