"""Looking on while a request is answered."""

from __future__ import annotations

from typing import Any

from fastfront.server.exchange import Headers


class Relay:
    """Stands in for a request when it is answered and tells `answering` what goes out. One thread at a time."""

    __slots__ = ("_protocol",)

    def __init__(self, protocol: Any) -> None:
        self._protocol = protocol

    def answering(self, status: int, whole: bool) -> None:
        """An answer has been handed over; not `whole`: its head, further pieces follow."""
        raise NotImplementedError

    def response_bytes(self, status: int, headers: Headers, body: bytes) -> None:
        self._protocol.response_bytes(status, headers, body)
        self.answering(status, True)

    def response_empty(self, status: int, headers: Headers) -> None:
        self._protocol.response_empty(status, headers)
        self.answering(status, True)

    def response_stream(self, status: int, headers: Headers) -> Any:
        transport = self._protocol.response_stream(status, headers)
        self.answering(status, False)
        return transport

    def abandon(self) -> None:
        self._protocol.abandon()
