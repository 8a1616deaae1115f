"""The running requests of the mock, kept so that a step over a thousand of them costs one slice and one join."""

from __future__ import annotations

from engine.mocking import fragments
from engine.mocking.streams import Stream, TokenSource
from engine.protocol import FinishReason

_LAST_TAIL = fragments.output_tail(FinishReason.LENGTH)


class PlainBatch:
    """Requests of one client that only need one pseudo-random token per step until their count is reached."""

    def __init__(self, source: TokenSource) -> None:
        self._source = source
        self._streams: dict[str, Stream] = {}
        self._due: dict[int, list[Stream]] = {}
        self._pieces: list[bytes] = []
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

    def step(self, step: int, done: list[Stream]) -> tuple[int, bytes]:
        """Encoded outputs of one step and how many they are; finished requests are dropped and appended to `done`."""
        last: list[bytes] = []
        for stream in self._due.pop(step, ()):
            if self._streams.get(stream.request_id) is stream:
                del self._streams[stream.request_id]
                token = self._source.encoded[self._source.take(1)]
                last += (stream.encoded_head, token, _LAST_TAIL)
                done.append(stream)
                self._stale = True
        if self._stale:
            tail = fragments.PLAIN_TAIL
            self._pieces = [piece for s in self._streams.values() for piece in (tail + s.encoded_head, b"")]
            if self._pieces:
                self._pieces[0] = self._pieces[0][len(tail) :]
            self._stale = False
        count = len(self._streams)
        pieces = b"".join(last)
        if count:
            at = self._source.take(count)
            self._pieces[1::2] = self._source.encoded[at : at + count]
            pieces = b"".join((*self._pieces, fragments.PLAIN_TAIL, pieces))
        return count + len(last) // 3, pieces
