"""Clients that do not read, or do not send, cost little and not for ever."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue

from fastfront._speedups.http_request import HttpRequest
from fastfront._speedups.http_server import HttpServer
from tests.support.http1 import Connection, head
from tests.support.waiting import wait_for

BODY = b"x" * 50_000
COUNT = 1000
ROUNDS = 200
MOST_TAKEN = 500  # far more than socket buffers and the server's own bound hold of such answers


@contextmanager
def serving(
    intake: Callable[[HttpRequest], None], stall_s: float = 60.0, keep_alive_s: float = 60.0, count: int = 2, most: int = 8,
    send_buffer: int | None = None,
) -> Iterator[tuple[HttpServer, Connection]]:
    """A server of `count` threads that takes `most` connections, and a connection whose client takes little at a time.

    `send_buffer`: the kernel keeps about so many bytes of what the server has written.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        if send_buffer is not None:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)  # connections have the listener's
        listener.setblocking(False)
        server = HttpServer(listener.fileno(), intake, most, keep_alive_s, stall_s)
        threads = [threading.Thread(target=server.run) for _ in range(count)]
        for thread in threads:
            thread.start()
        connection = Connection(listener.getsockname(), receive_buffer=4096)
        try:
            yield server, connection
        finally:
            connection.close()
            server.quit()
            for thread in threads:
                thread.join(60)


def test_requests_wait_until_the_answers_before_them_are_read() -> None:
    taken: SimpleQueue[HttpRequest] = SimpleQueue()

    def answer(request: HttpRequest) -> None:
        request.response_bytes(200, [], BODY)
        taken.put(request)

    with serving(answer) as (_, connection):
        connection.send(head("GET", "/") * COUNT)
        seen = [0]

        def settled() -> bool:
            seen.append(taken.qsize())
            return seen[-1] > 0 and len(seen) > 20 and len(set(seen[-20:])) == 1

        wait_for(settled, "a server that waits for its client")
        assert taken.qsize() < MOST_TAKEN
        for _ in range(COUNT):
            assert connection.response("GET").body == BODY
        assert taken.qsize() == COUNT


def test_an_answer_that_nobody_reads_is_given_up() -> None:
    """On a connection that could be used again."""
    with serving(lambda request: request.response_bytes(200, [], BODY * 400), 0.2) as (server, connection):
        connection.send(head("GET", "/"))
        assert connection.response_head()[0] == 200
        wait_for(lambda: server.open == 0, "a closed connection")


def test_a_body_that_does_not_come_is_given_up() -> None:
    told: SimpleQueue[tuple[bytes | None, bool]] = SimpleQueue()
    kept: list[HttpRequest] = []  # as if its own thread had not come to freeing it

    def ask(request: HttpRequest) -> None:
        kept.append(request)
        request.read_body(100, lambda body, too_large: told.put((body, too_large)))

    with serving(ask, 0.2) as (server, connection):
        connection.send(head("POST", "/", content_length="100") + b"x" * 50)
        assert told.get(timeout=60) == (None, False)
        wait_for(lambda: server.open == 0, "a closed connection")


def test_a_connection_is_not_idle_with_a_request_that_waits() -> None:
    """However long it waits for a thread: closing would reset the connection, and the client not know what was done."""
    begun, go_on = threading.Event(), threading.Event()

    def answer(request: HttpRequest) -> None:
        if request.path == "/slow":
            begun.set()
            go_on.wait(60)
        request.response_bytes(200, [], b"")

    with serving(answer, keep_alive_s=0.1, count=1) as (server, connection), Connection(connection.socket.getpeername()) as slow:
        slow.send(head("GET", "/slow"))
        assert begun.wait(60)
        connection.send(head("GET", "/"))
        time.sleep(1.5)  # the limit passes, and so does the time of a look at all connections
        go_on.set()
        assert slow.response("GET").status == 200
        assert connection.response("GET").status == 200
        wait_for(lambda: server.open == 0, "idle connections to be closed")


def test_clients_beyond_the_limit_wait() -> None:
    """None is accepted and closed again when several threads see the last place at once."""
    statuses: SimpleQueue[int] = SimpleQueue()

    def ask(address: tuple[str, int]) -> None:
        for _ in range(ROUNDS):
            with Connection(address) as client:
                client.send(head("GET", "/", connection="close"))
                statuses.put(client.response("GET").status)

    with serving(lambda request: request.response_bytes(200, [], b""), count=4, most=3) as (_, connection):
        clients = [threading.Thread(target=ask, args=(connection.socket.getpeername(),)) for _ in range(16)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
    assert statuses.qsize() == 16 * ROUNDS


def test_a_body_that_is_there_can_be_had_at_once() -> None:
    told: SimpleQueue[list[bytes | None]] = SimpleQueue()

    def ask(request: HttpRequest) -> None:
        told.put([request.body_at_once(limit) for limit in (4, 5, 5)])
        request.response_bytes(200, [], b"")

    with serving(ask) as (_, connection):
        connection.send(head("POST", "/", content_length="5") + b"hello" + head("GET", "/"))
        assert told.get(timeout=60) == [None, b"hello", b""]
        assert connection.response("POST").status == 200
        assert told.get(timeout=60) == [b"", b"", b""]
        connection.response("GET")
        connection.send(head("POST", "/", content_length="5") + b"hel")
        assert told.get(timeout=60) == [None, None, None], "not all of it has come"


def test_what_is_malformed_behind_an_answer_closes_once() -> None:
    """Its place would be given to two clients otherwise."""
    with serving(lambda request: request.response_bytes(413, [], b"")) as (server, connection):
        connection.send(head("POST", "/", transfer_encoding="chunked") + b"5\r\nhello\r\n")
        assert connection.response().status == 413
        connection.send(b"no size\r\n")
        assert connection.at_end()
        wait_for(lambda: server.open == 0, "a closed connection")


def test_a_refused_client_that_goes_on_sending_is_closed() -> None:
    """However slowly."""
    with serving(lambda request: None, keep_alive_s=0.5) as (server, connection):
        connection.send(b"no HTTP\r\n\r\n")
        assert connection.response_head()[0] == 400

        def closed() -> bool:
            with contextlib.suppress(OSError):
                connection.send(b"x")
            return server.open == 0

        wait_for(closed, "a closed connection", every_s=0.5)
