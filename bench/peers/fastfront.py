"""fastfront, and the same with the GIL on."""

from __future__ import annotations

from functools import partial

from bench.peers.base import SERVED, Peer, Running, Setting, free_port, start_in_front
from tools.setup.paths import Paths


def problem(paths: Paths) -> str | None:
    """Why it cannot be had here."""
    return None if (paths.venv / "bin" / "fastfront").exists() else "the frontend environment is not there: make setup"


def version(paths: Paths) -> str:
    """The package's version; the record has the commit."""
    for line in (paths.root / "pyproject.toml").read_text(encoding="utf-8").splitlines():
        if line.startswith("version = "):
            return line.partition(" = ")[2].strip('"')
    return "unknown"


def start(setting: Setting, gil: bool = False) -> Running:
    """`fastfront serve` with its defaults, without the access log; `gil` turns the interpreter's lock on."""
    port, rpc_port = free_port(), free_port()
    python = str(setting.paths.venv / "bin" / "python")
    program = [python, "-X", "gil=1", "-m", "bench.peers.with_gil"] if gil else [str(setting.paths.venv / "bin" / "fastfront")]
    command = [*program, "serve", str(setting.model), "--served-model-name", SERVED, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--data-parallel-size-local", "0", "--data-parallel-address", "127.0.0.1"]
    command += ["--data-parallel-rpc-port", str(rpc_port), "--disable-uvicorn-access-log"]
    env = {"PYTHONPATH": str(setting.paths.root)} if gil else {}
    return start_in_front("fastfront-gil" if gil else "fastfront", setting, command, port, rpc_port, env)


FASTFRONT = Peer("fastfront", "fastfront", start, problem, version)
FASTFRONT_GIL = Peer("fastfront-gil", "fastfront, GIL on", partial(start, gil=True), problem, version)
