"""The memory of a ring: an anonymous file that exists only as open descriptors, its header, and typed views of both.

Header, in lines of 64 bytes, little-endian:

====  ======================================================================================
0     magic (8), version u32, readers u32, capacity u64, name of the run (24)
1     u64 bytes written so far; u32 counter of writes, on which readers wait; u32 closed
2..   one per reader: u64 bytes read so far; u32 pid, 0 before it is there; u32 closed; u32 asleep (the writer clears it)
====  ======================================================================================

The data begins at the next page. One field has one writer, `asleep` apart.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import secrets
import struct

from engine.shm.errors import RingCorruptError, RingError

MAGIC = b"FFRING\r\n"
VERSION = 1
LINE = 64
PAGE = 4096
MAX_READERS = 32
MIN_CAPACITY = PAGE
MAX_CAPACITY = 1 << 32
DATA = PAGE
_FIXED = struct.Struct("<8sIIQ24s")
WRITTEN = LINE // 8
COUNTER = LINE // 4 + 2
WRITER_CLOSED = LINE // 4 + 3
_SEALS = fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL


def read_place(reader: int) -> int:
    """Index of a reader's position among the 8-byte words."""
    return (2 + reader) * LINE // 8


def pid_place(reader: int) -> int:
    """Index of a reader's pid among the 4-byte words."""
    return (2 + reader) * LINE // 4 + 2


def closed_place(reader: int) -> int:
    """Index of the 4-byte word that says that a reader has closed."""
    return (2 + reader) * LINE // 4 + 3


def asleep_place(reader: int) -> int:
    """Index of the 4-byte word that says that a reader sleeps or is about to."""
    return (2 + reader) * LINE // 4 + 4


class Segment:
    """A ring's memory, mapped. Nothing is left of it when the last process that has it open ends, however that ends."""

    def __init__(self, fd: int) -> None:
        """Map the segment that `fd` refers to; RingCorruptError unless it is one of this version. `fd` stays open."""
        try:
            size = os.fstat(fd).st_size
        except OSError as error:
            raise RingError(f"descriptor {fd} is no shared memory: {error.strerror}") from error
        if size < DATA + MIN_CAPACITY:
            raise RingCorruptError(f"{size} bytes are no ring")
        self.fd = fd
        self.memory = mmap.mmap(fd, size)
        self.view = memoryview(self.memory)
        self.words = self.view.cast("Q")
        self.halves = self.view.cast("I")
        magic, version, self.readers, self.capacity, name = _FIXED.unpack_from(self.memory)
        self.name: str = name.rstrip(b"\0").decode("ascii", "replace")
        problem = None
        if magic != MAGIC:
            problem = f"it begins with {magic!r}"
        elif version != VERSION:
            problem = f"it has version {version}, this is {VERSION}"
        elif not 1 <= self.readers <= MAX_READERS:
            problem = f"it has {self.readers} readers"
        elif self.capacity + DATA != size or self.capacity % PAGE:
            problem = f"it says that it holds {self.capacity} bytes, its size is {size}"
        if problem is not None:
            self.close()
            raise RingCorruptError(f"no ring of ours: {problem}")

    def address(self, half: int) -> int:
        """Address of a 4-byte word."""
        return ctypes.addressof(ctypes.c_uint32.from_buffer(self.memory, half * 4))

    def close(self) -> None:
        """Unmap and close the descriptor. May be repeated."""
        if self.fd < 0:
            return
        for view in (self.halves, self.words, self.view):
            view.release()
        self.memory.close()
        os.close(self.fd)
        self.fd = -1


def create(readers: int, capacity: int) -> int:
    """Descriptor of a new segment, not inheritable: pass it to a child by name.

    Its size cannot change any more, so that no process can make another one fault.
    """
    if not 1 <= readers <= MAX_READERS:
        raise ValueError(f"a ring has 1 to {MAX_READERS} readers, not {readers}")
    if not MIN_CAPACITY <= capacity <= MAX_CAPACITY or capacity % PAGE:
        raise ValueError(f"a ring holds {MIN_CAPACITY} to {MAX_CAPACITY} bytes in pages of {PAGE}, not {capacity}")
    name = f"{os.getpid()}-{secrets.token_hex(6)}"
    fd = os.memfd_create(f"fastfront-ring-{name}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, DATA + capacity)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
        os.pwrite(fd, _FIXED.pack(MAGIC, VERSION, readers, capacity, name.encode("ascii")[:24]), 0)
    except BaseException:
        os.close(fd)
        raise
    return fd
