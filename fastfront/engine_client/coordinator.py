"""Ranks that step together: who is told when one of them starts (the wire's section 8).

The ranks of a mixture of experts exchange tokens in every step: while one has requests, all step. A run of such steps is a wave;
engines number them, and end one by an agreement of their own. What is left to do is to start the others when an idle
one gets a request. It says so itself, as requests go out with a wave before the first one.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from threading import Thread
from typing import NamedTuple

import setproctitle
import zmq

from fastfront._speedups.msgpack import DecodeError, packb, unpackb
from fastfront.engine_client.addresses import tcp_host
from fastfront.engine_client.handshake import Together, bind

START_WAVE = b"\x02"
WAVE_COMPLETE_AT, START_WAVE_AT = 6, 7  # in an engine's message
GROUP_PORTS = 6  # the engines' process groups take one each, and another when it is in use
log = logging.getLogger("fastfront.engines")


class Start(NamedTuple):
    """An order to all engines but `exclude`, which runs already."""

    wave: int
    exclude: int


class Waves:
    """The number of the wave, and whether it runs. No sockets."""

    def __init__(self) -> None:
        self.wave = 0
        self.running = False

    def report(self, engine: int, complete: int | None, start: int | None) -> Start | None:
        """What an engine says: the wave that has ended on all of them, or the one that it has started. The order that follows."""
        if complete is not None:
            if complete >= self.wave:
                self.wave, self.running = complete + 1, False
        elif start is not None and (start > self.wave or (start == self.wave and not self.running)):
            self.wave, self.running = start, True
            return Start(start, engine)
        return None


class Coordinator:
    """The engines' sockets for it, and from `start` on the thread that owns them."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], host: str, engines: int) -> None:
        """Listens at ports of `host` that the system chooses. Raises EngineError."""
        self._engines = engines
        self._waves = Waves()
        self._orders, self.orders_address = bind(context, f"tcp://{tcp_host(host)}:*", zmq.XPUB)
        self._orders.setsockopt(zmq.XPUB_VERBOSE, 1)
        self._reports, self.reports_address = bind(context, f"tcp://{tcp_host(host)}:*", zmq.PULL)
        self._host = host

    def start(self) -> None:
        """Begins; the thread ends when the context does."""
        Thread(target=self._run, name="coordinator", daemon=True).start()

    def close(self) -> None:
        """Closes the sockets; once the thread runs, it does that."""
        self._orders.close()
        self._reports.close()

    def together(self) -> Together:
        """What engines are told. Their process groups meet at rank 0's machine, at ports that were free a moment ago."""
        first, *more = free_ports(self._host, GROUP_PORTS)
        parallel_config = {
            "data_parallel_master_ip": self._host,
            "data_parallel_master_port": first,
            "_data_parallel_master_port_list": more,
            "_coord_store_port": 0,
            "data_parallel_size": self._engines,
        }
        return Together(self.orders_address, self.reports_address, parallel_config)

    def _run(self) -> None:
        setproctitle.setthreadtitle("coordinator")
        try:
            self._serve()
        except zmq.ContextTerminated:
            self.close()

    def _serve(self) -> None:
        poller = zmq.Poller()
        poller.register(self._orders, zmq.POLLIN)
        poller.register(self._reports, zmq.POLLIN)
        subscribed = 0
        while True:
            ready = dict(poller.poll())
            if self._orders in ready and self._orders.recv() == b"\x01":
                subscribed += 1
                if subscribed >= self._engines:  # and again for whoever comes later
                    self._orders.send(b"READY")
            if self._reports in ready:
                take_report(self._reports.recv(), self._waves, self._send)

    def _send(self, order: Start) -> None:
        self._orders.send_multipart([START_WAVE, packb([order.wave, order.exclude])])


def take_report(message: bytes, waves: Waves, send: Callable[[Start], None]) -> None:
    """One message of an engine; most only tell its load, which is known already."""
    try:
        found = unpackb(message)
    except DecodeError as error:
        log.warning("coordinator: an engine's message cannot be read: %s", error)
        return
    if not isinstance(found, list) or not found or not isinstance(found[0], int):
        log.warning("coordinator: a message that is none of an engine")
        return
    complete, start = (
        value if isinstance(value := found[at] if len(found) > at else None, int) else None
        for at in (WAVE_COMPLETE_AT, START_WAVE_AT)
    )
    order = waves.report(found[0], complete, start)
    if order is not None:
        send(order)


def free_ports(host: str, count: int) -> list[int]:
    """Different ports of an address of this machine that nobody listens at. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sockets = []
    try:
        for _ in range(count):
            sockets.append(socket.socket(family))
            sockets[-1].bind((host, 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()
