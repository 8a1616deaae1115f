"""A reading end of a ring."""

from __future__ import annotations

import ctypes
import os
import time

from engine.native.library import RingReaderState, kernels_or_none
from engine.shm.errors import PeerDiedError, RingClosedError, RingCorruptError
from engine.shm.futex import Futex
from engine.shm.peer import Peer
from engine.shm.records import ALIGN, BEGIN, CHECK_S, HALF, HEADER, MAX_MESSAGE, MORE, PAD, TOTAL, WHOLE, check, padded
from engine.shm.segment import COUNTER, DATA, WRITER_CLOSED, WRITTEN, Segment, asleep_place, closed_place, pid_place, read_place

SPINS = 20
YIELDS = 10
"""Without kernels: looks at the position before sleeping, about 20 us in all, and how often the core is offered to others
meanwhile: a message that is on its way is found without sleeping, and a writer on the same core gets on with it."""
SPIN_NS = (20_000, 500_000)
"""The same with kernels, in ns: the longer one while waits are not longer than that, because waking an idle core takes tens
of us. After one long wait it is the shorter one, so that a reader spins for 500 us at most before it idles."""
EMPTY = -1
"""What `ring_next` returns when nothing has come."""


class RingReader:
    """Used by one thread at a time, but for `interrupt`."""

    def __init__(
        self, fd: int, reader: int, peer: Peer | None = None, max_message: int = MAX_MESSAGE, native: bool = True
    ) -> None:
        """Take over an inherited descriptor and be the reader of that number; `peer` is the process that writes.

        RingCorruptError if there is no such reader, or it is taken. `native`: by the kernels if they are there.
        """
        self._segment = segment = Segment(fd)
        self._futex = Futex()
        self._ordered = self._futex.ordered
        self._peer = peer
        self._reader = reader
        self._wait_address = segment.address(COUNTER)
        self._capacity = segment.capacity
        self._max_message = max_message
        self._read_place = read_place(reader)
        self._partial: bytearray | None = None
        self._have = 0
        self._reason: str | None = None
        self._closed = False
        short, longer = SPIN_NS
        self._state = RingReaderState(
            base=segment.address(0), capacity=segment.capacity, reader=reader, spin_ns=short, short_ns=short, long_ns=longer
        )
        native_code = kernels_or_none() if native else None
        self._next = None if native_code is None else native_code.ring_next
        self._address = ctypes.addressof(self._state)
        if not 0 <= reader < segment.readers:
            segment.close()
            raise RingCorruptError(f"there is no reader {reader}")
        if segment.halves[pid_place(reader)]:
            taken = segment.halves[pid_place(reader)]
            segment.close()
            raise RingCorruptError(f"process {taken} is reader {reader} already")
        segment.halves[pid_place(reader)] = os.getpid()

    @property
    def fd(self) -> int:
        """The segment's descriptor, for the writer to inherit."""
        return self._segment.fd

    def receive(self, timeout_s: float | None = None) -> bytes | bytearray:
        """The next message, waiting for it.

        Raises RingClosedError when there will be none, PeerDiedError when the writer ended without closing, both
        only after all complete messages; RingCorruptError; TimeoutError after `timeout_s`, nothing is lost by that.
        """
        if self._closed:
            raise RingClosedError("this ring is closed")
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        memory = self._segment.memory
        if self._partial is None:
            if self._next is not None:
                size = self._next(self._address, 0)
                if size == EMPTY:
                    size = self._sleep(deadline)
                if size >= 0:
                    start = self._state.start
                    message: bytes = memory[start : start + size]
                    self._release()
                    return message
            kind, start, size = self._take(deadline)
            if kind == WHOLE:
                message = memory[start : start + size]
                self._release()
                return message
            if kind != BEGIN or size != TOTAL.size:
                raise RingCorruptError(f"record {self._state.number - 1} begins a message, its kind is {kind}")
            total: int = TOTAL.unpack_from(memory, start)[0]
            if total > self._max_message:
                raise RingCorruptError(f"record {self._state.number - 1} announces {total} bytes")
            self._release()
            self._partial, self._have = bytearray(total), 0
        long = self._partial
        while self._have < len(long):
            kind, start, size = self._take(deadline)
            end = self._have + size
            if kind != MORE or not self._have < end <= len(long):
                raise RingCorruptError(f"record {self._state.number - 1} does not go on with its message")
            long[self._have : end] = self._segment.view[start : start + size]
            self._have = end
            self._release()
        self._partial = None
        return long

    def interrupt(self, reason: str) -> None:
        """Make `receive`, also one that waits on another thread, raise RingClosedError(reason) when nothing is there."""
        self._reason = reason
        if not self._closed:
            self._futex.wake(self._wait_address)

    def close(self) -> None:
        """Leave the ring; the writer gets an error when it needs room. May be repeated."""
        if not self._closed:
            self._closed = True
            self._segment.halves[closed_place(self._reader)] = 1
            self._segment.close()

    def _release(self) -> None:
        """Give what has been read back to the writer."""
        if not self._ordered:
            self._futex.order()
        self._segment.words[self._read_place] = self._state.read

    def _take(self, deadline: float | None) -> tuple[int, int, int]:
        """Kind, place in memory and length of the next piece, waiting for it; to be released."""
        words, state = self._segment.words, self._state
        while True:
            read = state.read
            available = words[WRITTEN] - read
            if available == 0:
                self._await(deadline)
                continue
            if not self._ordered:
                self._futex.order()
            if not ALIGN <= available <= self._capacity or available % ALIGN:
                raise RingCorruptError(f"the writer is {available} bytes ahead")
            place = read % self._capacity
            size, kind, number, found = HEADER.unpack_from(self._segment.memory, DATA + place)
            room = min(available, self._capacity - place)
            if number != state.number or found != check(size, kind, number) or size + HEADER.size > room:
                raise RingCorruptError(f"record {state.number} has number {number}, kind {kind}, {size} bytes of {room}")
            if kind == PAD:
                if size or place + room != self._capacity or place == 0:
                    raise RingCorruptError(f"record {state.number} skips what is not the end")
                state.read = read + room
                continue
            state.number = (number + 1) % HALF
            state.read = read + padded(size)
            return kind, DATA + place + HEADER.size, size

    def _sleep(self, deadline: float | None) -> int:
        """With kernels: wait for a message when looking for it was in vain; what `ring_next` says of it."""
        following = self._next
        assert following is not None
        size = EMPTY
        while size == EMPTY:
            self._check_waiting(deadline)
            size = following(self._address, int(_wait_s(deadline) * 1e9))
        return size

    def _await(self, deadline: float | None) -> None:
        """Wait until there may be something."""
        words, read = self._segment.words, self._state.read
        for _ in range(YIELDS):
            for _ in range(SPINS):
                if words[WRITTEN] != read:
                    return
            os.sched_yield()
        halves = self._segment.halves
        place = asleep_place(self._reader)
        try:
            while words[WRITTEN] == read:
                halves[place] = 1
                seen = halves[COUNTER]
                self._futex.fence()
                if words[WRITTEN] != read:
                    return
                self._check_waiting(deadline)
                self._futex.wait(self._wait_address, seen, _wait_s(deadline))
        finally:
            halves[place] = 0

    def _check_waiting(self, deadline: float | None) -> None:
        """Raise what ends a wait, if nothing has come in the meantime: the writer may have written before it left."""
        error: Exception | None = None
        if self._segment.halves[WRITER_CLOSED]:
            error = RingClosedError("the writer has closed the ring")
        elif self._reason is not None:
            error = RingClosedError(self._reason)
        elif self._peer is not None and self._peer.gone():
            error = PeerDiedError(f"{self._peer.name} (pid {self._peer.pid}) has ended")
        elif deadline is not None and time.monotonic() >= deadline:
            error = TimeoutError("no message in the ring")
        if error is not None:
            self._futex.order()
            if self._segment.words[WRITTEN] == self._state.read:
                raise error


def _wait_s(deadline: float | None) -> float:
    """How long to sleep at a stretch."""
    return CHECK_S if deadline is None else min(CHECK_S, max(0.0, deadline - time.monotonic()))
