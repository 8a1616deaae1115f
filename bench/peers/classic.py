"""The classic layout as a control: bench/classic on ordinary Python, with as many API-server processes as asked for."""

from __future__ import annotations

from functools import partial

from bench.peers.base import SERVED, Peer, Running, Setting, start_in_front
from bench.ports import free_port
from tools.setup.paths import Paths


def problem(paths: Paths) -> str | None:
    """Why it cannot be had here."""
    return None if (paths.engine_venv / "bin" / "python").exists() else "the engine environment is not there: make setup"


def start(setting: Setting, servers: int) -> Running:
    """`servers` processes that share one listening socket."""
    port, rpc_port = free_port(), free_port()
    command = [str(setting.paths.engine_venv / "bin" / "python"), "-m", "bench.classic", str(setting.model)]
    command += ["--served-model-name", SERVED, "--port", str(port), "--rpc-port", str(rpc_port), "--api-servers", str(servers)]
    return start_in_front(f"classic-{servers}", setting, command, port, rpc_port, {})


CLASSIC_2 = Peer("classic-2", "classic layout, 2 API servers", partial(start, servers=2), problem, lambda paths: "1")
