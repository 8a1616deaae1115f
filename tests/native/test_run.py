"""A lane's native loop: from what an engine has pushed to the clients, and when it comes back to Python."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import zmq

from fastfront._speedups.msgpack import packb
from fastfront._speedups.pump import ANSWERED, DEAD, MALFORMED
from fastfront._speedups.vocabulary import Vocabulary
from fastfront.engine_client.addresses import local_addresses
from fastfront.engine_client.handshake import LaneSockets, bind_lanes
from tests.native.pumping import Client, Rig
from tests.native.tiny import NATIVE


class Engine:
    """Pushes to a lane as an engine does."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], lane: LaneSockets) -> None:
        self.socket = context.socket(zmq.PUSH)
        self.socket.connect(lane.output_address)

    def push(self, *frames: bytes) -> None:
        self.socket.send_multipart(list(frames))


@pytest.fixture
def lane() -> Iterator[LaneSockets]:
    (lane,) = bind_lanes(local_addresses(1), engines=2)
    yield lane
    lane.sockets.close()


@pytest.fixture
def engines(lane: LaneSockets) -> Iterator[list[Engine]]:
    with zmq.Context() as context:
        engines = [Engine(context, lane) for _ in range(2)]
        yield engines
        for engine in engines:
            engine.socket.close(0)


@pytest.fixture
def rig() -> Rig:
    return Rig(Vocabulary.from_tokenizer(NATIVE["byte-level"][1]()), engines=2, local_engines=2)


def output(request: str, ids: list[int], finish: int | None = None) -> list[object]:
    return [request, ids, None, None, None, finish, None]


def test_from_an_engine_to_its_client(rig: Rig, lane: LaneSockets, engines: list[Engine]) -> None:
    client = Client()
    _, (request,) = rig.start(client, stream=True)
    engines[0].push(packb([0, [output(request, [104])], None, 1.0]))
    assert rig.pump.run(lane.sockets, 30_000) == (ANSWERED, 0, None)  # the stream is opened by Python
    engines[0].push(packb([0, [output(request, [105])], None, 1.0]))
    engines[0].push(packb([0, [output(request, [], 1)], None, 1.0]))
    while rig.pump.live:
        assert rig.pump.run(lane.sockets, 30_000) == (ANSWERED, 0, None)
    assert client.status == 200
    assert client.text() == "hi"


def test_patience_and_wake_bring_it_back(rig: Rig, lane: LaneSockets) -> None:
    assert rig.pump.run(lane.sockets, 0) is None
    assert rig.pump.run(lane.sockets, 5) is None
    threading.Timer(0.05, lane.sockets.wake).start()
    assert rig.pump.run(lane.sockets, -1) is None


def test_messages_without_news_do_not_bring_it_back(rig: Rig, lane: LaneSockets, engines: list[Engine]) -> None:
    for step in range(50):
        engines[0].push(packb([0, [], None, float(step)]))
    engines[0].push(packb([0, [], None, 1.5, [7, None, [None, True]]]))
    what, engine, rest = rig.pump.run(lane.sockets, 30_000)
    assert (what, engine) == (ANSWERED, 0)
    assert rest.endswith(packb([7, None, [None, True]]))


@pytest.mark.parametrize(
    ("message", "engine"),
    [
        (b"\x99\x01\x90", 1),
        (b"\xdc\x00\x09\x00", 0),
        (b"\x99\xff", -1),
        (b"\x99\xc3", -1),
        (b"\x99", -1),
        (b"\xc1", -1),
        (b"", -1),
    ],
)
def test_whose_a_malformed_message_is(rig: Rig, lane: LaneSockets, engines: list[Engine], message: bytes, engine: int) -> None:
    engines[0].push(message)
    assert rig.pump.run(lane.sockets, 30_000) == (MALFORMED, engine, None)


def test_a_malformed_message_is_from_whom_the_one_before_was(rig: Rig, lane: LaneSockets, engines: list[Engine]) -> None:
    engines[1].push(packb([1, [], None, 1.0]))
    engines[1].push(b"\xc1")
    assert rig.pump.run(lane.sockets, 30_000) == (MALFORMED, 1, None)


def test_an_engine_that_says_it_leaves(rig: Rig, lane: LaneSockets, engines: list[Engine]) -> None:
    engines[0].push(b"ENGINE_CORE_DEAD")
    assert rig.pump.run(lane.sockets, 30_000) == (DEAD, -1, None)
    engines[1].push(packb([1, [], None, 1.0]))
    engines[1].push(b"ENGINE_CORE_DEAD")
    assert rig.pump.run(lane.sockets, 30_000) == (DEAD, 1, None)


def test_frames_behind_a_message_are_its_arrays(rig: Rig, lane: LaneSockets, engines: list[Engine]) -> None:
    client = Client()
    _, (request,) = rig.start(client, stream=False, logprobs=1)
    ids, logprobs, ranks = b"h\0\0\0i\0\0\0", b"\0\0\0\xbf\0\0\x80\xbf", b"\1\0\0\0"
    arrays = [["<i4", [1, 2], 1], ["<f4", [1, 2], 2], ["<i4", [1], 3], None]
    engines[0].push(packb([0, [[request, [104], arrays, None, None, 1, None]], None, 1.0]), ids, logprobs, ranks)
    assert rig.pump.run(lane.sockets, 30_000) == (ANSWERED, 0, None)
    assert client.status == 200
    assert b'"logprob":-0.5' in client.body
