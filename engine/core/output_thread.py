"""The output thread: encodes and sends, so that this overlaps with the next forward pass."""

from __future__ import annotations

import queue
import threading

from engine.core.messages import COORDINATOR, Dead, Output
from engine.protocol import ENGINE_CORE_DEAD, Codec
from engine.transport import FrontendLink


class OutputThread(threading.Thread):
    """Owns the output sockets until it has been told to stop."""

    def __init__(self, link: FrontendLink, messages: queue.SimpleQueue[Output | Dead]) -> None:
        super().__init__(name="engine-output", daemon=True)
        self._link = link
        self._messages = messages
        self._codec = Codec()

    def run(self) -> None:
        """Send until a Dead comes."""
        while True:
            item = self._messages.get()
            if isinstance(item, Dead):
                if item is Dead.FAILED:
                    for socket in self._link.outputs:
                        socket.send(ENGINE_CORE_DEAD)
                return
            data = self._codec.encode(item.message)
            if item.client != COORDINATOR:
                self._link.outputs[item.client].send(data, copy=len(data) < 65536)
            elif self._link.coordinator_out is not None:
                self._link.coordinator_out.send(data)
