"""The way of a request to its handler (fastfront._speedups.intake)."""
from libc.stdint cimport int64_t

from fastfront._speedups.exchange cimport Exchange
from fastfront._speedups.plain_body cimport PlainBodies
from fastfront._speedups.prepared cimport PreparedCall
from fastfront._speedups.quick_fields cimport Quick
from fastfront._speedups.submitter cimport Submitter
from fastfront._speedups.watched cimport Watch


cdef class Route:
    cdef readonly object handler        # called with the exchange
    cdef readonly bint reads_body
    cdef readonly bint guarded


cdef class Gate:
    cdef public bint is_open


cdef class Generation:
    cdef Gate gate
    cdef PlainBodies bodies
    cdef Quick quick                    # or None
    cdef Submitter submitter
    cdef object prepare, submit
    cdef str asked_with
    cdef bint plain

    cdef int answer(self, Exchange exchange) except -1


cdef class Intake:
    cdef dict routes
    cdef Watch watch
    cdef list keys              # of bytes
    cdef int64_t inline_bytes
    cdef bint adds_headers

    cdef int handle(self, Exchange exchange, object handler) except -1
    cdef bint has_key(self, Exchange exchange) except -1
