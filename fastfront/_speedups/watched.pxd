"""Looking on while one request is answered: one thread at a time, as the answer itself."""
from libc.stdint cimport int64_t

from fastfront._speedups.exchange cimport Exchange
from fastfront._speedups.http_counts cimport HttpCounts


cdef class Line:
    cdef readonly str client
    cdef readonly str method
    cdef readonly str path
    cdef readonly str http_version
    cdef readonly int status
    cdef readonly double duration_s


cdef class Watched:
    cdef object protocol            # what really answers
    cdef object request             # what was asked, if it gets a line
    cdef object add                 # gets the line, or None
    cdef HttpCounts counts
    cdef int handler                # place in `counts`; -1: this request is not counted
    cdef int method                 # place in http_counts.METHODS
    cdef double began               # monotonic s
    cdef int64_t request_bytes
    cdef int64_t answer_bytes
    cdef bint done
    cdef readonly int status        # that went out; 499 before

    cdef int over(self) except -1


cdef class Watch:
    cdef object add, find, skips
    cdef HttpCounts counts
    cdef dict places, methods
    cdef int other

    cdef int begin(self, Exchange exchange) except -1
