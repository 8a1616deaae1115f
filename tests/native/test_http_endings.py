"""What has been answered arrives whole, and what has been asked is answered, however a connection ends or its bytes come."""

from __future__ import annotations

import contextlib
import gc
import socket
import threading
import time
from queue import SimpleQueue

import pytest

from fastfront._speedups.http_request import HttpRequest
from tests.fuzz.connections import campaign
from tests.native.test_http_connections import serving
from tests.support.http1 import Connection, head
from tests.support.waiting import wait_for

LARGE = b"x" * 200_000  # more than the kernel keeps of an answer with SEND_BUFFER, less than the server does
SEND_BUFFER = 4096
READ_BYTES = 65536  # what the server takes at once


def rest_of(connection: Connection) -> bytes:
    """All that comes until the end."""
    return b"".join(iter(connection.receive, b""))


def test_a_client_that_says_no_more_gets_its_answer_whole() -> None:
    """Also if it does so when part of the answer is on its way."""
    with serving(lambda request: request.response_bytes(200, [], LARGE), send_buffer=SEND_BUFFER) as (_, connection):
        connection.send(head("GET", "/"))
        status, headers = connection.response_head()
        assert (status, dict(headers)["content-length"]) == (200, str(len(LARGE)))
        connection.socket.shutdown(socket.SHUT_WR)
        assert rest_of(connection) == LARGE


def test_all_requests_of_a_client_that_says_no_more_are_answered() -> None:
    go_on = threading.Event()

    def answer(request: HttpRequest) -> None:
        go_on.wait(60)
        request.response_bytes(200, [], request.path.encode())

    with serving(answer) as (server, connection):
        connection.send(b"".join(head("GET", f"/{k}") for k in range(3)))
        connection.socket.shutdown(socket.SHUT_WR)
        go_on.set()
        assert [connection.response().body for _ in range(3)] == [b"/0", b"/1", b"/2"]
        assert connection.at_end()
        wait_for(lambda: server.open == 0, "a closed connection")


@pytest.mark.parametrize("size", [0, len(LARGE)])
def test_closing_resets_nothing_that_the_client_has_not_read(size: int) -> None:
    """It may have sent more than anybody wants."""
    go_on = threading.Event()

    def answer(request: HttpRequest) -> None:
        go_on.wait(60)
        request.response_bytes(200, [], LARGE[:size])

    with serving(answer, send_buffer=SEND_BUFFER) as (server, connection):
        connection.send(head("GET", "/", connection="close") + b"x" * 3 * READ_BYTES)
        go_on.set()
        assert len(connection.response().body) == size
        assert connection.socket.recv(1) == b""
        connection.close()
        wait_for(lambda: server.open == 0, "a closed connection")


def test_an_answer_has_time_however_late_it_came() -> None:
    """The last of its connection: what has taken long before does not count."""
    stall_s, looked_s = 2.0, 1.4  # all connections are looked at every second

    def answer(request: HttpRequest) -> None:
        time.sleep(stall_s + 0.2)
        request.response_bytes(200, [], LARGE * 100)
        answered.put(time.monotonic())

    answered: SimpleQueue[float] = SimpleQueue()
    while True:
        with serving(answer, stall_s) as (server, connection):
            connection.send(head("GET", "/", connection="close"))
            since = answered.get(timeout=60)
            time.sleep(looked_s)
            is_open = server.open
            if time.monotonic() - since < stall_s:  # else its time was over, by whatever held up this thread
                assert is_open
                return


def test_requests_that_end_where_a_read_ends() -> None:
    """Those behind it are there already, and no event tells of them again."""
    count = 3 * READ_BYTES // 64
    begun, go_on = threading.Event(), threading.Event()

    def answer(request: HttpRequest) -> None:
        begun.set()
        go_on.wait(60)
        request.response_bytes(200, [], b"")

    request = head("GET", "/".ljust(64 - len(head("GET", "")), "x"))
    assert len(request) == 64
    with serving(answer, count=1) as (_, connection), Connection(connection.socket.getpeername()) as asking:
        connection.send(head("GET", "/"))
        assert begun.wait(60)
        asking.send(request * count)
        go_on.set()
        assert connection.response().status == 200
        for _ in range(count):
            assert asking.response().status == 200


def test_urgent_data_hides_no_request() -> None:
    """A read ends in front of it, and so does what is told of the bytes behind it."""
    begun, go_on = threading.Event(), threading.Event()

    def answer(request: HttpRequest) -> None:
        begun.set()
        go_on.wait(60)
        request.response_bytes(200, [], b"")

    with (
        serving(answer, keep_alive_s=0.1, count=1) as (server, connection),
        Connection(connection.socket.getpeername()) as asking,
    ):
        connection.send(head("GET", "/"))
        assert begun.wait(60)
        asking.send(head("GET", "/"))
        asking.socket.send(b"!", socket.MSG_OOB)
        asking.send(head("GET", "/"))
        go_on.set()
        assert [asking.response().status for _ in range(2)] == [200, 200]
        wait_for(lambda: server.open == 0, "closed connections")


@pytest.mark.parametrize(("begin", "drip"), [(b"", b"\r\n"), (b"GET /", b"x"), (b"GET / HTTP/1.1\r\na:", b" ")])
def test_a_head_has_to_come_in_time(begin: bytes, drip: bytes) -> None:
    """However much comes of it, or in front of it."""
    with serving(lambda request: None, keep_alive_s=0.5) as (server, connection):
        connection.send(begin)
        wait_for(lambda: server.open == 1, "a connection")

        def closed() -> bool:
            with contextlib.suppress(OSError):
                connection.send(drip)
            return server.open == 0

        wait_for(closed, "a closed connection", every_s=0.1)


@pytest.mark.parametrize("drip", [b"x" * 1000, b"0" * 1000])
def test_what_frames_a_body_has_a_limit(drip: bytes) -> None:
    """Extensions of a chunk, and the digits of its size."""
    told: SimpleQueue[tuple[bytes | None, bool]] = SimpleQueue()
    with serving(lambda request: request.read_body(100, lambda *got: told.put(got))) as (_, connection):
        connection.send(head("POST", "/", transfer_encoding="chunked") + (b"5;" if drip[:1] == b"x" else b""))

        def refused() -> bool:
            connection.send(drip)
            return not told.empty()

        wait_for(refused, "an end of it", every_s=0)
        assert told.get() == (None, False)


def test_a_malformed_body_is_answered() -> None:
    asked = threading.Event()
    told: SimpleQueue[tuple[bytes | None, bool]] = SimpleQueue()

    def ask(request: HttpRequest) -> None:
        request.read_body(100, lambda *got: told.put(got))
        asked.set()

    with serving(ask) as (server, connection):
        connection.send(head("POST", "/", transfer_encoding="chunked") + b"5\r\nhello\r\n")
        assert asked.wait(60)
        connection.send(b"no size\r\n")
        assert connection.response().status == 400
        assert told.get(timeout=60) == (None, False)
        assert connection.at_end()
        connection.close()
        wait_for(lambda: server.open == 0, "a closed connection")


@pytest.mark.parametrize("ending", ["whole", "cut", "malformed"])
def test_a_body_is_given_to_who_asked_also_behind_the_answer(ending: str) -> None:
    told: SimpleQueue[tuple[bytes | None, bool]] = SimpleQueue()
    kept: list[HttpRequest] = []

    def answer(request: HttpRequest) -> None:
        kept.append(request)
        request.read_body(100, lambda *got: told.put(got))
        request.response_bytes(200, [], b"")

    with serving(answer) as (server, connection):
        connection.send(head("POST", "/", transfer_encoding="chunked") + b"5\r\nhello\r\n")
        assert connection.response().status == 200
        connection.send(b"0\r\n\r\n" if ending == "whole" else b"no size\r\n" if ending == "malformed" else b"3\r\n")
        if ending != "malformed":
            connection.socket.shutdown(socket.SHUT_WR)
        assert told.get(timeout=60) == ((b"hello" if ending == "whole" else None), False)
        assert connection.at_end()
        wait_for(lambda: server.open == 0, "a closed connection")


def test_an_announced_end_is_one() -> None:
    """Part of a body has come that is not wanted, though its client could wait to be asked for it."""
    with serving(lambda request: request.response_bytes(413, [], b"")) as (_, connection):
        connection.send(head("POST", "/", content_length="5", expect="100-continue") + b"he")
        response = connection.response()
        connection.send(b"llo" + head("GET", "/"))
        if response.header("connection") == "close":
            assert connection.at_end()
        else:
            assert connection.response().status == 413


def test_an_answer_is_one_answer() -> None:
    """A whole one does not go into one that has begun."""

    def answer(request: HttpRequest) -> None:
        stream = request.response_stream(200, [])
        stream.send_bytes(b"one")
        request.response_bytes(500, [], b"failed")
        stream.send_bytes(b"two")
        stream.end()

    with serving(answer) as (_, connection):
        connection.send(head("GET", "/"))
        assert connection.response().pieces == [b"one", b"two"]


def test_answers_without_a_body_have_none() -> None:
    with serving(lambda request: request.response_bytes(204, [], b"body")) as (_, connection):
        connection.send(head("GET", "/") * 2)
        assert [connection.response().status for _ in range(2)] == [204, 204]


class Box:
    """Is garbage that only the collector finds."""

    def __init__(self, kept: object) -> None:
        self.kept = kept
        self.own = self


def test_what_is_dropped_in_a_cycle_is_answered() -> None:
    dropped = threading.Semaphore(0)

    def drop(request: HttpRequest) -> None:
        if request.path == "/stream":
            stream = request.response_stream(200, [])
            stream.send_bytes(b"begun")
            Box(stream)
        Box(request)
        dropped.release()

    with serving(drop) as (server, connection), Connection(connection.socket.getpeername()) as other:
        connection.send(head("GET", "/"))
        other.send(head("GET", "/stream"))
        assert dropped.acquire(timeout=60)
        assert dropped.acquire(timeout=60)
        wait_for(lambda: gc.collect() >= 0 and server.open == 0, "closed connections")
        assert connection.response().status == 500
        assert other.response_head()[0] == 200
        assert other.piece() == b"begun"
        assert other.at_end()


def test_a_stream_that_is_cut_off_looks_so() -> None:
    """Where only the connection's end says that it is whole."""

    def answer(request: HttpRequest) -> None:
        request.response_stream(200, []).send_bytes(b"begun")
        request.abandon()

    with serving(answer) as (_, connection):
        connection.send(b"GET / HTTP/1.0\r\n\r\n")
        with pytest.raises(ConnectionResetError):
            rest_of(connection)


def test_clients_of_all_kinds() -> None:
    """A short turn of `make fuzz`'s."""
    answers, hostile = campaign(2.0, seed=1, n_good=2, n_bad=4)
    assert answers > 0
    assert hostile > 0
