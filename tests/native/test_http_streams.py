"""Lanes write the tokens of their streams to real connections: natively, one chunk per token, without Python."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterator
from queue import SimpleQueue

import pytest

from fastfront._speedups.http_request import HttpRequest
from fastfront._speedups.http_server import HttpServer
from fastfront._speedups.msgpack import packb
from tests.native.conftest import Model
from tests.native.pumping import Rig
from tests.support.http1 import Connection, head

CLIENTS = 20


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
                found.append(taken.get(timeout=10))
            yield clients, found
        finally:
            for client in clients:
                client.close()
            server.quit()
            for thread in threads:
                thread.join(10)


def test_a_step_runs_no_python(qwen3: Model, requests: tuple[list[Connection], list[HttpRequest]]) -> None:
    clients, asked = requests
    rig = Rig(qwen3.vocabulary)
    streams = [rig.start(request, stream=True, stop=["nothing"])[1][0] for request in asked]  # type: ignore[arg-type]
    rig.step(*[[stream, [9707]] for stream in streams])
    message = packb([0, [[stream, [1879]] for stream in streams], None, 1.0])
    calls: list[str] = []
    sys.setprofile(lambda frame, event, _arg: calls.append(frame.f_code.co_name) if event == "call" else None)
    try:
        rig.pump.feed(message)
    finally:
        sys.setprofile(None)
    assert calls == []
    assert rig.pump.sends == 2 * CLIENTS
    for client in clients:
        status, _ = client.response_head()
        assert status == 200
        first, second = client.piece(), client.piece()
        assert b'"Hello"' in first
        assert b'" world"' in second
        assert second.count(b"data: ") == 1
