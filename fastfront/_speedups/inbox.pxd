"""What other threads hand to a lane (fastfront._speedups.inbox)."""
cimport cython
from cpython.object cimport PyObject

from fastfront._speedups.call cimport Call
from fastfront._speedups.engine_sockets cimport EngineSockets
from fastfront._speedups.stream_table cimport StreamTable


cdef class Inbox:
    cdef cython.pymutex lock
    cdef PyObject **items       # owned; in the order in which they came
    cdef size_t n, cap
    cdef bint sleeping          # the owner is about to wait, and must be woken up
    cdef EngineSockets sockets
    cdef StreamTable streams
    cdef readonly int index     # the lane's number on the wire

    cdef int put(self, object item) except -1
    cdef size_t load_now(self) noexcept nogil


@cython.final
cdef class Leaving:
    cdef Inbox lane
    cdef Call call
