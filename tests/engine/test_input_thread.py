"""The input thread: nobody's messages hold up everybody else's."""

from __future__ import annotations

import queue
from typing import Any

import msgspec
import zmq

from engine.core.input_thread import AT_ONCE, InputThread
from engine.core.messages import Abort, Input
from engine.core.validate import Bounds
from engine.protocol import ABORT


class Link:
    """One client's socket."""

    coordinator = None

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self.inputs = [socket]
        self.outputs = [socket]


def test_one_client_has_a_turn_of_so_many_messages() -> None:
    with zmq.Context() as context, context.socket(zmq.PAIR) as ours, context.socket(zmq.PAIR) as theirs:
        for socket in (ours, theirs):
            socket.setsockopt(zmq.SNDHWM, 0)
            socket.setsockopt(zmq.RCVHWM, 0)
        ours.bind("inproc://input")
        theirs.connect("inproc://input")
        commands: queue.SimpleQueue[Input] = queue.SimpleQueue()
        watch: Any = None
        link: Any = Link(ours)
        thread = InputThread(link, commands, Bounds(8, 8), base_seed=0, watch=watch, signals=-1, disconnect_timeout_s=1.0)
        count = 2 * AT_ONCE + 1
        for number in range(count):
            theirs.send_multipart([ABORT, msgspec.msgpack.encode([str(number)])])
        got = []
        for turn in (1, 2, 3):
            thread._drain(ours)
            while not commands.empty():
                got.append(commands.get())
            assert len(got) == min(count, turn * AT_ONCE)
        assert got == [Abort([str(number)]) for number in range(count)]
