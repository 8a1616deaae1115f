"""Running what is answered in steps: beam search."""

from __future__ import annotations

import logging
import queue
import threading

import setproctitle

from fastfront._speedups.call import Call
from fastfront.errors import ApiError, EngineDeadError
from fastfront.server.exchange import SSE_HEADERS, Exchange
from fastfront.streams.dispatcher import Dispatcher
from fastfront.streams.prepared import Steps

log = logging.getLogger("fastfront.server")


class NoAnswer:
    """Stands in for the protocol of a call whose answer goes to nobody: its sink has it."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def abandon(self) -> None:
        self._exchange.protocol.abandon()

    def response_bytes(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        pass


class Search:
    """One request's steps, and whether its latest one is under way."""

    __slots__ = ("exchange", "running", "steps")

    def __init__(self, exchange: Exchange, steps: Steps) -> None:
        self.exchange = exchange
        self.steps = steps
        self.running = False


class BeamRunner:
    """Takes the steps of all searches, one after another: a step is short, and no lane has to wait for it.

    Its thread begins with the first search.
    """

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._queue: queue.SimpleQueue[Search] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def begin(self, steps: Steps, exchange: Exchange) -> None:
        """Starts a search; it answers the exchange in the end. Any thread."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="beams", daemon=True)
                self._thread.start()
        self._queue.put(Search(exchange, steps))

    def _run(self) -> None:
        setproctitle.setthreadtitle("beams")
        while True:
            search = self._queue.get()
            try:
                self._take(search)
            except Exception:
                log.exception("a beam search could not be answered")
                search.exchange.protocol.abandon()
            del search

    def _take(self, search: Search) -> None:
        try:
            self._step(search)
        except EngineDeadError as error:
            self._refuse(search, ApiError(str(error), status=503, kind="ServiceUnavailableError"))
        except Exception:
            log.exception("a beam search failed")
            self._refuse(search, ApiError("Internal server error", status=500, kind="InternalServerError"))

    def _step(self, search: Search) -> None:
        exchange = search.exchange

        def done() -> None:
            search.running = False
            self._queue.put(search)

        def failed(status: int, body: bytes) -> None:
            search.running = False
            exchange.json(body, status)

        def ended(call: Call) -> None:
            if search.running and exchange.on_end is not None:  # given up: the client has gone
                exchange.on_end(call)

        call = search.steps.next_call(done, failed)
        if call is None:
            self._answer(search)
            return
        search.running = True
        self._dispatcher.submit(call, exchange.request, NoAnswer(exchange), exchange.arrival_time, None, ended, announced=True)

    def _answer(self, search: Search) -> None:
        body = search.steps.answer()
        if search.steps.stream:
            (_, kind), *headers = SSE_HEADERS
            search.exchange.reply(body, kind, 200, headers)
        else:
            search.exchange.json(body)

    def _refuse(self, search: Search, error: ApiError) -> None:
        search.exchange.json(error.body(), error.status)

