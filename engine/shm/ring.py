"""A queue of messages in shared memory: one writer, one or more readers, each of which gets every message.

Messages are bytes. Each is a record, or several when it is long: 16 bytes of header (u32 length of the piece, u32 kind,
u32 number, u32 check), the piece, padding to 16 bytes. Records do not wrap around the end; a PAD record fills what is left
there. A reader checks every length, kind and number: memory that another process scribbled over gives an error,
never a wrong message or a read outside of the ring.

Ordering: a writer fills in a record, then moves its position; a reader looks at the position, then at the record, then
moves its own. See `Futex.order` for why that is enough.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Sequence

from engine.shm.errors import MessageTooLargeError, PeerDiedError, RingClosedError, RingCorruptError
from engine.shm.futex import Futex
from engine.shm.peer import Peer
from engine.shm.segment import (
    COUNTER,
    DATA,
    WRITER_CLOSED,
    WRITTEN,
    Segment,
    asleep_place,
    closed_place,
    pid_place,
    read_place,
)

MAX_MESSAGE = 1 << 30
SPINS = 20
YIELDS = 10
"""Looks at the position before sleeping, about 20 us in all, and how often the core is offered to others meanwhile: a
message that is on its way is found without sleeping, and a writer on the same core gets on with it."""
CHECK_S = 0.05
"""How often a sleeper looks whether the other side is alive."""
SLEEP_S = (0.00002, 0.001)
"""Shortest and longest sleep of a writer that waits for space."""
_HEADER = struct.Struct("<IIII")
_TOTAL = struct.Struct("<Q")
_ALIGN = 16
_WHOLE, _BEGIN, _MORE, _PAD = 1, 2, 3, 4
_HALF = 1 << 32
_CHECK = 0x5F3A91C7
"""With length, kind and number makes a header that something else was written over differ from one of ours."""


class RingWriter:
    """The writing end. Used by one thread at a time."""

    def __init__(self, fd: int, max_message: int = MAX_MESSAGE) -> None:
        """Take over the descriptor of a new segment (`engine.shm.segment.create`)."""
        self._segment = Segment(fd)
        self._futex = Futex()
        self._ordered = self._futex.ordered
        self._wait_address = self._segment.address(COUNTER)
        self._capacity = self._segment.capacity
        self._limit = self._capacity // 4 // _ALIGN * _ALIGN - _HEADER.size
        self._max_message = max_message
        self._written = 0
        self._number = 0
        self._tails = [0] * self._segment.readers
        self._room_until = self._capacity
        self._asleep = [asleep_place(reader) for reader in range(self._segment.readers)]
        self._peers: Sequence[Peer] = ()
        self._closed = False

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
        size = len(message)
        if size > self._max_message:
            raise MessageTooLargeError(f"a message of {size} bytes, the limit is {self._max_message}")
        if self._closed:
            raise RingClosedError("this ring is closed")
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        if size <= self._limit:
            self._put(_WHOLE, message, deadline)
            return
        self._put(_BEGIN, _TOTAL.pack(size), deadline)
        rest = memoryview(message)
        while rest:
            self._put(_MORE, rest[: self._limit], deadline)
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
        size = len(piece)
        needed = _padded(size)
        place = self._written % self._capacity
        room = self._capacity - place
        skipped = 0 if needed <= room else room
        if self._written + skipped + needed > self._room_until:
            self._await_space(skipped + needed, deadline)
        segment = self._segment
        if skipped:
            check = (_PAD << 24) ^ self._number ^ _CHECK
            _HEADER.pack_into(segment.memory, DATA + place, 0, _PAD, self._number, check)
            place = 0
        start = DATA + place
        number = self._number
        _HEADER.pack_into(segment.memory, start, size, kind, number, size ^ (kind << 24) ^ number ^ _CHECK)
        start += _HEADER.size
        segment.view[start : start + size] = piece
        self._number = (number + 1) % _HALF
        self._written += skipped + needed
        if not self._ordered:
            self._futex.order()
        segment.words[WRITTEN] = self._written
        self._wake()

    def _wake(self) -> None:
        halves = self._segment.halves
        halves[COUNTER] = (halves[COUNTER] + 1) % _HALF
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
        check = 0.0
        while True:
            for reader in range(len(self._tails)):
                self._tails[reader] = self._tail(reader)
            self._room_until = min(self._tails) + self._capacity
            if self._written + needed <= self._room_until:
                # Readers have done with what is overwritten now.
                self._futex.order()
                return
            now = time.monotonic()
            if deadline is not None and now > deadline:
                slowest = self._tails.index(min(self._tails))
                raise TimeoutError(f"reader {slowest} leaves no room in the ring")
            if now >= check:
                check = now + CHECK_S
                self._check_readers()
            time.sleep(pause)
            pause = min(2 * pause, longest)

    def _tail(self, reader: int) -> int:
        tail = self._segment.words[read_place(reader)]
        if not self._tails[reader] <= tail <= self._written or tail % _ALIGN:
            raise RingCorruptError(f"reader {reader} is at byte {tail}, {self._written} have been written")
        return tail

    def _check_readers(self) -> None:
        for peer in self._peers:
            if peer.gone():
                raise PeerDiedError(f"{peer.name} (pid {peer.pid}) has ended")
        for reader in range(self._segment.readers):
            if self._segment.halves[closed_place(reader)]:
                raise RingClosedError(f"reader {reader} has closed the ring")


class RingReader:
    """A reading end. Used by one thread at a time, but for `interrupt`."""

    def __init__(self, fd: int, reader: int, peer: Peer | None = None, max_message: int = MAX_MESSAGE) -> None:
        """Take over an inherited descriptor and be the reader of that number; `peer` is the process that writes.

        RingCorruptError if there is no such reader, or it is taken.
        """
        self._segment = Segment(fd)
        self._futex = Futex()
        self._ordered = self._futex.ordered
        self._peer = peer
        self._reader = reader
        self._wait_address = self._segment.address(COUNTER)
        self._capacity = self._segment.capacity
        self._max_message = max_message
        self._read = 0
        self._number = 0
        self._read_place = read_place(reader)
        self._partial: bytearray | None = None
        self._have = 0
        self._reason: str | None = None
        self._closed = False
        segment = self._segment
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
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        memory = self._segment.memory
        if self._partial is None:
            kind, start, size = self._take(deadline)
            if kind == _WHOLE:
                whole: bytes = memory[start : start + size]
                self._release(size)
                return whole
            if kind != _BEGIN or size != _TOTAL.size:
                raise RingCorruptError(f"record {self._number - 1} begins a message, its kind is {kind}")
            total: int = _TOTAL.unpack_from(memory, start)[0]
            if total > self._max_message:
                raise RingCorruptError(f"record {self._number - 1} announces {total} bytes")
            self._release(size)
            self._partial, self._have = bytearray(total), 0
        message = self._partial
        while self._have < len(message):
            kind, start, size = self._take(deadline)
            end = self._have + size
            if kind != _MORE or not self._have < end <= len(message):
                raise RingCorruptError(f"record {self._number - 1} does not go on with its message")
            message[self._have : end] = self._segment.view[start : start + size]
            self._have = end
            self._release(size)
        self._partial = None
        return message

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

    def _release(self, size: int) -> None:
        """Give a record with a piece of `size` back to the writer."""
        self._read += _padded(size)
        if not self._ordered:
            self._futex.order()
        self._segment.words[self._read_place] = self._read

    def _take(self, deadline: float | None) -> tuple[int, int, int]:
        """Kind, place in memory and length of the next piece, waiting for it; to be released."""
        words = self._segment.words
        while True:
            available = words[WRITTEN] - self._read
            if available == 0:
                self._await(deadline)
                continue
            if not self._ordered:
                self._futex.order()
            if not _ALIGN <= available <= self._capacity or available % _ALIGN:
                raise RingCorruptError(f"the writer is {available} bytes ahead")
            place = self._read % self._capacity
            size, kind, number, check = _HEADER.unpack_from(self._segment.memory, DATA + place)
            room = min(available, self._capacity - place)
            expected = size ^ (kind << 24) ^ number ^ _CHECK
            if number != self._number or check != expected or size + _HEADER.size > room:
                raise RingCorruptError(f"record {self._number} has number {number}, kind {kind}, {size} bytes of {room}")
            if kind == _PAD:
                if size or place + room != self._capacity or place == 0:
                    raise RingCorruptError(f"record {self._number} skips what is not the end")
                self._read += room
                continue
            self._number = (number + 1) % _HALF
            return kind, DATA + place + _HEADER.size, size

    def _await(self, deadline: float | None) -> None:
        """Wait until there may be something."""
        words, read = self._segment.words, self._read
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
                wait_s = CHECK_S if deadline is None else min(CHECK_S, max(0.0, deadline - time.monotonic()))
                self._futex.wait(self._wait_address, seen, wait_s)
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
            if self._segment.words[WRITTEN] == self._read:
                raise error


def _padded(size: int) -> int:
    """Bytes that a record with a piece of `size` takes."""
    return -(-(size + _HEADER.size) // _ALIGN) * _ALIGN
