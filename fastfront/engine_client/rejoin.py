"""Engines that come again: those started here under a limit, those elsewhere whenever they say HELLO once more."""

from __future__ import annotations

import logging
import os
import queue
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Thread
from typing import Protocol

import setproctitle
import zmq

from fastfront.engine_client.agreement import Model, require_same_model
from fastfront.engine_client.handshake import LaneSockets, init_message, parse_ready, read_greeting
from fastfront.errors import EngineError

BACKOFF_S = (0.0, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)  # before the first, second, ... restart in a row
FORGIVEN_S = 600.0  # an engine that has run this long has its restarts back
GRACE_S = 3.0  # for a local engine that is lost but still runs: to leave by itself
LOOK_MS = 500
log = logging.getLogger("fastfront.engines")


class Processes(Protocol):
    """The supervisor, seen from here."""

    def restart(self, index: int) -> None: ...

    def kill(self, index: int) -> None: ...


@dataclass(slots=True)
class _Lost:
    """An engine on its way back. Times are monotonic seconds; `start_at` and `kill_at` are None when there is nothing to do."""

    kill_at: float | None = None
    start_at: float | None = None
    ready_by: float | None = None
    greeted: bool = False
    ready: bool = False
    lanes: set[int] = field(default_factory=set)


class Rejoin:
    """Owns the handshake socket once the server is up. A thread of its own; every method may be called by any thread."""

    def __init__(
        self,
        sockets: list[LaneSockets],
        ranks: range,
        supervised: range,
        local: range,
        restarts: int,
        ready_timeout_s: float,
        on_back: Callable[[int], None],
        on_given_up: Callable[[int], None],
        together: bool = False,
        model: Model | None = None,
    ) -> None:
        """Of the engines in `ranks` those in `supervised` are processes of ours, those in `local` say that they are local.

        With `together` nobody is let in: such engines have to start at once. Nor is one with another model than `model`.
        `on_back(index)` is called when an engine takes requests again, `on_given_up(index)` when one of ours will not.
        """
        self._sockets = sockets
        self._ranks = ranks
        self._together = together
        self._model = model
        self._supervised = supervised
        self._local = local
        self._restarts = restarts
        self._ready_timeout_s = ready_timeout_s
        self._on_back = on_back
        self._on_given_up = on_given_up
        self._processes: Processes | None = None
        self._handshake: zmq.Socket[bytes] | None = None
        self._left = dict.fromkeys(supervised, restarts)
        self._in_a_row = dict.fromkeys(supervised, 0)
        self._up_since = dict.fromkeys(ranks, time.monotonic())
        self._coming = dict.fromkeys(supervised, False)  # is being started again
        self._lost: dict[int, _Lost] = {}
        self._early: set[int] = set()  # said HELLO before the loss of the one before was noticed
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def start(self, handshake: zmq.Socket[bytes], processes: Processes | None) -> None:
        """From here on the socket belongs to the thread."""
        self._handshake, self._processes = handshake, processes
        Thread(target=self._run, name="engine-joiner", daemon=True).start()

    def expected(self) -> bool:
        """With all engines lost: whether one of ours is being started again, or will be."""
        return any(self._left.values()) or any(self._coming.values())

    def lost(self, index: int) -> None:
        """The engine takes no requests any more; if it runs here it is ended."""
        self._post(lambda: self._note_lost(index))

    def ended(self, index: int) -> None:
        """A process of ours has ended."""

        def note() -> None:
            self._note_lost(index)
            self._restart(index)

        self._post(note)

    def payload(self, lane: int, frames: list[bytes]) -> None:
        """A message that came on a lane's input socket: the ready payload of an engine that has connected to it."""
        self._post(lambda: self._take_payload(lane, frames))

    def _post(self, item: Callable[[], None]) -> None:
        self._inbox.put(item)
        os.eventfd_write(self._wake_fd, 1)

    # ---- on the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        setproctitle.setthreadtitle("engine-joiner")
        assert self._handshake is not None
        poller = zmq.Poller()
        poller.register(self._handshake, zmq.POLLIN)
        poller.register(self._wake_fd, zmq.POLLIN)
        while True:
            ready = dict(poller.poll(LOOK_MS if self._lost else None))
            if self._wake_fd in ready:
                os.eventfd_read(self._wake_fd)
            while not self._inbox.empty():
                self._inbox.get()()
            if self._handshake in ready:
                self._greet(self._handshake)
            self._look_at_clock()

    def _note_lost(self, index: int) -> None:
        if index in self._lost:
            return
        self._lost[index] = _Lost()
        if index in self._supervised:
            now = time.monotonic()
            self._lost[index].kill_at = now + GRACE_S
            if now - self._up_since[index] > FORGIVEN_S:
                self._left[index], self._in_a_row[index] = self._restarts, 0
        if index in self._early:
            self._early.remove(index)
            self._answer(index)

    def _restart(self, index: int) -> None:
        if not self._left[index]:
            self._lost[index] = _Lost()
            self._coming[index] = False
            self._on_given_up(index)
            return
        delay = BACKOFF_S[min(self._in_a_row[index], len(BACKOFF_S) - 1)]
        self._lost[index] = _Lost(start_at=time.monotonic() + delay)
        self._coming[index] = True  # before there is one restart less: `expected` never sees neither
        self._left[index] -= 1
        self._in_a_row[index] += 1

    def _look_at_clock(self) -> None:
        now = time.monotonic()
        for index, lost in list(self._lost.items()):
            if lost.kill_at is not None and now >= lost.kill_at:
                lost.kill_at = None
                self._kill(index)
            if lost.start_at is not None and now >= lost.start_at:
                lost.start_at, lost.ready_by = None, now + self._ready_timeout_s
                self._start(index)
            if lost.ready_by is not None and now >= lost.ready_by:
                lost.ready_by = None
                log.error("engine %d was not ready after %g s (--engine-ready-timeout)", index, self._ready_timeout_s)
                self._kill(index)

    def _kill(self, index: int) -> None:
        if self._processes is not None:
            self._processes.kill(index)

    def _start(self, index: int) -> None:
        log.warning("engine %d is started again (%d more times)", index, self._left[index])
        try:
            if self._processes is not None:
                self._processes.restart(index)
        except OSError as error:
            log.error("engine %d cannot be started: %s", index, error)
            self._restart(index)

    def _greet(self, socket: zmq.Socket[bytes]) -> None:
        try:
            found = read_greeting(socket.recv_multipart(), range(1 << 16) if self._together else self._ranks)
            if found is None:
                raise EngineError("something that is not an engine connected to the handshake address")
            if self._together:
                raise EngineError(f"engine {found.index}: ranks of a mixture of experts start together, with their frontend")
            if found.local != (found.index in self._local):
                where = "local" if found.local else "remote"
                raise EngineError(f"engine {found.index} says that it is {where}, which that rank is not")
        except EngineError as error:
            log.warning("turned away: %s", error)
            return
        if found.index not in self._lost:
            log.warning("engine %d says %s, but that rank is running: it has to wait", found.index, found.status)
            self._early.add(found.index)
        elif found.status == "HELLO":
            self._answer(found.index)
        else:
            self._lost[found.index].ready = True
            self._see(found.index)

    def _answer(self, index: int) -> None:
        """Tells an engine that has said HELLO where the lanes are."""
        assert self._handshake is not None
        lost = self._lost[index]
        lost.greeted, lost.ready = True, False
        lost.lanes.clear()
        try:
            self._handshake.send_multipart([index.to_bytes(2, "little"), init_message(self._sockets)])
        except zmq.ZMQError as error:  # gone again
            log.warning("engine %d cannot be answered: %s", index, error.strerror)
            return
        log.info("engine %d has joined again and is loading", index)

    def _take_payload(self, lane: int, frames: list[bytes]) -> None:
        if len(frames) != 2 or len(frames[0]) != 2:
            return
        index = int.from_bytes(frames[0], "little")
        if index not in self._lost or not self._lost[index].greeted:
            return
        try:
            engine = parse_ready(index, frames[1])
            if self._model is not None:
                require_same_model(self._model, engine)
        except EngineError as error:
            log.error("%s", error)
            return
        self._lost[index].lanes.add(lane)
        self._see(index)

    def _see(self, index: int) -> None:
        """Lets an engine in that every lane has heard of."""
        lost = self._lost[index]
        if not lost.ready or len(lost.lanes) < len(self._sockets):
            return
        del self._lost[index]
        if index in self._supervised:
            self._coming[index] = False
        self._up_since[index] = time.monotonic()
        self._on_back(index)
        log.warning("engine %d is ready again", index)
