"""Streams behind a proxy that buffers what does not forbid it."""

from __future__ import annotations

import pytest

from tests.support.http1 import Connection, post
from tests.support.mock import MockEngine, named, rule
from tests.support.proxy import BufferingProxy
from tests.support.server import CHAT, HELLO, Server
from tests.support.tokens import Pieces


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "body"])
def test_c60_a_proxy_hands_each_event_on(server: Server, mock: MockEngine, pieces: Pieces, stream: bool) -> None:
    """The first token is at the client before the engine has made the second."""
    mock.use({"when": {"name": "steps"}, **rule(*pieces.many("a", "b"), then="stop")})
    since = mock.mark()
    mock.pause()
    try:
        with BufferingProxy(server.port) as proxy, Connection(("127.0.0.1", proxy.port)) as connection:
            connection.send(post(CHAT, {"messages": HELLO, "stream": stream, **named("steps")}))
            mock.wait_adds(1, since)
            mock.step()
            if stream:
                first = connection.receive()
                while b'"a"' not in first:
                    first += connection.receive()
                assert b'"b"' not in first
            mock.step()
            mock.step()
            rest = b""
            while data := connection.receive():
                rest += data
            assert (b"data: [DONE]" in rest) == stream
            assert stream or b'"content":"ab"' in rest
    finally:
        mock.resume()
