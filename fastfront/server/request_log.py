"""What generations were asked for (--enable-log-requests)."""

from __future__ import annotations

import logging
from collections.abc import Callable

from fastfront.streams.prepared import PreparedCall

log = logging.getLogger("fastfront.requests")
MAX_PARAMETER_CHARS = 2000
MAX_NAME_CHARS = 500  # of what clients call their requests


class RequestLog:
    """Logs a request's parameters at INFO, and each of its prompts at DEBUG, cut to `max_chars`. Immutable."""

    def __init__(self, decode: Callable[[list[int]], str], max_chars: int | None) -> None:
        self._decode = decode
        self._max_chars = max_chars

    def __call__(self, call: PreparedCall) -> None:
        log.info(
            "Received request %s: %s, stream=%s, n=%d, prompt tokens %s, max_tokens %s, stop %s, priority=%d, params %s",
            printable(call.external_id), call.kind, call.stream, call.n, [p.length for p in call.prompts][:16],
            [p.max_tokens for p in call.prompts][:16], _cut(repr(call.stop), MAX_PARAMETER_CHARS), call.priority,
            _cut(repr(call.sampling), MAX_PARAMETER_CHARS),
        )  # fmt: skip
        if log.isEnabledFor(logging.DEBUG):
            for index, prompt in enumerate(call.prompts):
                text = self._decode(prompt.token_ids)
                log.debug("Request %s, prompt %d: %r", printable(call.external_id), index, text[: self._max_chars])


def printable(text: str) -> str:
    """A client's text as part of a line: what could end the line is written as an escape, and what is too long is cut."""
    text = _cut(text, MAX_NAME_CHARS)
    return text if text.isprintable() else repr(text)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most] + "..."
