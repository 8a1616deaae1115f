"""Connections of clients that cut, mix up, and leave: `python -m tests.fuzz.connections [--seconds S] [--seed N]`.

Invariants, without and with TLS, whatever the bytes' cuts and whoever else is connected:
  every request of a client that keeps to HTTP is answered once, in order, byte for byte, also behind its own half-close
  who asks for a body is told once, whole or that it does not come
  in the end no connection, descriptor or request is left

A failure prints its client's seed and ends with status 1. Build the extensions with sanitizers to see more (FASTFRONT_CFLAGS).
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import random
import select
import socket
import ssl
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from fastfront._speedups.http_request import HttpRequest
from fastfront._speedups.http_server import HttpServer
from fastfront._speedups.tls import TlsContext
from tests.support.certificates import make
from tests.support.http1 import Connection, chunked, head
from tests.support.waiting import wait_for

PATTERN = bytes(range(251)) * 5000
BODY_LIMIT = 200_000
KEEP_ALIVE_S = 3.0
STALL_S = 4.0
SERVERS = 2  # without and with TLS


def pattern(size: int) -> bytes:
    return PATTERN[:size]


class Intake:
    """Answers on the server's thread or on another; counts who has been told of a body."""

    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(3)
        self.asked: SimpleQueue[None] = SimpleQueue()
        self.told: SimpleQueue[None] = SimpleQueue()

    def __call__(self, request: HttpRequest) -> None:
        kind, _, size = request.path.lstrip("/").partition("/")
        if kind == "late":  # answered before its body has come, and asked for nevertheless
            self.ask(request, lambda body: None)
            request.response_bytes(200, [], b"late")
        elif kind == "unread":
            request.response_bytes(200, [], b"unread")
        elif kind == "leave":
            if request.watch(request.abandon):
                request.abandon()
        else:
            self.ask(request, lambda body: self.answer(request, kind, body, int(size) if size.isdigit() else 0))

    def ask(self, request: HttpRequest, go_on: Callable[[bytes], object]) -> None:
        def done(body: bytes | None, too_large: bool) -> None:
            self.told.put(None)
            if too_large:
                request.response_bytes(413, [], b"large")
            elif body is not None:
                go_on(body)

        self.asked.put(None)
        request.read_body(BODY_LIMIT, done)

    def answer(self, request: HttpRequest, kind: str, body: bytes, size: int) -> None:
        if kind == "here":
            request.response_bytes(200, [], body + pattern(size))
        elif kind == "there":
            self.pool.submit(request.response_bytes, 200, [], body + pattern(size))
        elif kind == "stream":
            self.pool.submit(self.stream, request, body + pattern(size))
        else:
            request.response_bytes(404, [], b"")

    def stream(self, request: HttpRequest, data: bytes) -> None:
        stream = request.response_stream(200, [])
        step = 1 + len(data) // 7
        for at in range(0, len(data), step):
            if not stream.send_bytes(data[at : at + step]):
                request.abandon()
                return
        stream.end()


class Asking:
    """Requests, and what their answers have to be."""

    def __init__(self, rng: random.Random) -> None:
        self.data = b""
        self.answers: list[bytes] = []
        for _ in range(rng.choice((1, 1, 2, 5, 30))):
            self._add(rng)

    def _add(self, rng: random.Random) -> None:
        kind = rng.choice(("here", "there", "stream", "late", "unread"))
        size = rng.choice((0, 1, 100, 5000, 60_000, 1_000_000 if rng.random() < 0.1 else 10))
        body = pattern(rng.choice((0, 1, 50, 3000, 150_000 if rng.random() < 0.1 else 9)))
        path = f"/{kind}/{size}" + "?" + "q" * rng.randrange(60)
        if rng.random() < 0.5:
            self.data += head("POST", path, content_length=str(len(body))) + body
        else:
            self.data += head("POST", path, transfer_encoding="chunked") + chunked(body, rng.choice((1, 10, 4000)) if body else 1)
        self.answers.append(kind.encode() if kind in ("late", "unread") else body + pattern(size))


class Sealed(Connection):
    """With TLS."""

    def __init__(self, address: tuple[str, int], context: ssl.SSLContext, receive_buffer: int | None) -> None:
        super().__init__(address, receive_buffer=receive_buffer)
        self.socket = context.wrap_socket(self.socket, server_hostname="localhost")


def pieces(rng: random.Random, data: bytes) -> list[bytes]:
    size = rng.choice((1, 7, 100, 1460, 65536, len(data)))
    if size < 100 and len(data) > 5000:
        size = 997
    return [data[at : at + size] for at in range(0, len(data), max(1, size))]


def good(rng: random.Random, address: tuple[str, int], context: ssl.SSLContext | None) -> int:
    """Asks on one connection; how many answers were right."""
    buffer = rng.choice((None, None, 4096))
    connection = Connection(address, receive_buffer=buffer) if context is None else Sealed(address, context, buffer)
    count = 0
    with connection:
        for _ in range(rng.randrange(1, 4)):
            asking = Asking(rng)
            last = context is None and rng.random() < 0.2
            if context is None:  # an SSLSocket is one thread's
                sender = threading.Thread(target=send_all, args=(connection, pieces(rng, asking.data), last))
                sender.start()
                for answer in asking.answers:
                    assert connection.response().body == answer
                    count += 1
                sender.join()
            else:
                for part, answer in singly(asking):
                    connection.send(part)
                    assert connection.response().body == answer
                    count += 1
            if last:
                assert connection.at_end()
                break
    return count


def send_all(connection: Connection, parts: list[bytes], last: bool) -> None:
    """`last`: nothing more will be said."""
    for part in parts:
        connection.send(part)
    if last:
        connection.socket.shutdown(socket.SHUT_WR)


def singly(asking: Asking) -> list[tuple[bytes, bytes]]:
    """One request after the other."""
    marks = asking.data.split(b"POST /")[1:]
    return [(b"POST /" + part, answer) for part, answer in zip(marks, asking.answers, strict=True)]


def damaged(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((0, 0, 1, 3))):
        at = rng.randrange(len(changed))
        new = (b"\r\n", b"\0", b"\r\n\r\n", b"0\r\n\r\n", rng.randbytes(rng.randrange(1, 9)))
        changed[at : at + rng.randrange(3)] = rng.choice(new)
    return bytes(changed)


def sealed_bytes(rng: random.Random, connection: Connection, context: ssl.SSLContext, data: bytes) -> bytes:
    """A handshake, perhaps to its end, and what is to be sent then."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    while rng.random() < 0.95:
        try:
            client.do_handshake()
            break
        except ssl.SSLWantReadError:
            connection.send(outgoing.read())
            incoming.write(connection.receive())
    else:
        return outgoing.read() + rng.randbytes(50)
    for at in range(0, len(data), 5000):
        client.write(data[at : at + 5000])
    if rng.random() < 0.2:
        with contextlib.suppress(ssl.SSLError):
            client.unwrap()
    return outgoing.read()


def bad(rng: random.Random, address: tuple[str, int], context: ssl.SSLContext | None) -> int:
    """Sends what is nearly right, reads or does not, and leaves somehow."""
    with contextlib.suppress(OSError, ssl.SSLError), Connection(address, receive_buffer=rng.choice((None, 4096))) as connection:
        data = damaged(rng, Asking(rng).data)
        if rng.random() < 0.2:
            data = head("POST", "/leave") + data[:1000]  # behind more than the kernel keeps, its leaving would not be seen
        if rng.random() < 0.2:
            data = head("POST", "/there/9", content_length="9", expect="100-continue", connection="close") + data
        if context is not None:
            data = sealed_bytes(rng, connection, context, data)
            if rng.random() < 0.3:
                data = damaged(rng, data)
        data = data[: rng.choice((len(data), rng.randrange(len(data) + 1)))]
        for piece in pieces(rng, data):
            if select.select([], [connection.socket], [], 0.2)[1]:
                connection.socket.send(piece, socket.MSG_OOB if rng.random() < 0.02 else 0)
            elif rng.random() < 0.5:
                break
            if rng.random() < 0.3:
                connection.socket.settimeout(0.001)
                with contextlib.suppress(TimeoutError):
                    connection.receive()
                connection.socket.settimeout(60)
        leaving = rng.randrange(4)
        if leaving == 0:
            connection.reset()
        elif leaving == 1:
            connection.socket.shutdown(socket.SHUT_WR)
            while connection.receive():
                pass
        elif leaving == 2:
            time.sleep(rng.random() * KEEP_ALIVE_S * 1.5)
    return 0


def campaign(seconds: float, seed: int, n_good: int, n_bad: int) -> tuple[int, int]:
    """How many right answers there were, and hostile connections. Raises AssertionError."""
    failures: list[str] = []
    counts: SimpleQueue[tuple[bool, int]] = SimpleQueue()
    intake = Intake()
    descriptors = len(os.listdir("/proc/self/fd"))
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        own = make(Path(folder), "server")
        context = ssl.create_default_context(cafile=str(own.cert))
        server: HttpServer | None = None
        servers: list[HttpServer] = []
        threads, addresses = [], []
        for number in range(SERVERS):
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            listener.setblocking(False)
            tls = TlsContext(str(own.cert), str(own.key)) if number else None
            servers.append(HttpServer(listener.fileno(), intake, 64, KEEP_ALIVE_S, STALL_S, tls))
            addresses.append(listener.getsockname())
        deadline = time.monotonic() + seconds

        def run(number: int, is_good: bool) -> None:
            turn = 0
            while time.monotonic() < deadline and not failures:
                name = f"{seed}/{number}/{turn}"
                rng = random.Random(name)
                side = rng.randrange(SERVERS)
                try:
                    counts.put((is_good, (good if is_good else bad)(rng, addresses[side], context if side else None)))
                except Exception:
                    kind = ("good " if is_good else "bad ") + ("TLS" if side else "plain")
                    failures.append(f"client {name}, {kind}:\n{traceback.format_exc()}")
                turn += 1

        for server in servers:
            threads += [threading.Thread(target=server.run) for _ in range(2)]
        clients = [threading.Thread(target=run, args=(number, number < n_good)) for number in range(n_good + n_bad)]
        for thread in threads + clients:
            thread.start()
        try:
            for client in clients:
                client.join()
            assert not failures, failures[0]
            wait_for(lambda: all(server.open == 0 for server in servers), "no connection")
        finally:
            for server in servers:
                server.quit()
            for thread in threads:
                thread.join()
            intake.pool.shutdown()
        gc.collect()
        assert intake.asked.qsize() == intake.told.qsize()
        server = None
        servers.clear()
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == descriptors
    found = [counts.get() for _ in range(counts.qsize())]
    return sum(n for is_good, n in found if is_good), sum(not is_good for is_good, _ in found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--good", type=int, default=4)
    parser.add_argument("--bad", type=int, default=8)
    options = parser.parse_args()
    answers, hostile = campaign(options.seconds, options.seed, options.good, options.bad)
    print(f"{answers} right answers beside {hostile} hostile connections, seed {options.seed}, no failure")
    return 0


if __name__ == "__main__":
    sys.exit(main())
