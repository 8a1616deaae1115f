"""How messages lie in a ring.

Messages are bytes. Each is a record, or several when it is long: 16 bytes of header (u32 length of the piece, u32 kind,
u32 number, u32 check), the piece, padding to 16 bytes. Records do not wrap around the end; a PAD record fills what is left
there. A reader checks every length, kind and number: memory that another process scribbled over gives an error,
never a wrong message or a read outside of the ring.

Ordering: a writer fills in a record, then moves its position; a reader looks at the position, then at the record, then
moves its own. See `engine.shm.futex.Futex.order` for why that is enough.

Where the compiled kernels are there, engine/native/ring.c does what happens for every short message. After a sleep nothing of the
interpreter is in the processor's caches: a page of Python takes 10 us then, not one, and that is a good part of a message's way.
"""

from __future__ import annotations

import struct

HEADER = struct.Struct("<IIII")
TOTAL = struct.Struct("<Q")
"""What a BEGIN record holds: the length of the message that comes in MORE records."""
ALIGN = 16
WHOLE, BEGIN, MORE, PAD = 1, 2, 3, 4
HALF = 1 << 32
MAX_MESSAGE = 1 << 30
CHECK_S = 0.05
"""How often who waits looks whether the other side is alive."""
_CHECK = 0x5F3A91C7
"""With length, kind and number makes a header that something else was written over differ from one of ours."""


def check(size: int, kind: int, number: int) -> int:
    """The last field of a header."""
    return size ^ (kind << 24) ^ number ^ _CHECK


def padded(size: int) -> int:
    """Bytes that a record with a piece of `size` takes."""
    return -(-(size + HEADER.size) // ALIGN) * ALIGN
