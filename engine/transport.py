"""The engine's sockets: handshake, one input and one output per frontend client, the coordinator's channel."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence

import zmq

from engine.protocol import Addresses, Codec, ReadyPayload, Status

INIT_TIMEOUT_S = 300.0
CONNECT_TIMEOUT_MS = 5000
"""Then a connection is tried anew. The kernel would ask a machine that does not answer ever more seldom."""


class HandshakeError(Exception):
    """The frontend did not answer HELLO, or answered with something else than an init message."""


class FrontendLink:
    """All sockets of one engine towards its frontend.

    Created with a completed HELLO/init exchange; `open` announces readiness. Sockets may be handed to other
    threads afterwards, each to one.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        handshake: str,
        index: int,
        *,
        local: bool,
        headless: bool,
        timeout_s: float = INIT_TIMEOUT_S,
    ) -> None:
        """Say HELLO at `handshake` and wait for the addresses; raise HandshakeError after `timeout_s`."""
        self.index = index
        self._context = context
        self._identity = index.to_bytes(2, "little")
        self._local = local
        self._headless = headless
        self._codec = Codec()
        self.inputs: list[zmq.Socket[bytes]] = []
        self.outputs: list[zmq.Socket[bytes]] = []
        self.coordinator: zmq.Socket[bytes] | None = None
        self.coordinator_out: zmq.Socket[bytes] | None = None
        self._handshake = self._socket(zmq.DEALER, linger_ms=5000)
        self._handshake.connect(handshake)
        self._send_status("HELLO")
        if not self._handshake.poll(int(timeout_s * 1000)):
            self._handshake.close(linger=0)
            raise HandshakeError(f"no answer from a frontend at {handshake} within {timeout_s:.0f} s")
        try:
            init = self._codec.decode_init(self._handshake.recv())
        except Exception as error:
            raise HandshakeError(f"unexpected answer to HELLO from {handshake}: {error}") from error
        self.addresses: Addresses = init.addresses
        self._heartbeat_ms, self._silence_ms = init.heartbeat_ms, init.silence_ms
        if not self.addresses.inputs or len(self.addresses.inputs) != len(self.addresses.outputs):
            raise HandshakeError(f"the frontend announced {self.addresses.inputs} and {self.addresses.outputs}")

    def connect(self) -> DisconnectWatch:
        """Connect all data sockets. Nothing is announced yet. The watch is on the inputs."""
        self.inputs = [self._data_socket(zmq.DEALER) for _ in self.addresses.inputs]
        self.outputs = [self._data_socket(zmq.PUSH, linger_ms=4000) for _ in self.addresses.outputs]
        watch = DisconnectWatch(self.inputs)
        for socket, address in zip(self.inputs, self.addresses.inputs, strict=True):
            socket.connect(address)
        for socket, address in zip(self.outputs, self.addresses.outputs, strict=True):
            socket.connect(address)
        if self.addresses.coordinator_input:
            self.coordinator = self._socket(zmq.XSUB)
            self.coordinator.connect(self.addresses.coordinator_input)
            self.coordinator.send(b"\x01")
        if self.addresses.coordinator_output:
            self.coordinator_out = self._socket(zmq.PUSH, linger_ms=4000)
            self.coordinator_out.connect(self.addresses.coordinator_output)
        return watch

    def announce(self, ready: ReadyPayload | dict[str, object]) -> None:
        """Send the ready payload on every input, then READY on the handshake socket."""
        payload = self._codec.encode(ready)
        for socket in self.inputs:
            socket.send(payload)
        self._send_status("READY")

    def close_inputs(self) -> None:
        """Close what requests come in by. By the thread that reads them."""
        _close(*self.inputs, self.coordinator)

    def close_outputs(self) -> None:
        """Close the handshake and what answers go out by; terminating the context then waits until all is sent."""
        _close(self._handshake, *self.outputs, self.coordinator_out)

    def close(self) -> None:
        """Close every socket."""
        self.close_inputs()
        self.close_outputs()

    def _send_status(self, status: str) -> None:
        self._handshake.send(self._codec.encode(Status(status, self._local, self._headless)))

    def _data_socket(self, kind: int, linger_ms: int = 0) -> zmq.Socket[bytes]:
        socket = self._socket(kind, linger_ms)
        if self._heartbeat_ms and self._silence_ms:  # a machine that is gone closes no connection
            socket.setsockopt(zmq.HEARTBEAT_IVL, self._heartbeat_ms)
            socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, self._silence_ms)
        return socket

    def _socket(self, kind: int, linger_ms: int = 0) -> zmq.Socket[bytes]:
        socket: zmq.Socket[bytes] = self._context.socket(kind)
        if kind in (zmq.DEALER, zmq.XSUB):
            socket.setsockopt(zmq.IDENTITY, self._identity)
        socket.setsockopt(zmq.SNDHWM, 0)
        socket.setsockopt(zmq.RCVHWM, 0)
        socket.setsockopt(zmq.LINGER, linger_ms)
        socket.setsockopt(zmq.IPV6, 1)
        socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
        socket.setsockopt(zmq.CONNECT_TIMEOUT, CONNECT_TIMEOUT_MS)
        return socket


def _close(*sockets: zmq.Socket[bytes] | None) -> None:
    for socket in sockets:
        if socket is not None:
            with contextlib.suppress(zmq.ZMQError):
                socket.close()


class DisconnectWatch:
    """Tells how long the frontend's end of some sockets has been gone. Owned by one thread."""

    def __init__(self, sockets: Sequence[zmq.Socket[bytes]]) -> None:
        """Start monitoring sockets, which have not been connected yet and will be to one peer each."""
        self._sockets = [*sockets]
        self.monitors: list[zmq.Socket[bytes]] = [
            socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED) for socket in sockets
        ]
        self._gone_since: list[float | None] = [time.monotonic()] * len(sockets)
        self.broken = False

    def gone_for(self) -> float:
        """Seconds since a connection was lost, or since it has been waited for; 0.0 while all stand.

        `broken` tells that one has been lost: what was under way on it is, even if it stands again.
        """
        for index, monitor in enumerate(self.monitors):
            while monitor.poll(0):
                event = int.from_bytes(monitor.recv_multipart()[0][:2], "little")
                if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                    self._gone_since[index] = None
                elif self._gone_since[index] is None:
                    self._gone_since[index] = time.monotonic()
                    self.broken = True
        gone = [since for since in self._gone_since if since is not None]
        return time.monotonic() - min(gone) if gone else 0.0

    def close(self) -> None:
        """Stop monitoring."""
        for socket, monitor in zip(self._sockets, self.monitors, strict=True):
            with contextlib.suppress(zmq.ZMQError):
                socket.disable_monitor()
            monitor.close(linger=0)
