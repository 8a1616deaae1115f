"""Answering /metrics, which takes milliseconds, on a thread that holds up nobody else."""

from __future__ import annotations

import logging
import queue
import threading

import setproctitle

from fastfront.errors import http_error
from fastfront.metrics.registry import Metrics
from fastfront.server.exchange import Exchange

log = logging.getLogger("fastfront.server")


class Scrapes:
    """Any thread puts requests; those that come while a page is made share the next one."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._waiting: queue.SimpleQueue[Exchange] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def put(self, exchange: Exchange) -> None:
        self._waiting.put(exchange)

    def _run(self) -> None:
        setproctitle.setthreadtitle("metrics")
        while True:
            together = [self._waiting.get()]
            while not self._waiting.empty():
                together.append(self._waiting.get())
            self.answer(together)

    def answer(self, together: list[Exchange]) -> None:
        """One page for all of them."""
        try:
            page: bytes | None = self._metrics.text()
        except Exception:
            log.exception("/metrics failed")
            page = None
        for exchange in together:
            try:
                if page is None:
                    exchange.json(http_error(500, "Internal server error").body(), 500)
                else:
                    exchange.reply(page, self._metrics.content_type)
            except Exception:
                log.exception("/metrics could not be answered")
