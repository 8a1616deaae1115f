"""HTTP requests by handler, method and status: counted by any thread, under one short lock that runs no Python."""
cimport cython
from libc.stdint cimport int64_t, uint64_t
from fastfront._speedups.histograms cimport Histogram


cdef struct HandlerCounts:
    uint64_t requests[8][5]     # by method (place in METHODS) and status class, 1xx to 5xx
    Histogram seconds[8]        # by method
    double request_bytes        # announced by requests
    double response_bytes       # of whole answers; streams announce none


cdef class HttpCounts:
    cdef cython.pymutex lock
    cdef HandlerCounts *handlers
    cdef readonly int n_handlers
    cdef Histogram seconds      # of all, with finer bounds

    cdef int check(self, int handler, int method) except -1     # raises IndexError

    # One answered request. A handler or method that is out of range is not counted, a status counts by its first digit.
    cdef void count(self, int handler, int method, int status, double seconds, int64_t request_bytes, int64_t response_bytes
                    ) noexcept nogil
