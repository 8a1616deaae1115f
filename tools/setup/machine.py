"""What a machine must have before anything is built: compiler, headers, Rust, npm, room on disk."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tools.setup.plan import Context
from tools.setup.run import Command, StepFailed, output_of

MIN_CARGO = (1, 85)
NEEDED_GB = 12.0


@dataclass(frozen=True)
class Header:
    """A header that CPython's build looks for, the Debian package that has it, and what is lost without it."""

    name: str
    package: str
    breaks: str
    required: bool


HEADERS = (
    Header("openssl/ssl.h", "libssl-dev", "ssl (downloads, TLS)", True),
    Header("ffi.h", "libffi-dev", "ctypes", True),
    Header("zlib.h", "zlib1g-dev", "zlib (wheels cannot be unpacked)", True),
    Header("bzlib.h", "libbz2-dev", "bz2", False),
    Header("lzma.h", "liblzma-dev", "lzma", False),
    Header("sqlite3.h", "libsqlite3-dev", "sqlite3", False),
)


def compiler() -> str | None:
    """The C compiler to use: $CC, cc or gcc."""
    return next((found for name in (os.environ.get("CC"), "cc", "gcc") if name and (found := shutil.which(name))), None)


def missing_headers(cc: str, headers: Iterable[Header] = HEADERS) -> list[Header]:
    """The headers that the compiler does not find."""
    return [header for header in headers if not _includes(cc, header.name)]


def _includes(cc: str, header: str) -> bool:
    program = f"#include <stdio.h>\n#include <{header}>\n"
    done = subprocess.run([cc, "-E", "-xc", "-"], input=program, capture_output=True, text=True, check=False)
    return done.returncode == 0


def parse_version(text: str) -> tuple[int, ...]:
    """The first dotted number of a program's version line; empty when there is none."""
    match = re.search(r"\d+(?:\.\d+)+", text)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def cargo_problem() -> str | None:
    """Why Rust cannot be used here, or None when it can."""
    found = output_of(["cargo", "--version"])
    wanted = ".".join(map(str, MIN_CARGO))
    if found is None:
        return f"cargo is not installed (Rust {wanted} or newer is needed)"
    if parse_version(found) < MIN_CARGO:
        return f"{found} is too old ({wanted} or newer is needed)"
    return None


def can_install() -> bool:
    """Whether missing Debian packages can be installed here: root and apt-get."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def install(context: Context, packages: Iterable[str], why: str) -> None:
    """Install Debian packages, saying so; `StepFailed` with the command to give where that is not possible."""
    names = sorted(set(packages))
    command = f"apt-get install --no-install-recommends {' '.join(names)}"
    if not can_install():
        raise StepFailed(f"missing: {why}", f"as root: {command} (or your system's packages of the same use)")
    context.console.note(f"missing: {why}; installing {', '.join(names)} with apt-get")
    env = {"DEBIAN_FRONTEND": "noninteractive"}
    advice = f"as root: apt-get update && {command}"
    context.run(Command(["apt-get", "update"], advice, env=env, timeout_s=300))
    flags = ["install", "-y", "--no-install-recommends"]
    context.run(Command(["apt-get", *flags, *names], advice, env=env, timeout_s=1200))


def ensure_compiler(context: Context) -> None:
    """A C compiler and make, or `StepFailed`."""
    if compiler() is None or shutil.which("make") is None:
        install(context, ["build-essential"], "a C compiler and make")


def ensure_headers(context: Context) -> None:
    """The headers of CPython's build. Required ones are installed or asked for; lost modules are named."""
    cc = compiler()
    assert cc is not None, "ensure_compiler comes first"
    missing = missing_headers(cc)
    if missing and (can_install() or any(header.required for header in missing)):
        install(context, (h.package for h in missing), ", ".join(f"{h.name} for {h.breaks}" for h in missing))
        missing = missing_headers(cc)
    for header in missing:
        context.console.note(f"{header.name} is missing ({header.package}): built without {header.breaks}")


def ensure_cargo(context: Context) -> None:
    """Rust that is new enough, or `StepFailed`; Debian's own is taken where it will do."""
    problem = cargo_problem()
    if problem is None:
        return
    advice = (
        "install Rust (https://rustup.rs, or your system's rustc and cargo packages if they are new enough), put cargo "
        "on PATH, then run this again. It is needed once, to compile the `tokenizers` package for free-threaded Python."
    )
    policy = output_of(["apt-cache", "policy", "cargo"]) or ""
    candidate = re.search(r"Candidate:\s*(\S+)", policy)
    if candidate and parse_version(candidate[1]) >= MIN_CARGO and can_install():
        install(context, ["cargo", "rustc"], problem)
        problem = cargo_problem()
    if problem is not None:
        raise StepFailed(problem, advice)


def ensure_room(folder: Path, needed_gb: float = NEEDED_GB) -> None:
    """`StepFailed` when the disk under `folder` is too full for everything that set-up makes."""
    folder.mkdir(parents=True, exist_ok=True)
    free_gb = shutil.disk_usage(folder).free / 1e9
    if free_gb < needed_gb:
        advice = f"free some space, or choose another place by FASTFRONT_CACHE (now {folder})"
        raise StepFailed(f"{free_gb:.1f} GB free under {folder}, about {needed_gb:.0f} GB needed", advice)
