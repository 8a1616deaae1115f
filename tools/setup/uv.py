"""uv, which makes the environments and installs into them."""

from __future__ import annotations

import configparser
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.setup.machine import can_install, install, parse_version
from tools.setup.plan import Context
from tools.setup.run import Command, StepFailed, output_of

PINNED = "0.13.9"
_MIN_VERSION = (0, 8)
_ADVICE = "Install uv (https://docs.astral.sh/uv, or `python3 -m pip install uv`), put it on PATH, then run this again."


def find_uv(context: Context) -> Path | None:
    """The uv to use: ours in the cache, else a new enough one on PATH."""
    own = context.paths.cache / "uv" / "bin" / "uv"
    if os.access(own, os.X_OK):
        return own
    on_path = shutil.which("uv", path=context.environ.get("PATH"))
    if on_path and parse_version(output_of([on_path, "--version"]) or "") >= _MIN_VERSION:
        return Path(on_path)
    return None


def uv_ready(context: Context) -> bool:
    """Whether there is a uv to use."""
    return find_uv(context) is not None


def ensure_uv(context: Context) -> None:
    """Put uv into the cache by the first Python here that has pip."""
    folder = context.paths.cache / "uv"
    pythons = [sys.executable, "python3", "/usr/bin/python3"]
    with_pip = next((name for name in pythons if output_of([name, "-m", "pip", "--version"])), None)
    if with_pip is None:
        if not can_install():
            raise StepFailed("neither uv nor a Python with pip is here", _ADVICE)
        install(context, ["python3-pip"], "pip, to install uv")
        with_pip = "/usr/bin/python3"
    pip = [with_pip, "-m", "pip", "install", "--no-deps", "--upgrade", "--target", str(folder), f"uv=={PINNED}"]
    context.run(Command(pip, _ADVICE, timeout_s=300))
    context.console.note(f"uv {PINNED} installed into {folder}")


def uv_command(context: Context, arguments: Sequence[str], advice: str, timeout_s: float | None = None) -> Command:
    """A uv command whose cache and interpreters live in the project's cache folder.

    Files are linked into environments where both lie on one file system, so a second clone costs no space.
    """
    uv = find_uv(context)
    assert uv is not None, "the uv step comes first"
    env = {
        "UV_CACHE_DIR": str(context.paths.cache / "uv-cache"),
        "UV_PYTHON_INSTALL_DIR": str(context.paths.cache / "uv-python"),
        "UV_LINK_MODE": "hardlink" if _same_file_system(context.paths.cache, context.paths.root) else "copy",
        "UV_NO_PROGRESS": "1",
        "UV_HTTP_TIMEOUT": "120",
        "UV_SYSTEM_CERTS": "1",
        **pip_settings(context.environ),
    }
    env = {name: value for name, value in env.items() if name not in context.environ}
    return Command([str(uv), *arguments], advice, cwd=context.paths.root, env=env, timeout_s=timeout_s)


def pip_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """pip's index and certificate settings, from its variables or its configuration files, as uv's variables.

    uv does not read them itself, and a machine that was set up for pip reaches its index only through them.
    """
    values = {"index-url": environ.get("PIP_INDEX_URL", ""), "cert": environ.get("PIP_CERT", "")}
    home = environ.get("HOME", "/nonexistent")
    places = (f"{home}/.config/pip/pip.conf", f"{home}/.pip/pip.conf", "/etc/pip.conf")
    for path in filter(None, (environ.get("PIP_CONFIG_FILE", ""), *places)):
        config = configparser.RawConfigParser(strict=False)
        try:
            config.read(path, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError):
            continue
        for name in values:
            values[name] = values[name] or config.get("global", name, fallback="")
    names = {"index-url": "UV_DEFAULT_INDEX", "cert": "SSL_CERT_FILE"}
    return {names[name]: value for name, value in values.items() if value}


def _same_file_system(one: Path, other: Path) -> bool:
    return one.stat().st_dev == other.stat().st_dev
