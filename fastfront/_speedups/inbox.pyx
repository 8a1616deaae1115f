# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False
"""What other threads hand to a lane: calls to submit, and functions to run on its thread."""
cimport cython
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdlib cimport free

from fastfront._speedups.buffers cimport array_reserve
from fastfront._speedups.call cimport Call
from fastfront._speedups.engine_sockets cimport EngineSockets
from fastfront._speedups.stream_table cimport StreamTable


cdef class Inbox:
    """Any thread posts, and asks for the load; the owner takes. `sockets` are what the owner waits at, `streams` what it works on."""

    def __cinit__(self, *_arguments, **_named):
        self.items = NULL

    def __init__(self, int index, EngineSockets sockets not None, StreamTable streams not None):
        self.index = index
        self.sockets = sockets
        self.streams = streams

    def __dealloc__(self):
        cdef size_t k
        for k in range(self.n):
            Py_XDECREF(self.items[k])
        free(self.items)

    def post(self, object item not None) -> None:
        """Hands over a call to submit, or a function to run on the owner's thread."""
        self.put(item)

    cdef int put(self, object item) except -1:
        cdef bint wake
        cdef int r
        Py_INCREF(item)
        with self.lock:
            r = array_reserve(<void **>&self.items, &self.cap, self.n + 1, sizeof(PyObject *))
            if r == 0:
                self.items[self.n] = <PyObject *>item
                self.n += 1
            wake = self.sleeping
            self.sleeping = False           # whoever sets it again wakes the owner: the next need not
        if r < 0:
            Py_XDECREF(<PyObject *>item)
            raise MemoryError
        if wake:
            self.sockets.wake_owner()
        return 0

    def take(self) -> list:
        """All that is there."""
        cdef PyObject **items
        cdef size_t k, n
        cdef list found = []
        if self.n == 0:                     # what comes meanwhile is seen by settle
            return found
        with self.lock:
            items, n = self.items, self.n
            self.items = NULL
            self.n = self.cap = 0
        for k in range(n):
            found.append(<object>items[k])
            Py_XDECREF(items[k])
        free(items)
        return found

    def settle(self) -> bool:
        """Says that the owner is about to wait; False if something came in meanwhile."""
        with self.lock:
            self.sleeping = self.n == 0
        return self.sleeping

    def awake(self) -> None:
        """The owner does not wait any more."""
        self.sleeping = False

    @property
    def queued(self) -> int:
        """What waits for the owner at the moment."""
        return self.n

    @property
    def load(self) -> int:
        """Choices that are being generated, and calls that wait to begin."""
        return self.load_now()

    cdef size_t load_now(self) noexcept nogil:
        return self.streams.live + self.n


@cython.final
cdef class Leaving:
    """What is to be called when a call's client has gone."""

    def __call__(self):
        self.lane.cancel(self.call)
