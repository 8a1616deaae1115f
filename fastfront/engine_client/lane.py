"""A lane: one client index of the wire, with its own sockets, thread and stream table."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import setproctitle

from fastfront._speedups.call import Call
from fastfront._speedups.engine_sockets import EngineSockets
from fastfront._speedups.inbox import Inbox
from fastfront._speedups.msgpack import DecodeError, skip, unpackb
from fastfront._speedups.pump import ANSWERED, DEAD, MALFORMED, Pump
from fastfront.engine_client.announced import AnnouncedDeath
from fastfront.engine_client.balancer import Balancer

ADD, ABORT, UTILITY = b"\x00", b"\x01", b"\x03"
KEEP_ALIVE = b": keep-alive\n\n"
log = logging.getLogger("fastfront.lane")


class Lane(Inbox):
    """Owns its EngineSockets and a Pump. `post` may be called by any thread, everything else runs on the lane's own."""

    def __init__(
        self,
        index: int,
        sockets: EngineSockets,
        pump: Pump,
        balancer: Balancer,
        on_engine_dead: Callable[[int, str], None],
        on_stats: Callable[[int, dict[str, Any]], None],
        ping_interval_s: float = 0.0,
        on_reply: Callable[[bytes], None] | None = None,
        on_joined: Callable[[int, list[bytes]], None] | None = None,
    ) -> None:
        """`on_joined(lane, frames)` gets what engines say on their inputs: the ready payload, when they join again."""
        super().__init__(index, sockets, pump)
        self.pump = pump
        self._sockets = sockets
        self._balancer = balancer
        self._on_engine_dead = on_engine_dead
        self._on_stats = on_stats
        self._ping_interval_s = ping_interval_s
        self._on_reply = on_reply
        self._on_joined = on_joined
        self._stop = False
        self._announced = AnnouncedDeath(balancer)
        self._thread = threading.Thread(target=self._run, name=f"lane-{index}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def busy_s(self) -> float:
        """Time not spent waiting. Any thread."""
        return self._sockets.busy_s

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
            self._sockets.close()

    def _loop(self) -> None:
        pump, sockets = self.pump, self._sockets
        while not self._stop:
            found = pump.run(sockets, self._patience_ms())
            self.awake()
            if found is not None and (found[0] != ANSWERED or found[2] is not None):
                self._take(*found)
            if self.queued:
                self._submit()
            if sockets.has_news:
                self._look()
            if self._announced.waits and self._announced.none_has_left():
                self._on_engine_dead(-1, "an engine reported a fatal error, but none has left")
            if self._ping_interval_s:
                pump.ping(KEEP_ALIVE, self._ping_interval_s)
            for engine, payload in pump.take_aborts():
                self._send(engine, ABORT, payload)
            if pump.errors:
                for error in pump.errors:
                    log.error("lane %d: an answer could not be made", self.index, exc_info=error)
                pump.errors.clear()
            if pump.finished_engines:
                self._balancer.finished(pump.finished_engines)
                pump.finished_engines.clear()

    def _look(self) -> None:
        """Sees to connections that have gone, and to what engines say on their inputs: nothing but their ready payload."""
        for engine, reason in self._sockets.take_dropped():
            self._lose_connection(engine, reason)
        for frames in self._sockets.take_inputs():
            if self._on_joined is not None:
                self._on_joined(self.index, frames)

    def _patience_ms(self) -> int:
        """How long the lane may sleep: not at all with something in the inbox, for some time, or for ever (-1)."""
        if not self.settle():
            return 0
        if not self._ping_interval_s and not self._announced.waits:
            return -1
        announced_s = self._announced.remaining_s()
        waits = [] if announced_s is None else [announced_s]
        if self._ping_interval_s and self.pump.live:
            waits.append(self._ping_interval_s / 4)
        return max(1, int(min(waits) * 1000)) if waits else -1

    def _take(self, what: int, engine: int, rest: bytes | None) -> None:
        """A message of an engine that asks for more than its streams' tokens."""
        sender = engine if engine in self._balancer.ranks else -1  # it is the message that says so
        if what == DEAD:
            self._await_death(sender)
        elif what == MALFORMED:
            log.error("lane %d: malformed message from an engine; its requests fail", self.index)
            self._on_engine_dead(sender, "an engine sent a malformed message")
        elif rest is not None:
            self._take_rest(engine, rest)

    def _await_death(self, engine: int) -> None:
        """An engine has said that it is about to leave. If it is not known which, it is the one whose connection goes next.

        If none goes in time all are given up.
        """
        if self._balancer.size == 1 or engine >= 0:
            self._on_engine_dead(engine, "an engine reported a fatal error and stopped")
            return
        log.error("an engine reported a fatal error")
        self._announced.announce()

    def _lose_connection(self, engine: int, reason: str | None) -> None:
        if engine >= 0:
            self._on_engine_dead(engine, f"engine {engine} has disconnected" + (f": {reason}" if reason else ""))
        elif reason:
            log.warning("lane %d: a connection was closed: %s", self.index, reason)

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
        for item in self.take():
            if isinstance(item, Call):
                self._attach(item)
            else:
                item()

    def _attach(self, call: Call) -> None:
        for engine, payload in self.pump.attach(call):
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
                log.info("request %r lost engine %d: begins anew on another", call.external_id, engine)
                self._attach(fresh)
        self.pump.fail_engine(engine, reason)

    def _send(self, engine: int, kind: bytes, payload: bytes) -> bool:
        if self._sockets.send(engine, kind, payload):
            return True
        self._on_engine_dead(engine, f"engine {engine} has disconnected")
        return False

    def send_utility(self, engine: int, payload: bytes) -> None:
        """A call of an engine's method; only on the lane's own thread."""
        self._send(engine, UTILITY, payload)
