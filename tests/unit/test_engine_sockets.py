"""Sockets towards engines: ZeroMQ's own library is what connects."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import zmq

from fastfront._speedups.engine_sockets import EngineSockets
from fastfront._speedups.msgpack import unpackb
from fastfront.engine_client import handshake
from fastfront.engine_client.addresses import ipc_address, local_addresses, remote_addresses
from fastfront.engine_client.handshake import LaneSockets, bind, bind_lanes, init_message, listen
from fastfront.errors import EngineError
from tests.support.waiting import wait_for

ENGINE = """
import sys, time, zmq
socket = zmq.Context().socket(zmq.DEALER)
socket.setsockopt(zmq.IDENTITY, b"\\0\\0")
socket.connect(sys.argv[1])
socket.send(b"here")
time.sleep(600)
"""
Sock = zmq.Socket[bytes]


@pytest.fixture(params=["ipc", "tcp"])
def lane(request: pytest.FixtureRequest) -> Iterator[LaneSockets]:
    addresses = local_addresses(1) if request.param == "ipc" else remote_addresses(1, "127.0.0.1", 0)
    (lane,) = bind_lanes(addresses, engines=2)
    yield lane
    lane.sockets.close()


class Peers:
    """Sockets of ZeroMQ's library, all closed in the end."""

    def __init__(self) -> None:
        self._context: zmq.Context[Sock] = zmq.Context()
        self._open: list[Sock] = []

    def connect(self, kind: int, address: str, identity: bytes) -> Sock:
        peer = self._context.socket(kind)
        self._open.append(peer)
        peer.setsockopt(zmq.IDENTITY, identity)
        peer.setsockopt(zmq.SNDHWM, 0)
        peer.setsockopt(zmq.RECONNECT_IVL, -1)  # one that was replaced must not come again and replace the other
        peer.connect(address)
        return peer

    def dealer(self, lane: LaneSockets, identity: bytes = b"\0\0") -> Sock:
        return self.connect(zmq.DEALER, lane.input_address, identity)

    def close(self) -> None:
        for peer in self._open:
            peer.close(0)
        self._context.term()


@pytest.fixture
def peers() -> Iterator[Peers]:
    peers = Peers()
    yield peers
    peers.close()


def until(sockets: EngineSockets, found: Any, what: str) -> Any:
    """Lets the sockets work until `found()` gives something."""

    def look() -> Any:
        sockets.wait(20)
        return found()

    return wait_for(look, what, 60.0)


def test_an_engine_that_connects_is_heard_and_reached(lane: LaneSockets, peers: Peers) -> None:
    sockets, engine = lane.sockets, peers.dealer(lane, b"\1\0")
    engine.send_multipart([b"ready", b"", b"more"])
    assert until(sockets, sockets.take_inputs, "the ready payload") == [[b"\1\0", b"ready", b"", b"more"]]
    assert sockets.connected == [1]
    for size in (0, 1, 255, 256, 70_000, 3_000_000):
        assert sockets.send(1, b"\0", b"x" * size)
    sockets.wait(0)
    for size in (0, 1, 255, 256, 70_000, 3_000_000):
        wait_for(lambda: (sockets.wait(0), engine.poll(1))[1], "a message", 60.0)
        assert engine.recv_multipart() == [b"\0", b"x" * size]
    assert not sockets.send(0, b"\0", b"")
    assert not sockets.send(2, b"\0", b"")
    assert not sockets.send(-1, b"\0", b"")


def test_one_that_leaves_is_named_at_once(lane: LaneSockets, peers: Peers) -> None:
    sockets, engines = lane.sockets, [peers.dealer(lane, bytes([k, 0])) for k in range(2)]
    until(sockets, lambda: sockets.connected == [0, 1], "both engines")
    engines[1].close(0)
    assert until(sockets, sockets.take_dropped, "the loss") == [(1, None)]
    assert sockets.connected == [0]
    assert not sockets.send(1, b"\0", b"")
    assert sockets.send(0, b"\0", b"here")


def test_who_comes_again_takes_its_place(lane: LaneSockets, peers: Peers) -> None:
    sockets, first = lane.sockets, peers.dealer(lane)
    until(sockets, lambda: sockets.connected == [0], "the first")
    second = peers.dealer(lane)
    second.send(b"here")
    until(sockets, sockets.take_inputs, "the second")
    assert sockets.send(0, b"\0", b"to the second")
    sockets.wait(0)
    assert second.poll(60_000)
    assert second.recv_multipart() == [b"\0", b"to the second"]
    assert sockets.take_dropped() == []  # the first was replaced, not lost
    first.close(0)


@pytest.mark.parametrize(
    "greeting", [b"GET / HTTP/1.1\r\n\r\n", b"\xff" + b"\0" * 63, b"\xff" + bytes(8) + b"\x7f\x01", bytes(3)]
)
def test_what_is_no_engine_is_turned_away(lane: LaneSockets, greeting: bytes) -> None:
    address, sockets = lane.input_address, lane.sockets
    with connect(address) as stranger:
        stranger.sendall(greeting)
        ((engine, reason),) = until(sockets, sockets.take_dropped, "it to be turned away")
        assert engine == -1
        assert reason
        stranger.settimeout(60)
        while stranger.recv(100):
            pass
    assert sockets.connected == []


def connect(address: str) -> socket.socket:
    if address.startswith("ipc://@"):
        unix = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        unix.connect("\0" + address.removeprefix("ipc://@"))
        return unix
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    return socket.create_connection((host, int(port)))


def test_sockets_of_another_type_are_turned_away(lane: LaneSockets, peers: Peers) -> None:
    peers.connect(zmq.PUSH, lane.input_address, b"x")
    found = until(lane.sockets, lane.sockets.take_dropped, "it to be turned away")
    assert found[0] == (-1, "its socket is of another type than an engine's")


def test_wake_ends_a_wait(lane: LaneSockets) -> None:
    threading.Timer(0.05, lane.sockets.wake).start()
    began = time.monotonic()
    lane.sockets.wait(30_000)
    assert time.monotonic() - began < 20


def test_connections_leave_no_descriptors(lane: LaneSockets, peers: Peers) -> None:
    sockets = lane.sockets
    for _ in range(3):
        engine = peers.dealer(lane)
        until(sockets, lambda: sockets.connected == [0], "the engine")
        engine.close(0)
        until(sockets, sockets.take_dropped, "the loss")
    before = len(os.listdir("/proc/self/fd"))
    connections = [connect(lane.output_address) for _ in range(20)]
    sockets.wait(100)
    for connection in connections:
        connection.close()
    until(sockets, lambda: (sockets.take_dropped(), len(os.listdir("/proc/self/fd")) <= before)[1], "all to be closed")


def test_a_machine_that_falls_silent_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped process stands for it: its connection stays open and nothing comes."""
    monkeypatch.setattr(handshake, "HEARTBEAT_MS", 50)
    monkeypatch.setattr(handshake, "SILENCE_MS", 4000)
    (lane,) = bind_lanes(remote_addresses(1, "127.0.0.1", 0), engines=1)
    sockets = lane.sockets
    engine = subprocess.Popen([sys.executable, "-c", ENGINE, lane.input_address])
    try:
        assert until(sockets, sockets.take_inputs, "the engine") == [[b"\0\0", b"here"]]
        end = time.monotonic() + 5
        while time.monotonic() < end:  # longer than it may be silent: it answers when it is asked
            sockets.wait(20)
        assert sockets.connected == [0]
        engine.send_signal(signal.SIGSTOP)
        assert until(sockets, sockets.take_dropped, "the silence") == [(0, "it has been silent for too long")]
    finally:
        engine.kill()
        engine.wait()
        sockets.close()


def test_engines_are_told_that_they_may_ask_too(lane: LaneSockets) -> None:
    told = unpackb(init_message([lane]))
    assert told["addresses"]["inputs"] == [lane.input_address]
    tcp = lane.input_address.startswith("tcp:")
    expected = {"heartbeat_ms": handshake.HEARTBEAT_MS, "silence_ms": handshake.SILENCE_MS} if tcp else {}
    assert {name: told[name] for name in told if name.endswith("_ms")} == expected


def test_an_address_in_use_names_its_flags() -> None:
    with zmq.Context() as context:
        router, address = bind(context, "tcp://127.0.0.1:*")
        with pytest.raises(EngineError, match="--data-parallel-rpc-port"):
            bind(context, address)
        with pytest.raises(EngineError, match="--data-parallel-rpc-port"):
            listen(address)
        router.close(0)
    for address in ("tcp://no.such.host.invalid:*", "tcp://203.0.113.1:*"):
        with pytest.raises(EngineError, match="--data-parallel-address"):
            listen(address)


def test_where_engines_connect_to() -> None:
    for address, start in (("tcp://127.0.0.1:*", "tcp://127.0.0.1:"), ("tcp://[::1]:*", "tcp://[::1]:"), (ipc_address("x"), "ipc://@")):
        sock, found = listen(address)
        assert found.startswith(start)
        connect(found.replace("[::1]", "::1")).close()
        sock.close()
