"""Sockets towards engines."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
import zmq

from fastfront.engine_client import handshake
from fastfront.engine_client.handshake import bind
from fastfront.engine_client.lane import sender_of
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


def unreachable(router: zmq.Socket[bytes]) -> bool:
    try:
        router.send_multipart([b"\0\0", b"x"])
    except zmq.ZMQError as error:
        return error.errno == zmq.EHOSTUNREACH
    return False


def test_a_machine_that_falls_silent_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped process stands for it: its connection stays open and nothing comes."""
    monkeypatch.setattr(handshake, "HEARTBEAT_MS", 50)
    monkeypatch.setattr(handshake, "SILENCE_MS", 2000)
    with zmq.Context() as context:
        router, address = bind(context, zmq.ROUTER, "tcp://127.0.0.1:*")
        engine = subprocess.Popen([sys.executable, "-c", ENGINE, address])
        try:
            assert router.poll(30_000)
            assert router.recv_multipart() == [b"\0\0", b"here"]
            assert not unreachable(router)
            engine.send_signal(signal.SIGSTOP)
            wait_for(lambda: unreachable(router), "the silence to be noticed", 30.0)
        finally:
            engine.kill()
            engine.wait()
            router.close(0)


def test_an_address_in_use_names_its_flags() -> None:
    with zmq.Context() as context:
        router, address = bind(context, zmq.ROUTER, "tcp://127.0.0.1:*")
        with pytest.raises(EngineError, match="--data-parallel-rpc-port"):
            bind(context, zmq.ROUTER, address)
        router.close(0)


@pytest.mark.parametrize(
    ("message", "engine"),
    [
        (b"\x99\x01\x90", 1),
        (b"\xdc\x00\x09\x00", 0),
        (b"\x99\x02\x90", -1),
        (b"\x99\xff", -1),
        (b"\x99\xc3", -1),
        (b"\x99", -1),
        (b"\xc1", -1),
        (b"", -1),
    ],
)
def test_whose_a_malformed_message_is(message: bytes, engine: int) -> None:
    assert sender_of(message, 2) == engine
