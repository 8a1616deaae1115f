"""What generations gave (--enable-log-outputs)."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from fastfront._speedups.call import Call
from fastfront.server.exchange import Exchange, Headers
from fastfront.server.relay import Relay
from fastfront.server.request_log import printable
from fastfront.server.shown import Shown, in_body, in_events, joined
from fastfront.streams.prepared import PreparedCall

log = logging.getLogger("fastfront.requests")


class OutputLog:
    """Logs the answers of exchanges at INFO, as they are sent, texts cut to `max_chars`. Immutable.

    `deltas`: each piece of a stream has a line too. It reads what is sent, in Python, on the thread that sends it.
    """

    def __init__(self, max_chars: int | None, deltas: bool) -> None:
        self._max_chars = max_chars
        self.deltas = deltas

    def follow(self, prepared: PreparedCall, exchange: Exchange) -> None:
        """From here on the exchange's answer is logged."""
        if log.isEnabledFor(logging.INFO):
            logged = LoggedAnswer(exchange, prepared.external_id, self)
            exchange.protocol = logged
            exchange.on_end = logged.ended

    def write(self, request_id: str, shown: Shown, text: str, how: str = "") -> None:
        """One line, of a piece or of a choice."""
        text = text[: self._max_chars]
        log.info(
            "Generated response %s%s: output: %r, finish_reason: %s",
            printable(request_id), how and f" ({how})", text, shown.finish,
            extra={"request_id": request_id, "choice": shown.index, "output": text, "finish_reason": shown.finish},
        )  # fmt: skip


class LoggedAnswer(Relay):
    """One answer on its way out. One thread at a time."""

    __slots__ = ("_choices", "_log", "_on_end", "_request_id", "_stream")

    def __init__(self, exchange: Exchange, request_id: str, output_log: OutputLog) -> None:
        super().__init__(exchange.protocol)
        self._on_end = exchange.on_end
        self._request_id = request_id
        self._log = output_log
        self._stream: Any = None
        self._choices: dict[int, list[Shown]] = {}  # of a stream: all that was sent so far

    def answering(self, status: int, whole: bool) -> None:
        pass

    def response_bytes(self, status: int, headers: Headers, body: bytes) -> None:
        super().response_bytes(status, headers, body)
        if status != 200:
            return
        if not body.startswith(b"{"):              # a stream in one piece
            self._note(in_events(body))
            self._complete()
            return
        for shown in in_body(body):
            self._log.write(self._request_id, shown, _whole(shown))

    def response_stream(self, status: int, headers: Headers) -> LoggedAnswer:
        self._stream = super().response_stream(status, headers)
        return self

    def send_bytes(self, data: bytes) -> bool:
        """Stands in for the stream, as does `end`."""
        sent: bool = self._stream.send_bytes(data)
        self._note(in_events(data))
        return sent

    def end(self) -> None:
        self._stream.end()

    def ended(self, call: Call) -> None:
        """The lane is done with the request."""
        self._stream = None
        self._complete()
        if self._on_end is not None:
            self._on_end(call)

    def _note(self, pieces: Iterable[Shown]) -> None:
        for piece in pieces:
            text = piece.described()
            if text and self._log.deltas:
                self._log.write(self._request_id, piece, text, "streaming delta")
            self._choices.setdefault(piece.index, []).append(piece)

    def _complete(self) -> None:
        """A line for every choice that was sent to its end."""
        for shown in map(joined, self._choices.values()):
            if shown.finish is not None:
                self._log.write(self._request_id, shown, _whole(shown), "streaming complete")
        self._choices.clear()


def _whole(shown: Shown) -> str:
    """What was answered: content, or else calls, or else thoughts."""
    return shown.content or Shown(reasoning="" if shown.arguments else shown.reasoning, arguments=shown.arguments).described()
