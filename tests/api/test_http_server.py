"""The HTTP server under clients that read slowly, stop half-way, ask oddly, or send anything at all."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import threading
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime
from typing import Any

import pytest

from tests.support.http1 import Connection, Response, head, post
from tests.support.mock import MockEngine, scripted
from tests.support.processes import open_files
from tests.support.server import CHAT, COMPLETIONS, HELLO, Server
from tests.support.sse import chunks, joined
from tests.support.tokens import Pieces
from tests.support.waiting import wait_for

LONG = 2000  # tokens of an answer that no socket buffer of SMALL_BUFFER takes at once
SMALL_BUFFER = 4096
SEED = 7


def narrow(server: Server) -> Connection:
    """A connection whose client takes little at a time."""
    return Connection(server.address, receive_buffer=SMALL_BUFFER)


def fields(pieces: Pieces, tokens: int = LONG, **more: Any) -> dict[str, Any]:
    ids = [pieces.byte_level(letter) for letter in "abcdefgh"] * (tokens // 8)
    return {"prompt": "hello", "max_tokens": tokens, "min_tokens": tokens, **scripted(*ids, then="stop"), **more}


def test_slow_readers_get_everything_and_hold_up_nobody(server: Server, pieces: Pieces) -> None:
    """Their bytes wait in the server, which writes on as they read; several answers of one connection stay in order."""
    readers = [narrow(server) for _ in range(4)]
    request = post(COMPLETIONS, fields(pieces, stream=True))
    whole = post(COMPLETIONS, fields(pieces, tokens=8))
    for reader in readers:
        reader.send(request + whole + request)
    assert server.completion(fields(pieces, tokens=8)).json()["choices"][0]["text"] == "abcdefgh"
    for reader in readers:
        with reader:
            for expected in ("abcdefgh" * (LONG // 8), "abcdefgh", "abcdefgh" * (LONG // 8)):
                response = reader.response()
                stream = response.header("transfer-encoding") == "chunked"
                text = joined(chunks(response.body)) if stream else response.json()["choices"][0]["text"]
                assert text == expected


def test_a_slow_reader_gets_the_last_answer_of_its_connection(server: Server, pieces: Pieces) -> None:
    """The connection closes behind it, once it is written."""
    with narrow(server) as reader:
        reader.send(post(COMPLETIONS, fields(pieces), connection="close"))
        response = reader.response()
        assert response.json()["choices"][0]["text"] == "abcdefgh" * (LONG // 8)
        assert reader.at_end()


@pytest.mark.parametrize("path", ["/health", "/v1/models", "/version", "/nope"])
def test_half_closed_clients_are_answered(server: Server, path: str) -> None:
    """As `printf ... | nc` does; nothing has to be generated for it."""
    with server.connect() as connection:
        connection.send(head("GET", path))
        connection.socket.shutdown(socket.SHUT_WR)
        assert connection.response("GET").status == (404 if path == "/nope" else 200)
        assert connection.at_end()


def test_forms_of_a_target(server: Server) -> None:
    with server.connect() as connection:
        for target, status in (
            ("/health?x=1", 200), ("/health#top", 200), ("/%68ealth", 200), ("http://elsewhere.example/health", 200),
            ("http://elsewhere.example?to=/health", 404), ("http://elsewhere.example", 404),
            ("/health/../nope", 404), ("*", 404), ("/%ff%00", 404), ("//health", 404),
        ):  # fmt: skip
            connection.send(head("GET", target))
            assert connection.response().status == status, target


def test_head_requests_get_no_body(server: Server) -> None:
    with server.connect() as connection:
        for path in ("/health", "/nope", CHAT):
            connection.send(head("HEAD", path))
            response = connection.response("HEAD")
            assert response.status in (404, 405)
        connection.send(head("GET", "/health"))
        assert connection.response().status == 200


def test_header_values_are_trimmed_and_latin_1(guarded: Server) -> None:
    with guarded.connect() as connection:
        connection.send(head("GET", "/v1/models", authorization="Bearer first-key \t", x_request_id="\u00e9 x"))
        response = connection.response()
        assert response.status == 200
        assert response.header("x-request-id") == "\u00c3\u00a9 x", "the bytes that were sent, read as latin-1"


def test_expectations_of_refused_bodies(guarded: Server) -> None:
    """No `100 Continue`; the connection closes, as nobody knows whether the body will still come."""
    with guarded.connect() as connection:
        connection.send(head("POST", CHAT, content_length="5000", expect="100-continue"))
        response = connection.response()
        assert response.status == 401
        assert response.header("connection") == "close"
        assert connection.at_end()


def test_a_refused_body_is_read_to_its_end(guarded: Server) -> None:
    """The answer comes before the body has, and the connection stays usable."""
    body = b"x" * 50_000
    with guarded.connect() as connection:
        connection.send(head("POST", CHAT, content_length=str(len(body))))
        assert connection.response().status == 401
        for at in range(0, len(body), 10_000):
            connection.send(body[at : at + 10_000])
        connection.send(head("GET", "/health"))
        assert connection.response().status == 200


def test_more_packets_than_one_read(server: Server, pieces: Pieces) -> None:
    """Requests beyond what one read takes are found without a further event."""
    request = post(COMPLETIONS, {**fields(pieces, tokens=8), "user": "u" * 30_000})
    with server.connect() as connection:
        count = 12
        sender = threading.Thread(target=lambda: connection.send(request * count))
        sender.start()
        texts = [connection.response().json()["choices"][0]["text"] for _ in range(count)]
        sender.join()
        assert texts == ["abcdefgh"] * count


def test_anything_at_all(server: Server, mock: MockEngine) -> None:
    """Random bytes, and requests with random changes: the server survives, and so do its other connections."""
    rng = random.Random(SEED)
    request = post(CHAT, {"messages": HELLO, "max_tokens": 1})
    heads = head("POST", CHAT, transfer_encoding="chunked", content_type="application/json")
    before = open_files(server.pid)
    good = server.connect()
    for turn in range(300):
        if turn % 3 == 0:
            data = rng.randbytes(rng.randrange(1, 400))
        else:
            changed = bytearray(request if turn % 3 == 1 else heads + b"5\r\nhello\r\n0\r\n\r\n")
            for _ in range(rng.randrange(1, 4)):
                changed[rng.randrange(len(changed))] = rng.randrange(256)
            data = bytes(changed)
        with server.connect() as connection, contextlib.suppress(OSError):
            for at in range(0, len(data), size := rng.randrange(1, 500)):
                connection.send(data[at : at + size])
            if rng.random() < 0.5:
                connection.socket.shutdown(socket.SHUT_WR)
                connection.receive()
            elif rng.random() < 0.5:
                connection.reset()
        if turn % 50 == 0:
            good.send(head("GET", "/health"))
            assert good.response().status == 200
    good.close()
    wait_for(lambda: open_files(server.pid) <= before, "all connections to be seen to")
    mock.wait_idle()


def test_answers_have_the_usual_headers(server: Server) -> None:
    with server.connect() as connection:
        connection.send(head("GET", "/version"))
        response: Response = connection.response()
    assert response.header("content-type") == "application/json"
    assert response.header("content-length") == str(len(response.body))
    date = response.header("date")
    assert date is not None
    assert date.endswith(" GMT")
    said = parsedate_to_datetime(date)
    assert format_datetime(said, usegmt=True) == date
    assert abs((said - datetime.now(UTC)).total_seconds()) < 60
    assert json.loads(response.body)["version"]
