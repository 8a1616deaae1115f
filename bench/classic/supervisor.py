"""The parent of the API servers: listening socket, processes, handshake with the engine."""

from __future__ import annotations

import contextlib
import multiprocessing
import resource
import signal
import socket
import sys
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

import msgspec
import zmq

from bench.classic.server import run_server

_BACKLOG = 4096
_JOIN_S = 300.0
_TURN_S = 0.05


@dataclass(frozen=True)
class Options:
    """What to serve, and with how many processes."""

    model: Path
    served_model_name: str
    port: int
    rpc_port: int
    servers: int


class Stopped(Exception):
    """SIGTERM came."""


def _stop(number: int, frame: object) -> None:
    raise Stopped


def serve(options: Options) -> int:
    """Serve until SIGTERM; the exit status."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    listener = socket.create_server(("127.0.0.1", options.port), backlog=_BACKLOG)
    listener.setblocking(False)
    fork = multiprocessing.get_context("fork")
    loads = fork.RawArray("i", options.servers)
    servers: list[ForkProcess] = []
    signal.signal(signal.SIGTERM, _stop)
    try:
        pipes = []
        for index in range(options.servers):
            ours, theirs = fork.Pipe()
            arguments = (index, listener, loads, theirs, options.model, options.served_model_name)
            servers.append(fork.Process(target=run_server, args=arguments, name=f"api-server-{index}"))
            servers[-1].start()
            pipes.append(ours)
        _join_engine(options.rpc_port, [_addresses(pipe) for pipe in pipes], servers)
        while all(server.is_alive() for server in servers):
            time.sleep(_TURN_S)
        print("an API server has ended", file=sys.stderr)
        return 1
    except Stopped:
        return 0
    except TimeoutError as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for server in servers:
            server.terminate()
        for server in servers:
            server.join(5)
            if server.is_alive():
                server.kill()
                server.join()


def _addresses(pipe: Connection) -> tuple[str, str]:
    if not pipe.poll(_JOIN_S):
        raise TimeoutError("an API server did not come up")
    with contextlib.suppress(EOFError):
        address: tuple[str, str] = pipe.recv()
        return address
    raise TimeoutError("an API server ended while it came up")


def _join_engine(port: int, addresses: list[tuple[str, str]], servers: list[ForkProcess]) -> None:
    """The handshake of one engine: HELLO, addresses, READY. The ready payload goes to the servers' own sockets."""
    init = {
        "addresses": {
            "inputs": [one for one, _ in addresses],
            "outputs": [other for _, other in addresses],
            "coordinator_input": None,
            "coordinator_output": None,
            "frontend_stats_publish_address": None,
        },
        "parallel_config": {},
    }
    until = time.monotonic() + _JOIN_S
    with zmq.Context() as context, context.socket(zmq.ROUTER) as handshake:
        handshake.setsockopt(zmq.LINGER, 0)
        handshake.bind(f"tcp://127.0.0.1:{port}")
        while True:
            if time.monotonic() > until or not all(server.is_alive() for server in servers):
                raise TimeoutError("no engine has joined")
            if not handshake.poll(int(_TURN_S * 1000)):
                continue
            identity, payload = handshake.recv_multipart()
            status: dict[str, Any] = msgspec.msgpack.decode(payload)
            if status["status"] == "READY":
                return
            handshake.send_multipart([identity, msgspec.msgpack.encode(init)])
