"""vLLM's own frontends without an engine of theirs: Python with some API servers, and Rust."""

from __future__ import annotations

import os
from functools import partial

from bench.peers.base import SERVED, TOOL_PARSER, Peer, Running, Setting, start_in_front
from bench.ports import free_port
from tools.setup.paths import Paths
from tools.setup.peers import VERSION

_ENV = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1"}
_ADVICE = "not installed: make bench-peers"


def _flags(setting: Setting, port: int, rpc_port: int) -> list[str]:
    flags = ["serve", str(setting.model), "--served-model-name", SERVED, "--host", "127.0.0.1", "--port", str(port)]
    flags += ["--data-parallel-size-local", "0", "--data-parallel-address", "127.0.0.1"]
    return [*flags, "--data-parallel-rpc-port", str(rpc_port), "--tool-call-parser", TOOL_PARSER]


def python_problem(paths: Paths) -> str | None:
    """Why the Python frontend cannot be had here."""
    return None if (paths.peers / "vllm" / "bin" / "python").exists() else _ADVICE


def rust_problem(paths: Paths) -> str | None:
    """Why the Rust frontend cannot be had here."""
    return None if os.access(paths.peers / "vllm-rs", os.X_OK) else _ADVICE


def start_python(setting: Setting, servers: int) -> Running:
    """`vllm serve` with so many API-server processes, without the access log."""
    port, rpc_port = free_port(), free_port()
    command = [str(setting.paths.peers / "vllm" / "bin" / "python"), "-m", "vllm.entrypoints.cli.main"]
    command += [*_flags(setting, port, rpc_port), "--api-server-count", str(servers), "--disable-uvicorn-access-log"]
    command += ["--enable-auto-tool-choice"]
    env = {**_ENV, "VLLM_RPC_BASE_PATH": str(setting.folder)}  # its sockets between processes, which it leaves behind
    return start_in_front(f"vllm-python-{servers}", setting, command, port, rpc_port, env)


def start_rust(setting: Setting) -> Running:
    """`vllm-rs serve`, which needs no Python."""
    port, rpc_port = free_port(), free_port()
    command = [str(setting.paths.peers / "vllm-rs"), *_flags(setting, port, rpc_port)]
    return start_in_front("vllm-rust", setting, command, port, rpc_port, _ENV)


VLLM_PYTHON_1 = Peer("vllm-python-1", "vLLM Python", partial(start_python, servers=1), python_problem, lambda paths: VERSION)
VLLM_PYTHON_2 = Peer(
    "vllm-python-2", "vLLM Python, 2 API servers", partial(start_python, servers=2), python_problem, lambda paths: VERSION
)
VLLM_RUST = Peer("vllm-rust", "vLLM Rust", start_rust, rust_problem, lambda paths: VERSION)
