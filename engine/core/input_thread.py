"""The input thread: receives, decodes and checks, so that this overlaps with the forward pass."""

from __future__ import annotations

import itertools
import os
import queue
import signal
import threading
import time
import traceback
from collections import Counter

import zmq

from engine.core.messages import Abort, Add, Call, Input, Leave, Refuse
from engine.core.validate import Bounds, InvalidRequestError, build_request, reloaded
from engine.lifecycle import PARENT_SIGNAL, leave_if_orphan
from engine.protocol import ABORT, ADD, UTILITY, Codec, RequestFault
from engine.sampling.random import request_seed
from engine.transport import DisconnectWatch, FrontendLink

POLL_MS = 500
AT_ONCE = 256
"""Messages of one client that are taken before others, signals and the frontend's end get their turn."""
PATIENCE = 2
"""Signals after which a step under way is not waited for."""


class InputThread(threading.Thread):
    """Owns the input sockets and closes them when the context ends. No input can end the thread."""

    def __init__(
        self,
        link: FrontendLink,
        commands: queue.SimpleQueue[Input],
        bounds: Bounds,
        *,
        base_seed: int,
        watch: DisconnectWatch,
        signals: int,
        disconnect_timeout_s: float,
        drain_s: float = 0.0,
    ) -> None:
        """`link` is connected; commands for the busy loop go to `commands`; `signals` brings signals to leave on.

        The first one gives what is in flight `drain_s` seconds, the second one none; a third one ends the process at once.
        """
        super().__init__(name="engine-input", daemon=True)
        self._link = link
        self._commands = commands
        self._bounds = bounds
        self._base_seed = base_seed
        self._watch = watch
        self._signals = signals
        self._parent = os.getppid()
        self._timeout_s = disconnect_timeout_s
        self._drain_s = drain_s
        self._asked = 0
        self._codec = Codec()
        self._numbers = itertools.count()
        self._reloads: Counter[int] = Counter()

    def run(self) -> None:
        """Until the context is terminated or the frontend is gone."""
        try:
            self._serve()
        except zmq.ContextTerminated:
            pass
        except Exception:
            self._commands.put(Leave(f"the input thread failed:\n{traceback.format_exc()}", error=True))
        finally:
            self._watch.close()
            self._link.close_inputs()

    def _serve(self) -> None:
        poller = zmq.Poller()
        for socket in self._link.inputs:
            poller.register(socket, zmq.POLLIN)
        if self._link.coordinator is not None:
            poller.register(self._link.coordinator, zmq.POLLIN)
        for monitor in self._watch.monitors:
            poller.register(monitor, zmq.POLLIN)
        poller.register(self._signals, zmq.POLLIN)
        while True:
            for socket, _ in poller.poll(POLL_MS):
                if self._link.coordinator is not None and socket is self._link.coordinator:
                    # READY and load waves: nothing that an engine of a dense model acts on.
                    self._link.coordinator.recv_multipart()
                elif socket == self._signals:
                    for signum in os.read(self._signals, 16):
                        self._signalled(signum)
                elif socket in self._link.inputs:
                    self._drain(socket)
            gone_s = self._watch.gone_for()
            if gone_s > self._timeout_s:
                self._commands.put(Leave(f"the frontend has been gone for {self._timeout_s:.0f} s"))
                return
            if self._watch.broken and not gone_s:
                # It counts this engine as lost, and would take it for a second one if it said HELLO.
                self._commands.put(Leave("the connection to the frontend was interrupted"))
                return

    def _signalled(self, signum: int) -> None:
        if signum == PARENT_SIGNAL:
            leave_if_orphan(self._parent)
            return
        self._asked += 1
        if self._asked > PATIENCE:
            os._exit(128 + signum)
        self._commands.put(Leave(signal.Signals(signum).name, drain_s=self._drain_s if self._asked == 1 else 0.0))

    def _drain(self, socket: zmq.Socket[bytes]) -> None:
        client = self._link.inputs.index(socket)
        for _ in range(AT_ONCE):
            try:
                frames = socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            if len(frames) < 2:
                continue
            if frames[0] == ADD:
                self._add(client, frames[1])
            elif frames[0] == ABORT:
                ids = self._codec.decode_abort(frames[1])
                if ids:
                    self._commands.put(Abort(ids))
            elif frames[0] == UTILITY:
                call = self._codec.decode_utility(frames[1])
                if call is not None:
                    if (number := reloaded(call)) is not None:
                        self._reloads[number] += 1
                    self._commands.put(Call(call, self._known_client(call.client_index, client)))

    def _add(self, client: int, frame: bytes) -> None:
        message = self._codec.decode_add(frame)
        if not isinstance(message, RequestFault):
            client = self._known_client(message.client_index, client)
        seed = request_seed(self._base_seed, next(self._numbers))
        try:
            request = build_request(message, self._bounds, client=client, seed=seed, now=time.monotonic(), reloads=self._reloads)
        except InvalidRequestError as error:
            if message.request_id is not None:
                self._commands.put(Refuse(message.request_id, client, str(error)))
            return
        self._commands.put(Add(request))

    def _known_client(self, wanted: int, default: int) -> int:
        return wanted if 0 <= wanted < len(self._link.outputs) else default
