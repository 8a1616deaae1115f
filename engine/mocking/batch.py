"""The running requests of the mock, kept so that a step over a thousand of them costs one slice and one join.

In the message an output is head, token, rest; the rest begins with the logprobs. Those of a request that wants some change
with the token, so that they are kept with it, and its rest is one element shorter.
"""

from __future__ import annotations

from engine.mocking import fragments
from engine.mocking.logprobs import EncodedLogprobs
from engine.mocking.streams import Stream, TokenSource
from engine.protocol import FinishReason

_LAST_REST = fragments.output_tail(FinishReason.LENGTH)


class PlainBatch:
    """Requests of one client that need one pseudo-random token per step until their count is reached, maybe with logprobs."""

    def __init__(self, source: TokenSource, logprobs: EncodedLogprobs) -> None:
        self._source = source
        self._logprobs = logprobs
        self._streams: dict[str, Stream] = {}
        self._due: dict[int, list[Stream]] = {}
        self._pieces: list[bytes] = []
        self._last_rest = b""
        self._with_logprobs: list[tuple[int, int]] = []
        """Index and number of alternatives of those that want logprobs."""
        self._stale = False

    def __len__(self) -> int:
        return len(self._streams)

    def add(self, stream: Stream, last_step: int) -> None:
        """From the next step on; the `last_step`-th step finishes the request."""
        self._streams[stream.request_id] = stream
        self._due.setdefault(last_step, []).append(stream)
        self._stale = True

    def discard(self, request_id: str) -> bool:
        """Forget an aborted request."""
        gone = self._streams.pop(request_id, None) is not None
        self._stale = self._stale or gone
        return gone

    def ids(self) -> list[str]:
        """Running requests, in order of admission."""
        return list(self._streams)

    def output(self, stream: Stream, rest: bytes) -> tuple[bytes, bytes, bytes]:
        """The next output of one request; `rest` is everything behind its token."""
        at = self._source.take(1)
        token = self._source.encoded[at]
        if stream.logprobs is None:
            return stream.encoded_head, token, rest
        return stream.encoded_head, token + self._logprobs.piece(self._source.tokens[at], stream.logprobs), rest[1:]

    def step(self, step: int, done: list[Stream]) -> tuple[int, bytes]:
        """Encoded outputs of one step and how many they are; finished requests are dropped and appended to `done`."""
        last: list[bytes] = []
        for stream in self._due.pop(step, ()):
            if self._streams.get(stream.request_id) is stream:
                del self._streams[stream.request_id]
                last += self.output(stream, _LAST_REST)
                done.append(stream)
                self._stale = True
        if self._stale:
            self._rebuild()
        count = len(self._streams)
        pieces = b"".join(last)
        if count:
            at = self._source.take(count)
            self._pieces[1::2] = self._source.encoded[at : at + count]
            for index, alternatives in self._with_logprobs:
                self._pieces[2 * index + 1] += self._logprobs.piece(self._source.tokens[at + index], alternatives)
            pieces = b"".join((*self._pieces, self._last_rest, pieces))
        return count + len(last) // 3, pieces

    def _rebuild(self) -> None:
        """Everything between two tokens in one piece: the rest of one output and the head of the next."""
        self._pieces, self._with_logprobs, rest = [], [], b""
        for index, stream in enumerate(self._streams.values()):
            self._pieces += (rest + stream.encoded_head, b"")
            rest = fragments.PLAIN_TAIL
            if stream.logprobs is not None:
                rest = rest[1:]
                self._with_logprobs.append((index, stream.logprobs))
        self._last_rest = rest
        self._stale = False
