"""Which clients are still there.

granian wakes only one waiter when a connection closes, the oldest, even if it belongs to a request long answered. So there is one
waiter per connection here, and it aborts whatever call the connection is waiting for.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Protocol

from fastfront._speedups.call import Call


class Canceller(Protocol):
    """A lane, seen from here."""

    def cancel(self, call: Call) -> None: ...


class Connection:
    """One client connection. HTTP/1.1 answers one request at a time, so there is one call at most."""

    __slots__ = ("_call", "_registry", "_single", "closed", "peer")

    def __init__(self, peer: str, registry: dict[str, Connection]) -> None:
        self.peer = peer
        self.closed = False
        self._call: tuple[Call, Canceller | None] | None = None  # no lane yet: the call has not been handed over
        self._registry = registry
        self._single: Any = None  # without an address: the waiter, ended with its one call

    def begin(self, call: Call) -> None:
        """The connection waits for `call`, which its lane does not have yet."""
        self._call = call, None

    def posted(self, call: Call, lane: Canceller) -> None:
        """The lane has the call, and perhaps has ended it. Only from here on it may be cancelled: a lane knows no other calls.

        The lane is noted before `closed` is read, `close` writes that before it reads the lane: one of the two sees the other.
        """
        current = self._call
        if current is not None and current[0] is call:
            self._call = call, lane
        if self.closed:
            lane.cancel(call)

    def ended(self, call: Call) -> None:
        """The lane is done with the call."""
        current = self._call
        if current is not None and current[0] is call:
            self._call = None
            if self._single is not None:
                self._single.cancel()

    def close(self, _future: object = None) -> None:
        """The client has gone. May be called twice, by two threads."""
        self.closed = True
        with suppress(KeyError):  # closed by the other thread meanwhile
            if self._registry[self.peer] is self:
                del self._registry[self.peer]
        current = self._call
        if current is not None:
            call, lane = current
            if lane is not None:
                lane.cancel(call)


class Connections:
    """All connections that have asked for a generation. Any thread: a dict's single steps are atomic."""

    def __init__(self) -> None:
        self._open: dict[str, Connection] = {}

    def __len__(self) -> int:
        return len(self._open)

    def of(self, scope: Any, protocol: Any) -> Connection:
        """The connection a request came on; watched from its first request on."""
        peer = scope.client
        connection: Connection | None = None
        with suppress(KeyError):  # gone since the look, or never there; .get() would be slow (docs/structures.md)
            if peer in self._open:
                connection = self._open[peer]
        if connection is None:
            connection = Connection(peer, self._open)
            if peer:
                self._open[peer] = connection
            future = protocol.client_disconnect()
            # add_done_callback can miss a result that is set meanwhile: look again (close may run twice)
            add = getattr(future, "add_done_callback", None)
            if add is None:
                connection.close()
            else:
                add(connection.close)
                if future.done():
                    connection.close()
                elif not peer:
                    connection._single = future
        return connection
