"""The first machine's frontend, seen from another machine's whose ranks step together with those there.

As with vLLM's frontends, every rank says HELLO and READY to the one that has the coordinator. Here the frontend of a rank does it
in its stead: engines know their own frontend only, and learn of the coordinator from it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import zmq

from fastfront._speedups.msgpack import DecodeError, packb, unpackb
from fastfront.engine_client.handshake import POLL_MS, Together
from fastfront.errors import EngineError

LINGER_MS = 5_000


class Head:
    """One connection for each of our ranks. Belongs to the thread that starts the server."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], address: str, ranks: range) -> None:
        """Says HELLO for `ranks` at the head's handshake address; it may come up later."""
        self._address = address
        self._sockets = {}
        for rank in ranks:
            socket = context.socket(zmq.DEALER)
            socket.setsockopt(zmq.IDENTITY, rank.to_bytes(2, "little"))
            socket.setsockopt(zmq.LINGER, LINGER_MS)
            socket.setsockopt(zmq.IPV6, 1 if "[" in address else 0)
            socket.connect(address)
            socket.send(packb({"status": "HELLO", "local": False, "headless": False}))
            self._sockets[rank] = socket

    def together(self, timeout_s: float, check: Callable[[], None]) -> Together:
        """Where the coordinator is. `check` is called several times a second and may raise.

        Raises EngineError if the head has not answered within `timeout_s` seconds, or not as a head does.
        """
        deadline = time.monotonic() + timeout_s
        answers = []
        for rank, socket in self._sockets.items():
            while not socket.poll(POLL_MS):
                check()
                if time.monotonic() > deadline:
                    raise EngineError(
                        f"no frontend has answered for rank {rank} at {self._address} within {timeout_s:g} s"
                        " (--data-parallel-address, --data-parallel-rpc-port, --engine-ready-timeout)"
                    )
            answers.append(read_init(socket.recv(), self._address))
        return answers[0]

    def ready(self, config_hashes: Mapping[int, str | None]) -> None:
        """Says READY for each rank, with what its engine has said of its configuration. Closes the connections."""
        for rank, socket in self._sockets.items():
            more = {} if config_hashes[rank] is None else {"parallel_config_hash": config_hashes[rank]}
            socket.send(packb({"status": "READY", "local": False, "headless": False, **more}))
        self.close()

    def close(self) -> None:
        for socket in self._sockets.values():
            socket.close()


def read_init(message: bytes, address: str) -> Together:
    """A head's answer to HELLO. Raises EngineError if it names no coordinator."""
    try:
        found = unpackb(message)
    except DecodeError:
        found = None
    addresses, config = (found.get("addresses"), found.get("parallel_config")) if isinstance(found, dict) else (None, None)
    orders, reports = (
        addresses.get(key) if isinstance(addresses, dict) else None for key in ("coordinator_input", "coordinator_output")
    )
    if not (isinstance(orders, str) and isinstance(reports, str) and isinstance(config, dict)):
        raise EngineError(f"the frontend at {address} has no coordinator: is its model a mixture of experts, its --engine vllm?")
    return Together(orders, reports, config)
