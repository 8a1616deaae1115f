"""Waiting for a word in shared memory to change: futex(2) through ctypes, which lets go of the GIL meanwhile."""

from __future__ import annotations

import ctypes
import errno
import platform
import sys
import threading

from engine.shm.errors import RingError

_CALLS = {"x86_64": 202, "aarch64": 98}
"""Number of the futex system call."""
_ORDERED = "x86_64"
_WAIT, _WAKE = 0, 1
_ALL = (1 << 31) - 1


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class Futex:
    """futex(2) on words of memory that processes share. Any thread may use it."""

    def __init__(self) -> None:
        """RingError where there is no futex."""
        machine = platform.machine()
        if not sys.platform.startswith("linux") or machine not in _CALLS:
            raise RingError(f"shared-memory rings need Linux on {' or '.join(_CALLS)}, not {sys.platform} on {machine}")
        self._number = _CALLS[machine]
        self.ordered = machine == _ORDERED
        """Whether `order` has nothing to do."""
        self._call = ctypes.CDLL(None, use_errno=True).syscall
        self._call.restype = ctypes.c_long
        self._call.argtypes = [ctypes.c_long, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint, ctypes.c_void_p]
        self._lock = threading.Lock()
        self._private = ctypes.c_uint32()
        self._private_address = ctypes.addressof(self._private)

    def wait(self, address: int, seen: int, timeout_s: float) -> None:
        """Sleep until woken, for `timeout_s` at most; returns at once if the word is not `seen`. May return early."""
        seconds = int(timeout_s)
        limit = _Timespec(seconds, int((timeout_s - seconds) * 1e9))
        if self._call(self._number, address, _WAIT, seen, ctypes.addressof(limit)) == 0:
            return
        code = ctypes.get_errno()
        if code not in (errno.EAGAIN, errno.EINTR, errno.ETIMEDOUT):
            raise RingError(f"cannot wait on shared memory: {errno.errorcode.get(code, code)}")

    def wake(self, address: int) -> None:
        """Wake all that wait on the word."""
        self._call(self._number, address, _WAKE, _ALL, None)

    def order(self) -> None:
        """Keep what this thread does before from mixing with what it does after, but for a store before a later load.

        On x86-64 that is so by itself.
        """
        if not self.ordered:
            self._barrier()

    def fence(self) -> None:
        """Keep everything this thread reads and writes before from mixing with what it does after."""
        if self.ordered:
            # Taking a lock is a locked instruction, which is a full barrier there.
            self._lock.acquire()
            self._lock.release()
        else:
            self._barrier()

    def _barrier(self) -> None:
        """A wake that wakes nobody: the kernel looks for waiters behind a full barrier."""
        self._call(self._number, self._private_address, _WAKE, 1, None)
