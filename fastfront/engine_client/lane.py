"""A lane: one client index of the wire, with its own sockets, thread and stream table."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import setproctitle
import zmq

from fastfront._speedups.call import Call
from fastfront._speedups.msgpack import DecodeError, packb, skip, unpackb
from fastfront._speedups.pump import EngineMessageError, Pump
from fastfront.engine_client.announced import AnnouncedDeath
from fastfront.engine_client.balancer import Balancer
from fastfront.engine_client.handshake import LaneSockets

ADD, ABORT, UTILITY = b"\x00", b"\x01", b"\x03"
ENGINE_DEAD = b"ENGINE_CORE_DEAD"
KEEP_ALIVE = b": keep-alive\n\n"
NO_REQUESTS = packb([])
PROBE_DELAYS_S = (0.0, 0.01, 0.1, 1.0)
log = logging.getLogger("fastfront.lane")


class Lane:
    """Owns a ROUTER, a PULL and a Pump. `post` may be called by any thread, everything else runs on the lane's own."""

    def __init__(
        self,
        index: int,
        sockets: LaneSockets,
        pump: Pump,
        balancer: Balancer,
        on_engine_dead: Callable[[int, str], None],
        on_stats: Callable[[int, dict[str, Any]], None],
        ping_interval_s: float = 0.0,
        on_reply: Callable[[bytes], None] | None = None,
        on_joined: Callable[[int, list[bytes]], None] | None = None,
    ) -> None:
        """`on_joined(lane, frames)` gets what engines say on their inputs: the ready payload, when they join again."""
        self.index = index
        self.pump = pump
        self._router = sockets.router
        self._pull = sockets.pull
        self._balancer = balancer
        self._on_engine_dead = on_engine_dead
        self._on_stats = on_stats
        self._ping_interval_s = ping_interval_s
        self._on_reply = on_reply
        self._on_joined = on_joined
        self._inbox: deque[Call | Callable[[], None]] = deque()
        self._sleeping = False
        self._stop = False
        self.busy_s = 0.0  # time not spent waiting; others may read it
        self._probes: list[float] = []  # times of the probes that a lost connection calls for, in order
        self._announced = AnnouncedDeath(balancer)
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name=f"lane-{index}", daemon=True)
        self._monitor = self._router.get_monitor_socket(zmq.EVENT_DISCONNECTED)

    def start(self) -> None:
        self._thread.start()

    @property
    def load(self) -> int:
        """Choices that are being generated, and calls that wait to begin. Any thread."""
        return self.pump.live + len(self._inbox)

    def post(self, item: Call | Callable[[], None]) -> None:
        """Hands over a call to submit, or a function to run on the lane's thread."""
        self._inbox.append(item)
        if self._sleeping:
            os.eventfd_write(self._wake_fd, 1)

    @property
    def queued(self) -> int:
        """What waits for the lane at the moment."""
        return len(self._inbox)

    def cancel(self, call: Call) -> None:
        """The client of `call` has gone. Any thread; a call that has ended is left alone."""
        call.disconnected = True
        self.post(lambda: self._cancel(call))

    def stop(self) -> None:
        self.post(self._quit)
        self._thread.join(5)

    # ---- on the lane's thread ----------------------------------------------------------------------------------------

    def _quit(self) -> None:
        self._stop = True

    def _cancel(self, call: Call) -> None:
        self.pump.cancel(call)

    def _run(self) -> None:
        setproctitle.setthreadtitle(f"lane-{self.index}")
        try:
            self._loop()
        except Exception:
            log.exception("lane %d failed", self.index)
            self._on_engine_dead(-1, f"lane {self.index} failed")
        finally:
            self._router.disable_monitor()
            self._router.close(0)
            self._pull.close(0)
            os.close(self._wake_fd)

    def _loop(self) -> None:
        watched = [(self._pull, zmq.POLLIN), (self._router, zmq.POLLIN), (self._monitor, zmq.POLLIN), (self._wake_fd, zmq.POLLIN)]
        while not self._stop:
            ready: dict[Any, int] = dict(zmq.zmq_poll(watched, self._patience_ms()))
            woke = time.perf_counter()
            self._sleeping = False
            if self._wake_fd in ready:
                os.eventfd_read(self._wake_fd)
            if self._pull in ready:
                self._receive()
            self._submit()
            if self._monitor in ready:
                self._monitor.recv_multipart()
                now = time.monotonic()
                self._probes = sorted([*self._probes, *(now + delay for delay in PROBE_DELAYS_S)])
            if self._probes and self._probes[0] <= time.monotonic():
                del self._probes[0]
                self._probe_engines()
                if self._announced.none_has_left():
                    self._on_engine_dead(-1, "an engine reported a fatal error, but none has left")
            if self._router in ready:
                self._drain_router()
            if self._ping_interval_s:
                self.pump.ping(KEEP_ALIVE, self._ping_interval_s)
            self._send_aborts()
            for error in self.pump.errors:
                log.error("lane %d: an answer could not be made", self.index, exc_info=error)
            self.pump.errors.clear()
            if self.pump.finished_engines:
                self._balancer.finished(self.pump.finished_engines)
                self.pump.finished_engines.clear()
            self.busy_s += time.perf_counter() - woke

    def _patience_ms(self) -> int:
        """How long the lane may sleep: not at all with something in the inbox, until the next probe, or for ever (-1)."""
        if self._inbox or not self._settle():
            return 0
        waits = [self._probes[0] - time.monotonic()] if self._probes else []
        if self._ping_interval_s and self.pump.live:
            waits.append(self._ping_interval_s / 4)
        return max(1, int(min(waits) * 1000)) if waits else -1

    def _settle(self) -> bool:
        """Says that the lane is about to sleep; False if something came in meanwhile.

        `_sleeping` is set before the inbox is looked at, and `post` appends before it looks at `_sleeping`: one of the two sees
        the other. rotate() takes the deque's lock, which keeps the two steps in order.
        """
        self._sleeping = True
        self._inbox.rotate(0)
        return not self._inbox

    def _receive(self) -> None:
        pull = self._pull
        while readable(pull):
            frame = pull.recv(zmq.NOBLOCK, copy=False)
            more = pull.recv_multipart(zmq.NOBLOCK, copy=False) if frame.more else None
            message = frame.buffer
            if len(message) == len(ENGINE_DEAD) and bytes(message) == ENGINE_DEAD:
                self._await_death()
                continue
            try:
                engine, rest = self.pump.feed(message, [part.buffer for part in more] if more else None)
            except EngineMessageError as error:
                log.error("lane %d: malformed message from an engine (%s); its requests fail", self.index, error)
                self._on_engine_dead(sender_of(bytes(message[:16]), self._balancer.size), "an engine sent a malformed message")
                continue
            if rest is not None:
                self._take_rest(engine, rest)

    def _await_death(self) -> None:
        """An engine has said that it is about to leave, but not which one: with several, the one whose connection goes.

        If none goes in time all are given up.
        """
        if self._balancer.size == 1:
            self._on_engine_dead(-1, "an engine reported a fatal error and stopped")
            return
        log.error("an engine reported a fatal error")
        self._probes = sorted([*self._probes, *self._announced.announce()])

    def _take_rest(self, engine: int, rest: bytes) -> None:
        """What follows the outputs: scheduler_stats, or the reply to a utility call; no message has both."""
        try:
            end = skip(rest)
            stats = unpackb(rest[:end])
            if stats is None and self._on_reply is not None:
                self._on_reply(rest[end:])
        except DecodeError as error:
            log.warning("engine %d: scheduler stats or a reply cannot be read: %s", engine, error)
            return
        if isinstance(stats, dict):
            self._on_stats(engine, stats)

    def _submit(self) -> None:
        inbox = self._inbox
        while inbox:
            item = inbox.popleft()
            if not isinstance(item, Call):
                item()
                continue
            self._attach(item)

    def _attach(self, call: Call) -> None:
        try:
            adds = self.pump.attach(call)
        except (ValueError, MemoryError):
            log.exception("request %s could not be submitted", call.external_id)
            return
        for engine, payload in adds:
            # An engine is marked as lost before its calls are failed: one of the two sees a call that comes meanwhile.
            if not self._balancer.is_alive(engine) or not self._send(engine, ADD, payload):
                self.lose_engine(engine, f"engine {engine} is not connected")
                break
        if call.disconnected:
            self.pump.cancel(call)

    def lose_engine(self, engine: int, reason: str) -> None:
        """An engine has gone (-1: all). Calls of which nothing has been sent begin anew on another one, the others fail.

        Only on the lane's own thread.
        """
        for call in self.pump.unsent(engine):
            if call.again is None or call.disconnected:
                continue
            fresh = call.again(call)
            if fresh is not None:
                self.pump.withdraw(call, engine)
                log.info("request %s lost engine %d: begins anew on another", call.external_id, engine)
                self._attach(fresh)
        self.pump.fail_engine(engine, reason)

    def _send(self, engine: int, kind: bytes, payload: bytes) -> bool:
        try:
            self._router.send(engine.to_bytes(2, "little"), zmq.SNDMORE)
            self._router.send(kind, zmq.SNDMORE)
            self._router.send(payload)
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            self._on_engine_dead(engine, f"engine {engine} has disconnected")
            return False
        return True

    def send_utility(self, engine: int, payload: bytes) -> None:
        """A call of an engine's method; only on the lane's own thread."""
        self._send(engine, UTILITY, payload)

    def _send_aborts(self) -> None:
        for engine, payload in self.pump.take_aborts():
            self._send(engine, ABORT, payload)

    def _probe_engines(self) -> None:
        """Some engine's connection has gone: finds out which by sending each an empty ABORT.

        The event comes before the socket knows, hence several probes: one that is too early finds nothing.
        """
        for engine in self._balancer.alive():
            self._send(engine, ABORT, NO_REQUESTS)

    def _drain_router(self) -> None:
        """Engines say nothing here after their ready payload; reading keeps the socket's peers up to date."""
        while readable(self._router):
            frames = self._router.recv_multipart(zmq.NOBLOCK)
            if self._on_joined is not None:
                self._on_joined(self.index, frames)


def sender_of(message: bytes, engines: int) -> int:
    """The engine that a message begins with, as far as that can be read; else -1, which stands for all."""
    body = message[1:] if message[:1] < b"\xa0" else message[3:]
    try:
        index = unpackb(body[: skip(body)])
    except DecodeError:
        return -1
    return index if type(index) is int and 0 <= index < engines else -1


def readable(socket: zmq.Socket[bytes]) -> bool:
    """Whether a receive would succeed: cheaper than trying and catching zmq.Again."""
    return bool(int(socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN)
