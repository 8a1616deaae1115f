"""fastfront, the same with the GIL on, and variants of it: other flags, another clone."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from bench.peers.base import SERVED, TOOL_PARSER, Peer, Running, Setting, start_in_front
from bench.ports import free_port
from tools.setup.paths import Paths


def problem(paths: Paths, root: Path | None = None) -> str | None:
    """Why it cannot be had here, or in the clone at `root`."""
    folder = root or paths.root
    return None if (folder / ".venv" / "bin" / "fastfront").exists() else f"no frontend environment in {folder}: make setup"


def version(paths: Paths, root: Path | None = None) -> str:
    """The package's version; the record has the commit."""
    for line in ((root or paths.root) / "pyproject.toml").read_text(encoding="utf-8").splitlines():
        if line.startswith("version = "):
            return line.partition(" = ")[2].strip('"')
    return "unknown"


def start(
    setting: Setting, name: str = "fastfront", flags: tuple[str, ...] = (), root: Path | None = None, gil: bool = False
) -> Running:
    """`fastfront serve` with its defaults and a tool parser, without the access log; `gil` turns the interpreter's lock on.

    `flags` come on top; `root` is another clone than this one.
    """
    port, rpc_port = free_port(), free_port()
    folder = root or setting.paths.root
    program = [str(folder / ".venv" / "bin" / "fastfront")]
    if gil:
        program = [str(folder / ".venv" / "bin" / "python"), "-X", "gil=1", "-m", "bench.peers.with_gil"]
    command = [*program, "serve", str(setting.model), "--served-model-name", SERVED, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--data-parallel-size-local", "0", "--data-parallel-address", "127.0.0.1"]
    command += ["--data-parallel-rpc-port", str(rpc_port), "--disable-uvicorn-access-log"]
    command += ["--enable-auto-tool-choice", "--tool-call-parser", TOOL_PARSER, *flags]
    return start_in_front(name, setting, command, port, rpc_port, {"PYTHONPATH": str(folder)} if gil else {})


FASTFRONT = Peer("fastfront", "fastfront", start, problem, version)
FASTFRONT_GIL = Peer("fastfront-gil", "fastfront, GIL on", partial(start, name="fastfront-gil", gil=True), problem, version)


def with_flags(flags: tuple[str, ...]) -> Peer:
    """fastfront with more flags, to be measured beside its defaults."""
    name = "fastfront-flags"
    return Peer(name, f"fastfront {' '.join(flags)}", partial(start, name=name, flags=flags), problem, version)


def of_clone(root: Path) -> Peer:
    """The fastfront of another clone, to be measured beside this one: before and after a change."""
    name = "fastfront-other"
    return Peer(
        name,
        f"fastfront in {root.name}",
        partial(start, name=name, root=root),
        partial(problem, root=root),
        partial(version, root=root),
    )
