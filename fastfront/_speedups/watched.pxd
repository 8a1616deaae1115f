"""Looking on while one request is answered: one thread at a time, as the answer itself."""
from libc.stdint cimport int64_t
from fastfront._speedups.http_counts cimport HttpCounts


cdef class Watched:
    cdef object protocol            # what really answers
    cdef HttpCounts counts          # or None
    cdef int handler                # place in `counts`; -1: this request is not counted
    cdef int method                 # place in http_counts.METHODS
    cdef object tell                # called with the Watched once it is over, or None
    cdef double began               # monotonic s
    cdef int64_t request_bytes
    cdef int64_t answer_bytes
    cdef bint done
    cdef readonly int status        # that went out; 499 before
    cdef readonly double seconds    # until it was over

    cdef int over(self) except -1
