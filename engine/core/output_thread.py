"""The output thread: encodes and sends, so that this overlaps with the next forward pass."""

from __future__ import annotations

import contextlib
import queue
import threading
import traceback
from collections.abc import Callable

import zmq

from engine.core.messages import COORDINATOR, Dead, Leave, Output
from engine.protocol import ENGINE_CORE_DEAD, Codec
from engine.transport import FrontendLink


class OutputThread(threading.Thread):
    """Owns the output sockets until it has been told to stop."""

    def __init__(self, link: FrontendLink, messages: queue.SimpleQueue[Output | Dead], report: Callable[[Leave], None]) -> None:
        """`report` gets a fatal Leave if this thread fails: nobody would be answered any more."""
        super().__init__(name="engine-output", daemon=True)
        self._link = link
        self._messages = messages
        self._report = report
        self._codec = Codec()
        # zmq copies what it is given: shorter than the encoding of a new message for each step.
        self._buffer = bytearray()

    def run(self) -> None:
        """Send until a Dead comes."""
        try:
            self._serve()
        except Exception:
            self._report(Leave(f"the output thread failed:\n{traceback.format_exc()}", error=True))
            self._send_sentinel()

    def _send_sentinel(self) -> None:
        for socket in self._link.outputs:
            with contextlib.suppress(zmq.ZMQError):
                socket.send(ENGINE_CORE_DEAD)

    def _serve(self) -> None:
        while True:
            item = self._messages.get()
            if isinstance(item, Dead):
                if item is Dead.FAILED:
                    self._send_sentinel()
                return
            self._codec.encode_into(item.message, self._buffer)
            if item.client != COORDINATOR:
                self._link.outputs[item.client].send(self._buffer)
            elif self._link.coordinator_out is not None:
                self._link.coordinator_out.send(self._buffer)
