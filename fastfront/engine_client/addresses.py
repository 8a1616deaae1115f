"""Where the frontend binds its sockets."""

from __future__ import annotations

import platform
import secrets
import tempfile
from dataclasses import dataclass
from pathlib import Path

from fastfront.config import ServeConfig

MAX_IPC_PATH = 107  # sun_path of a unix socket, less the terminating zero


@dataclass(frozen=True, slots=True)
class Addresses:
    """Endpoints to bind: one handshake, and an input and an output per lane (`tcp://HOST:*`: the port is chosen at bind)."""

    handshake: str
    inputs: list[str]
    outputs: list[str]


def ipc_address(name: str) -> str:
    """An ipc endpoint no two servers share.

    On Linux it lies in the abstract namespace: no file that a killed process could leave behind, no path that could be too long.
    Elsewhere it is a file in the temporary folder, or in /tmp when that folder's path is too long for a socket.
    """
    unique = f"fastfront-{secrets.token_hex(8)}-{name}"
    if platform.system() == "Linux":
        return f"ipc://@{unique}"
    for folder in (tempfile.gettempdir(), "/tmp"):
        path = str(Path(folder) / unique)
        if len(path.encode()) <= MAX_IPC_PATH:
            return f"ipc://{path}"
    raise ValueError(f"the temporary folder's path is too long for a socket ({MAX_IPC_PATH} bytes at most): set TMPDIR")


def tcp_host(host: str) -> str:
    """The host as it stands in a zmq endpoint and in a URL: IPv6 in brackets."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def local_addresses(lanes: int) -> Addresses:
    """Endpoints for engines that all run on this machine under this frontend."""
    return Addresses(
        handshake=ipc_address("handshake"),
        inputs=[ipc_address(f"in{k}") for k in range(lanes)],
        outputs=[ipc_address(f"out{k}") for k in range(lanes)],
    )


def engine_addresses(config: ServeConfig) -> Addresses:
    """Endpoints for a frontend's engines. If all are started here nobody else has to know them; vLLM's are told a port."""
    if config.local_ranks != config.ranks:
        return remote_addresses(config.lanes, config.data_parallel_address, config.data_parallel_rpc_port)
    if config.engine != "vllm":
        return local_addresses(config.lanes)
    if config.data_parallel_lb == "internal" or config.is_head:
        return remote_addresses(config.lanes, config.data_parallel_address, config.data_parallel_rpc_port)
    return remote_addresses(config.lanes, "127.0.0.1", 0)


def remote_addresses(lanes: int, host: str, rpc_port: int) -> Addresses:
    """Endpoints for engines that join over TCP at HOST:RPC_PORT (0: a port that the system chooses)."""
    at = tcp_host(host)
    return Addresses(
        handshake=f"tcp://{at}:{rpc_port or '*'}",
        inputs=[f"tcp://{at}:*" for _ in range(lanes)],
        outputs=[f"tcp://{at}:*" for _ in range(lanes)],
    )
