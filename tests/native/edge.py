"""Memory that ends where nothing may be read: one byte too many is a crash, not luck."""

import ctypes
import mmap


class PageEdge:
    """`place` puts data right in front of an unreadable page. The view is good until the next `place`."""

    def __init__(self, pages: int = 4) -> None:
        self.size = pages * mmap.PAGESIZE
        self._memory = mmap.mmap(-1, self.size + mmap.PAGESIZE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        if ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(start + self.size), mmap.PAGESIZE, 0) != 0:
            raise OSError(ctypes.get_errno(), "mprotect")

    def place(self, data: bytes) -> memoryview:
        at = self.size - len(data)
        view = memoryview(self._memory)[at : self.size]
        view[:] = data
        return view
