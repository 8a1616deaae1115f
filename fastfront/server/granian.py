"""granian without an event loop: the server for TLS.

granian hands every request to a scheduler object, on one of its own Python threads, and reports finished reads by calling
`call_soon_threadsafe` of "the event loop". Here both are ours: the scheduler calls the application right on that thread, and
the loop runs a callback where it is. So no asyncio loop exists in the process, and a request crosses two threads less.
This is the only file that touches granian's internals; they are those of the pinned version.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from granian import _granian
from granian.http import HTTP1Settings

from fastfront.server.http import BACKLOG

log = logging.getLogger("fastfront.http")
native: Any = _granian  # its type stubs do not follow its code
HEADER_BUFFER_BYTES = 8192 + 4096 * 100
STOP_WAIT_S = 5.0
DROPPED_BYTES = 32 << 20
Intake = Callable[[Any], None]


class _StopFuture:
    """What granian resolves when a worker has stopped."""

    def __init__(self) -> None:
        self.event = threading.Event()

    def set_result(self, _: object) -> None:
        self.event.set()


class _InlineLoop:
    """The part of an event loop that granian calls. Runs every callback at once, on the calling thread."""

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: object, context: object = None) -> None:
        callback(*args)

    call_soon = call_soon_threadsafe

    def create_future(self) -> _StopFuture:
        return _StopFuture()

    def run_until_complete(self, future: _StopFuture) -> None:
        future.event.wait()


class _Scheduler(native.CallbackScheduler):  # type: ignore[misc]  # native is Any
    """Calls `intake(request)` for every request. It must not raise: granian does not look."""

    def __new__(cls, loop: _InlineLoop, intake: Intake) -> _Scheduler:
        return super().__new__(cls, loop, intake, None, None, None)  # type: ignore[no-any-return]

    def __init__(self, loop: _InlineLoop, intake: Intake) -> None:
        waiters = Waiters()

        def schedule(watcher: Any) -> None:
            try:
                intake(GranianRequest(watcher.scope, watcher.proto, waiters))
            except BaseException:
                log.exception("a request could not be taken in")
                watcher.proto.response_bytes(500, [], b"")

        self._schedule_fn = schedule


class BodyReader:
    """Reads one request body, then calls `done(body)`; None when the client went away or the body grew past `limit`.

    granian's futures can lose a wake-up on free-threaded builds: a result set while the callback is being added calls nobody.
    So the callback is added, then the future is looked at again, and whichever of the two comes first goes on: each future has
    a list of one token, and popping it is atomic.
    """

    __slots__ = ("_done", "_dropping", "_limit", "_parts", "_protocol", "_total")

    def __init__(self, protocol: Any, limit: int, done: Callable[[bytes | None, bool], None]) -> None:
        self._protocol = protocol
        self._limit = limit
        self._done = done
        self._parts: list[bytes] = []
        self._total = 0
        self._dropping = False

    def read_sized(self) -> None:
        """The whole body at once; its announced length has been checked against the limit."""
        self._await(self._protocol(), self._whole)

    def read_chunked(self) -> None:
        """Piece by piece, with a running total."""
        self._protocol.__aiter__()
        self._await(self._protocol.__anext__(), self._piece)

    def drop(self) -> None:
        """Throws the body away, up to DROPPED_BYTES of it, once the answer is on its way.

        A connection closed with unread bytes is reset, and the client that is still sending would never see its answer.
        """
        self._start_dropping()
        self.read_chunked()

    def _start_dropping(self) -> None:
        self._parts.clear()
        self._limit = self._total + DROPPED_BYTES
        self._dropping = True

    def _await(self, future: Any, then: Callable[[Any], None]) -> None:
        claims: list[object] = [None]

        def once(settled: Any) -> None:
            try:
                claims.pop()
            except IndexError:
                return
            then(settled)

        future.add_done_callback(once)
        if future.done():
            once(future)

    def _whole(self, future: Any) -> None:
        try:
            body = future.result()
        except Exception:
            self._done(None, False)
            return
        self._done(body, False)

    def _piece(self, future: Any) -> None:
        while True:
            try:
                piece = future.result()
            except Exception:
                self._end(None, False)
                return
            if not piece:
                self._end(b"".join(self._parts), False)
                return
            self._total += len(piece)
            if self._total > self._limit:
                if self._dropping:
                    return
                self._end(None, True)
                self._start_dropping()
            if not self._dropping:
                self._parts.append(piece)
            future = self._protocol.__anext__()
            if not future.done():
                self._await(future, self._piece)
                return

    def _end(self, body: bytes | None, too_large: bool) -> None:
        if not self._dropping:
            self._done(body, too_large)


class Waiters:
    """Who is to be told when a connection closes.

    granian wakes only one waiter when a connection closes, the oldest, even if it belongs to a request long answered. So there is
    one per connection, and it calls what the connection's last two requests want called: the newer may be asked for before the
    older one's lane has got to it. A call that has ended is left alone by its lane.
    """

    def __init__(self) -> None:
        self._open: dict[str, deque[Callable[[], object]]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def watch(self, peer: str, protocol: Any, gone: Callable[[], object]) -> bool:
        """Any thread. True: the client has left already."""
        with suppress(KeyError):  # gone since the look, or never there; .get() would be slow (docs/structures.md)
            if peer in self._open:
                waiting = self._open[peer]
                waiting.append(gone)
                # either close() sees the newcomer, or it is seen here that the connection is no longer in the table
                return not (peer in self._open and self._open[peer] is waiting)
        waiting = deque([gone], maxlen=2)
        self._open[peer] = waiting

        def close(_future: object = None) -> None:
            with suppress(KeyError):  # closed by the other thread meanwhile
                if self._open[peer] is waiting:
                    del self._open[peer]
            for callback in list(waiting):
                callback()

        future = protocol.client_disconnect()
        add = getattr(future, "add_done_callback", None)
        if add is None:
            close()
            return True
        add(close)  # which can miss a result that is set meanwhile: look again (close may run twice)
        if future.done():
            close()
        return False


class GranianRequest:
    """One request as the application sees it (Request in exchange.py): granian's scope and protocol in one."""

    __slots__ = ("_protocol", "_scope", "_waiters", "client", "get", "method", "path", "response_bytes", "response_empty",
                 "response_stream")  # fmt: skip

    def __init__(self, scope: Any, protocol: Any, waiters: Waiters) -> None:
        self._scope = scope
        self._protocol = protocol
        self._waiters = waiters
        self.method: str = scope.method
        self.path: str = scope.path
        self.client: str = scope.client
        self.get = scope.headers.get
        self.response_bytes = protocol.response_bytes
        self.response_empty = protocol.response_empty
        self.response_stream = protocol.response_stream

    @property
    def query_string(self) -> str:
        return self._scope.query_string or ""

    @property
    def http_version(self) -> str:
        return str(self._scope.http_version)

    def read_body(self, limit: int, done: Callable[[bytes | None, bool], None]) -> None:
        """See BodyReader. An announced length is within the limit."""
        reader = BodyReader(self._protocol, limit, done)
        if self.get("transfer-encoding") is None:
            reader.read_sized()
        else:
            reader.read_chunked()

    def body_at_once(self, limit: int) -> bytes | None:
        return None  # it always has to be awaited

    def drop_body(self) -> None:
        """Reads what a client sends that has been answered already, unless it waits to be asked for it."""
        sends = (self.get("content-length") or "0") != "0" or self.get("transfer-encoding") is not None
        if sends and self.get("expect") is None:
            BodyReader(self._protocol, 0, _ignore).drop()

    def abandon(self) -> None:
        """granian notices when nothing refers to the request any more."""

    def watch(self, gone: Callable[[], object]) -> bool:
        """`gone()` is called, by any thread, perhaps twice, if the client leaves. True: it has left already."""
        return self._waiters.watch(self.client, self._protocol, gone)


def _ignore(_body: bytes | None, _too_large: bool) -> None:
    pass


class GranianServer:
    """granian's workers over one bound TCP socket. `intake(request)` runs on granian's Python threads."""

    def __init__(
        self,
        sock: socket.socket,
        intake: Intake,
        *,
        workers: int,
        request_threads: int,
        max_connections: int,
        keep_alive_s: float,
        ssl_certfile: str,
        ssl_keyfile: str,
        ssl_ca_certs: str | None = None,
        ssl_clients_must: bool = False,
    ) -> None:
        loop = _InlineLoop()
        self._sock = sock
        self._signal = native.WorkerSignal()
        worker = native.RSGIWorker(
            1,  # worker id
            native.SocketHolder(sock.fileno(), False, BACKLOG),
            None,  # ipc
            workers,  # runtime threads, each with its own epoll
            512,  # tokio's blocking threads, at most; none is used
            max(1, -(-request_threads // workers)),
            3600,  # idle Python threads are kept
            max(1, max_connections // workers),
            "1",
            HTTP1Settings(header_read_timeout=int(keep_alive_s * 1000), max_buffer_size=HEADER_BUFFER_BYTES),
            None,
            False,  # websockets
            None,  # static files
            True,
            ssl_certfile,
            ssl_keyfile,
            None,
            "tls1.2",
            ssl_ca_certs,
            [],
            ssl_clients_must,
            (None, None),
        )
        scheduler = _Scheduler(loop, intake)
        self._thread = threading.Thread(target=worker.serve_mtr, args=(scheduler, loop, self._signal), name="http", daemon=True)

    def start(self) -> None:
        """From here on connections are taken: those that come before granian has started wait in the backlog."""
        self._sock.listen(BACKLOG)
        self._thread.start()

    def stop(self) -> None:
        """Stops accepting and closes idle connections; waits a moment for those that still answer."""
        self._signal.set()
        self._thread.join(STOP_WAIT_S)
