"""HTTP/1.1 as clients and proxies really use it."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest

from tests.support.http1 import Connection, chunked, head, post
from tests.support.mock import MockEngine, named, rule, scripted
from tests.support.server import CHAT, COMPLETIONS, HELLO, Server
from tests.support.sse import chunks, joined
from tests.support.tokens import Pieces

LIMIT_S = 0.3  # long enough to notice bytes that must not come


@pytest.fixture
def body(pieces: Pieces) -> bytes:
    """A chat request that is answered `ab`."""
    return json.dumps({"messages": HELLO, **scripted(*pieces.many("a", "b"), then="stop")}).encode()


def is_ab(connection: Connection) -> None:
    """The next answer on the connection is the one to `body`."""
    response = connection.response()
    assert response.status == 200, response.body
    assert response.json()["choices"][0]["message"]["content"] == "ab"


# ---- bodies


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_chunked_bodies(server: Server, body: bytes, size: int) -> None:
    with server.connect() as connection:
        for _ in range(2):
            connection.send(head("POST", CHAT, content_type="application/json", transfer_encoding="chunked"))
            connection.send(chunked(body, size))
            is_ab(connection)


def test_a_body_in_many_packets(server: Server, body: bytes) -> None:
    with server.connect() as connection:
        connection.send(head("POST", CHAT, content_type="application/json", content_length=str(len(body))))
        for k in range(len(body)):
            connection.send(body[k : k + 1])
        is_ab(connection)


@pytest.mark.parametrize("coding", ["sized", "chunked"])
def test_a_late_body(server: Server, mock: MockEngine, body: bytes, coding: str) -> None:
    since = mock.mark()
    headers = {"content_length": str(len(body))} if coding == "sized" else {"transfer_encoding": "chunked"}
    with server.connect() as connection:
        connection.send(head("POST", CHAT, content_type="application/json", **headers))
        assert connection.silent(LIMIT_S)
        connection.send(body if coding == "sized" else chunked(body, 50))
        is_ab(connection)
    assert len(mock.adds(since)) == 1


def test_a_head_in_two_packets(server: Server, body: bytes) -> None:
    whole = post(CHAT, body)
    with server.connect() as connection:
        connection.send(whole[:20])
        assert connection.silent(0.05)
        connection.send(whole[20:])
        is_ab(connection)


def test_expect_continue(server: Server, body: bytes) -> None:
    with server.connect() as connection:
        headers = {"content_type": "application/json", "content_length": str(len(body)), "expect": "100-continue"}
        connection.send(head("POST", CHAT, **headers))
        status, _ = connection.response_head()
        assert status == 100
        connection.send(body)
        is_ab(connection)


def test_http_1_0_expects_nothing(server: Server, body: bytes) -> None:
    """Such a client could not tell `100 Continue` from its answer."""
    headers = {"content_type": "application/json", "content_length": str(len(body)), "expect": "100-continue"}
    with server.connect() as connection:
        connection.send(head("POST", CHAT, **headers).replace(b"HTTP/1.1", b"HTTP/1.0", 1))
        assert connection.silent(LIMIT_S)
        connection.send(body)
        assert connection.receive().startswith(b"HTTP/1.0 200")


@pytest.mark.parametrize("cut", [0, 1, 50])
def test_a_client_that_leaves_inside_its_body(server: Server, mock: MockEngine, body: bytes, cut: int) -> None:
    since = mock.mark()
    for headers in ({"content_length": str(len(body))}, {"transfer_encoding": "chunked"}):
        connection = server.connect()
        connection.send(head("POST", CHAT, content_type="application/json", **headers))
        connection.send(body[:cut] if "content_length" in headers else chunked(body[:50], 10)[: cut + 3])
        connection.reset()
    assert server.completion(max_tokens=1).status_code == 200
    assert len(mock.adds(since)) == 1


@pytest.mark.parametrize(
    "garbage",
    [b"\r\n\r\n", b"GET\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET / HTTP/9.9\r\n\r\n", b"x" * 500_000,
     b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HTTP/1.1\r\nhost: a\r\nbad header\r\n\r\n"],
)  # fmt: skip
def test_garbage_ends_its_connection_only(server: Server, garbage: bytes) -> None:
    with server.connect(1) as connection:
        try:
            connection.send(garbage)
            answer = connection.receive()
        except (ConnectionResetError, BrokenPipeError):
            answer = b""
        except TimeoutError:
            answer = b""  # still waiting for the rest of a head: allowed
        assert answer == b"" or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.0 4", b"HTTP/1.1 505", b"\0\0"))
    assert server.get("/health").status_code == 200


# ---- keep-alive and pipelining


@pytest.mark.parametrize("stream", [False, True])
def test_a_connection_is_used_again(server: Server, pieces: Pieces, stream: bool) -> None:
    fields = {"prompt": "hello", "stream": stream, **scripted(*pieces.many("a", "b"), then="stop")}
    with server.connect() as connection:
        for _ in range(20):
            connection.send(post(COMPLETIONS, fields))
            response = connection.response()
            assert response.status == 200
            text = joined(chunks(response.body)) if stream else response.json()["choices"][0]["text"]
            assert text == "ab"
            connection.send(head("GET", "/nope"))
            assert connection.response().status == 404


def test_c49_pipelined_requests_are_answered_in_order(hasty: Server, pieces: Pieces) -> None:
    """Each answer takes longer than the idle limit of the connection, which counts idle time only."""
    slow = [{"delay_ms": 1300, "tokens": [token], "finish": "length"} for token in pieces.many("a", "b")]
    with hasty.connect() as connection:
        connection.send(b"".join(post(COMPLETIONS, {"prompt": "hello", **scripted(step)}) for step in slow))
        assert [connection.response().json()["choices"][0]["text"] for _ in range(2)] == ["a", "b"]
        connection.send(head("GET", "/health"))
        assert connection.response().status == 200


def test_c49_nothing_is_answered_after_close(server: Server, body: bytes) -> None:
    with server.connect() as connection:
        connection.send(post(CHAT, body, connection="close") + post(CHAT, body))
        is_ab(connection)
        assert connection.at_end()


def test_many_pipelined_requests(server: Server, pieces: Pieces) -> None:
    texts = [f"text {k}" for k in range(30)]
    with server.connect() as connection:
        sent = b"".join(
            post(COMPLETIONS, {"prompt": "hello", "max_tokens": 99, **scripted(*pieces.encode(text), then="stop")})
            for text in texts
        )
        connection.send(sent)
        assert [connection.response().json()["choices"][0]["text"] for _ in texts] == texts


@pytest.mark.parametrize("stream", [False, True])
def test_http_1_0(server: Server, pieces: Pieces, stream: bool) -> None:
    """No chunked coding for a client that does not know it; the end of the connection ends the answer."""
    fields = {"prompt": "hello", "stream": stream, **scripted(*pieces.many("a", "b"), then="stop")}
    whole = post(COMPLETIONS, fields).replace(b"HTTP/1.1", b"HTTP/1.0", 1)
    with server.connect() as connection:
        connection.send(whole)
        answer = b""
        while data := connection.receive():
            answer += data
    top, _, content = answer.partition(b"\r\n\r\n")
    assert top.startswith(b"HTTP/1.0 200")
    assert b"chunked" not in top.lower()
    text = joined(chunks(content)) if stream else json.loads(content)["choices"][0]["text"]
    assert text == "ab"


def test_c48_idle_connections_stay_open(server: Server, body: bytes) -> None:
    """The default idle limit is above what client pools use; here the time of a common short limit passes."""
    with server.connect() as connection:
        connection.send(post(CHAT, body))
        is_ab(connection)
        assert connection.silent(6)
        connection.send(post(CHAT, body))
        is_ab(connection)


def test_c48_an_idle_limit_ends_in_a_clean_close(hasty: Server, pieces: Pieces) -> None:
    """Requests sent right around the limit: answered, or the connection was closed before; never cut."""
    request = post(COMPLETIONS, {"prompt": "hello", **scripted(pieces.byte_level("a"), then="stop")})
    outcomes: list[str] = []

    def attempt(idle_s: float) -> None:
        with hasty.connect() as connection:
            connection.send(request)
            assert connection.response().status == 200
            time.sleep(idle_s)
            try:
                connection.send(request)
                status = connection.response().status
            except (AssertionError, ConnectionResetError, BrokenPipeError) as error:
                received = error.args[0] if isinstance(error, AssertionError) else b""
                outcomes.append("closed" if not received else f"cut: {received!r}")
            else:
                outcomes.append(f"answered {status}")

    threads = [threading.Thread(target=attempt, args=(0.95 + k * 0.002,)) for k in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 50
    assert set(outcomes) <= {"closed", "answered 200"}


def test_an_idle_connection_is_closed_at_the_limit(hasty: Server) -> None:
    with hasty.connect(20) as connection:
        connection.send(head("GET", "/health"))
        assert connection.response().status == 200
        assert connection.at_end()


# ---- Upgrade


@pytest.mark.parametrize("coding", ["chunked", "sized", "late"])
def test_c50_an_offer_of_http2_is_ignored(server: Server, body: bytes, coding: str) -> None:
    offer = {
        "content_type": "application/json", "connection": "Upgrade, HTTP2-Settings", "upgrade": "h2c",
        "http2_settings": "AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA",
    }  # fmt: skip
    with server.connect() as connection:
        for _ in range(2):
            if coding == "chunked":
                connection.send(head("POST", CHAT, **offer, transfer_encoding="chunked") + chunked(body, 7))
            else:
                connection.send(head("POST", CHAT, **offer, content_length=str(len(body))))
                if coding == "late":
                    assert connection.silent(0.05)
                connection.send(body)
            is_ab(connection)


# ---- streams


def test_c60_headers_of_streams(server: Server, pieces: Pieces) -> None:
    response = server.completion(scripted(pieces.byte_level("a"), then="stop"), stream=True)
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.headers["cache-control"] == "no-cache"
    assert response.headers["x-accel-buffering"] == "no"
    assert "content-length" not in response.headers


@pytest.mark.parametrize("kind", ["chat", "completion"])
def test_nothing_is_sent_before_the_engine_has_answered(server: Server, mock: MockEngine, pieces: Pieces, kind: str) -> None:
    """Then head, role and first token leave in one write."""
    a = pieces.byte_level("a")
    path, fields = (CHAT, {"messages": HELLO}) if kind == "chat" else (COMPLETIONS, {"prompt": "hello"})
    mock.use({"when": {"name": "steps"}, **rule(a, a, then="stop")})
    since = mock.mark()
    mock.pause()
    try:
        with server.connect() as connection:
            connection.send(post(path, {**fields, "stream": True, **named("steps")}))
            mock.wait_adds(1, since)
            assert connection.silent(LIMIT_S)
            mock.step()
            first = connection.receive()
            assert first.startswith(b"HTTP/1.1 200 OK\r\n")
            assert first.count(b"data: ") == (2 if kind == "chat" else 1)
            assert (b'"role":"assistant"' in first) == (kind == "chat")
            assert b'"a"' in first
            assert connection.silent(LIMIT_S)
            mock.step()
            second = connection.receive()
            assert second.count(b"data: ") == 1
            mock.step()
            last = connection.receive()
            while not last.endswith(b"0\r\n\r\n"):
                last += connection.receive()
            assert last.count(b"data: ") == 2
            assert b"data: [DONE]" in last
    finally:
        mock.resume()


def test_each_token_is_sent_when_it_is_made(server: Server, mock: MockEngine, pieces: Pieces) -> None:
    """A chunk of the body for each step, none held back until the next."""
    mock.use({"when": {"name": "steps"}, **rule(*pieces.many("a", "b", "c"), then="stop")})
    since = mock.mark()
    mock.pause()
    try:
        with server.connect() as connection:
            connection.send(post(COMPLETIONS, {"prompt": "hello", "stream": True, **named("steps")}))
            mock.wait_adds(1, since)
            mock.step()
            connection.response_head()
            found: list[Any] = []
            for text in (b'"a"', b'"b"', b'"c"'):
                if text != b'"a"':
                    mock.step()
                found.append(connection.piece())
                assert text in found[-1]
            mock.step()
            assert connection.piece().endswith(b"data: [DONE]\n\n")
            assert connection.piece() == b""
    finally:
        mock.resume()


def test_a_whole_answer_is_sent_when_it_is_complete(server: Server, mock: MockEngine, pieces: Pieces) -> None:
    mock.use({"when": {"name": "steps"}, **rule(*pieces.many("a", "b"), then="stop")})
    since = mock.mark()
    mock.pause()
    try:
        with server.connect() as connection:
            connection.send(post(COMPLETIONS, {"prompt": "hello", **named("steps")}))
            mock.wait_adds(1, since)
            mock.step(2)
            assert connection.silent(LIMIT_S)
            mock.step()
            assert connection.response().json()["choices"][0]["text"] == "ab"
    finally:
        mock.resume()
