"""Lanes write the tokens of their streams to real connections: natively, one chunk per token, without Python."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from functools import partial
from queue import SimpleQueue

import pytest
import zmq

from fastfront._speedups.http_request import HttpRequest
from fastfront._speedups.http_server import HttpServer
from fastfront._speedups.msgpack import packb
from fastfront.engine_client.addresses import local_addresses
from fastfront.engine_client.handshake import bind_lanes
from tests.native.conftest import Model
from tests.native.pumping import Rig, python_functions
from tests.support.http1 import Connection, head

CLIENTS = 20
STEPS = 50


@pytest.fixture
def requests() -> Iterator[tuple[list[Connection], list[HttpRequest]]]:
    """Clients, and their requests, which nobody has answered."""
    taken: SimpleQueue[HttpRequest] = SimpleQueue()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        server = HttpServer(listener.fileno(), taken.put, CLIENTS, 60.0)
        threads = [threading.Thread(target=server.run) for _ in range(2)]
        for thread in threads:
            thread.start()
        clients = [Connection(listener.getsockname()) for _ in range(CLIENTS)]
        try:
            found = []
            for client in clients:  # one after the other, so that both lists have the same order
                client.send(head("GET", "/"))
                found.append(taken.get(timeout=60))
            yield clients, found
        finally:
            for client in clients:
                client.close()
            server.quit()
            for thread in threads:
                thread.join(60)


def test_a_step_runs_no_python(qwen3: Model, requests: tuple[list[Connection], list[HttpRequest]]) -> None:
    clients, asked = requests
    rig = Rig(qwen3.vocabulary)
    streams = [rig.start(request, stream=True, stop=["nothing"])[1][0] for request in asked]  # type: ignore[arg-type]
    rig.step(*[[stream, [9707]] for stream in streams])
    message = packb([0, [[stream, [1879]] for stream in streams], None, 1.0])
    assert python_functions(partial(rig.pump.feed, message)) == []
    assert rig.pump.sends == 2 * CLIENTS
    for client in clients:
        status, _ = client.response_head()
        assert status == 200
        first, second = client.piece(), client.piece()
        assert b'"Hello"' in first
        assert b'" world"' in second
        assert second.count(b"data: ") == 1


def test_a_lane_stays_in_native_code_while_tokens_come(
    qwen3: Model, requests: tuple[list[Connection], list[HttpRequest]]
) -> None:
    """From the engine's socket to the clients' over many steps: Python is needed only when a message asks for it."""
    clients, asked = requests
    rig = Rig(qwen3.vocabulary)
    streams = [rig.start(request, stream=True, stop=["nothing"])[1][0] for request in asked]  # type: ignore[arg-type]
    rig.step(*[[stream, [9707]] for stream in streams])
    (lane,) = bind_lanes(local_addresses(1), engines=1)
    with zmq.Context() as context, context.socket(zmq.PUSH) as engine:
        engine.connect(lane.output_address)
        for _ in range(STEPS):
            engine.send(packb([0, [[stream, [1879]] for stream in streams], None, 1.0]))
        engine.send(packb([0, [], None, 1.0, [7, None, [None, True]]]))
        assert python_functions(partial(rig.pump.run, lane.sockets, 30_000)) == []
    lane.sockets.close()
    assert rig.pump.sends == (1 + STEPS) * CLIENTS
    for client in clients:
        client.response_head()
        assert len({client.piece() for _ in range(1 + STEPS)}) == 2  # one piece for each step, all alike but the first
