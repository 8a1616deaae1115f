"""The writing end of a ring: one writer, one or more readers, each of which gets every message."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence

from engine.native.library import RingWriterState, kernels_or_none
from engine.shm.errors import MessageTooLargeError, PeerDiedError, RingClosedError, RingCorruptError
from engine.shm.futex import Futex
from engine.shm.peer import Peer
from engine.shm.records import ALIGN, BEGIN, CHECK_S, HALF, HEADER, MAX_MESSAGE, MORE, PAD, TOTAL, WHOLE, check, padded
from engine.shm.segment import COUNTER, DATA, WRITER_CLOSED, WRITTEN, Segment, asleep_place, closed_place, read_place

SLEEP_S = (0.00002, 0.001)
"""Shortest and longest sleep of a writer that waits for space."""


class RingWriter:
    """Used by one thread at a time."""

    def __init__(self, fd: int, max_message: int = MAX_MESSAGE, native: bool = True) -> None:
        """Take over the descriptor of a new segment (`engine.shm.segment.create`); `native`: by the kernels if they are there."""
        self._segment = segment = Segment(fd)
        self._futex = Futex()
        self._ordered = self._futex.ordered
        self._wait_address = segment.address(COUNTER)
        self._capacity = segment.capacity
        self._limit = segment.capacity // 4 // ALIGN * ALIGN - HEADER.size
        self._max_message = max_message
        self._tails = [0] * segment.readers
        self._asleep = [asleep_place(reader) for reader in range(segment.readers)]
        self._peers: Sequence[Peer] = ()
        self._closed = False
        self._state = RingWriterState(
            base=segment.address(0),
            capacity=segment.capacity,
            room_until=segment.capacity,
            limit=min(self._limit, max_message, HALF - 1),
            readers=segment.readers,
        )
        self._native = kernels_or_none() if native else None
        self._send_native = None if self._native is None else self._native.ring_send
        self._address = ctypes.addressof(self._state)

    @property
    def fd(self) -> int:
        """The segment's descriptor, for readers to inherit."""
        return self._segment.fd

    def watch(self, peers: Sequence[Peer]) -> None:
        """These processes read: without space, look whether they live."""
        self._peers = peers

    def send(self, message: bytes | bytearray | memoryview, timeout_s: float | None = None) -> None:
        """Put a message where all readers get it; waits while the slowest has no room for it.

        Raises MessageTooLargeError; while waiting PeerDiedError, RingClosedError, or TimeoutError after `timeout_s`. Part
        of a long message may have gone out by then: only closing is left to do.
        """
        if self._closed:
            raise RingClosedError("this ring is closed")
        size = len(message)
        send = self._send_native
        if send is not None and type(message) is bytes and send(self._address, message, size):
            return
        if size > self._max_message:
            raise MessageTooLargeError(f"a message of {size} bytes, the limit is {self._max_message}")
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        if size <= self._limit:
            self._put(WHOLE, message, deadline)
            return
        self._put(BEGIN, TOTAL.pack(size), deadline)
        rest = memoryview(message)
        while rest:
            self._put(MORE, rest[: self._limit], deadline)
            rest = rest[self._limit :]

    def close(self) -> None:
        """No more messages: readers are told once they have read everything. May be repeated."""
        if self._closed:
            return
        self._closed = True
        self._segment.halves[WRITER_CLOSED] = 1
        self._wake()
        self._segment.close()

    def _put(self, kind: int, piece: bytes | bytearray | memoryview, deadline: float | None) -> None:
        state = self._state
        size = len(piece)
        needed = padded(size)
        place = state.written % self._capacity
        room = self._capacity - place
        skipped = 0 if needed <= room else room
        if state.written + skipped + needed > state.room_until:
            self._await_space(skipped + needed, deadline)
        segment = self._segment
        number = state.number
        if skipped:
            HEADER.pack_into(segment.memory, DATA + place, 0, PAD, number, check(0, PAD, number))
            place = 0
        start = DATA + place
        HEADER.pack_into(segment.memory, start, size, kind, number, check(size, kind, number))
        start += HEADER.size
        segment.view[start : start + size] = piece
        state.number = (number + 1) % HALF
        state.written += skipped + needed
        if self._native is not None:
            self._native.ring_publish(self._address)
            return
        if not self._ordered:
            self._futex.order()
        segment.words[WRITTEN] = state.written
        self._wake()

    def _wake(self) -> None:
        halves = self._segment.halves
        halves[COUNTER] = (halves[COUNTER] + 1) % HALF
        # Either this sees that a reader goes to sleep, or that one sees the message.
        self._futex.fence()
        asleep = [place for place in self._asleep if halves[place]]
        if asleep:
            # First taken back, then woken, once for each sleep: who sleeps again by then is woken for nothing, not left asleep.
            for place in asleep:
                halves[place] = 0
            self._futex.wake(self._wait_address)

    def _await_space(self, needed: int, deadline: float | None) -> None:
        pause, longest = SLEEP_S
        state = self._state
        look = 0.0
        while True:
            for reader in range(len(self._tails)):
                self._tails[reader] = self._tail(reader)
            state.room_until = min(self._tails) + self._capacity
            if state.written + needed <= state.room_until:
                # Readers have done with what is overwritten now.
                self._futex.order()
                return
            now = time.monotonic()
            if deadline is not None and now > deadline:
                slowest = self._tails.index(min(self._tails))
                raise TimeoutError(f"reader {slowest} leaves no room in the ring")
            if now >= look:
                look = now + CHECK_S
                self._check_readers()
            time.sleep(pause)
            pause = min(2 * pause, longest)

    def _tail(self, reader: int) -> int:
        tail = self._segment.words[read_place(reader)]
        written = self._state.written
        if not self._tails[reader] <= tail <= written or tail % ALIGN:
            raise RingCorruptError(f"reader {reader} is at byte {tail}, {written} have been written")
        return tail

    def _check_readers(self) -> None:
        for peer in self._peers:
            if peer.gone():
                raise PeerDiedError(f"{peer.name} (pid {peer.pid}) has ended")
        for reader in range(self._segment.readers):
            if self._segment.halves[closed_place(reader)]:
                raise RingClosedError(f"reader {reader} has closed the ring")
