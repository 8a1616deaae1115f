"""Requests as Python sees them, and the answers that lanes write."""
cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t
from fastfront._speedups.buffers cimport Buf
from fastfront._speedups.http_connection cimport Conn
from fastfront._speedups.http_message cimport Field


cdef class HttpStream:
    """A streamed answer. One thread at a time."""
    cdef Conn *conn
    cdef uint64_t serial
    cdef object server                  # keeps the Conn's memory


@cython.final
cdef class HttpRequest:
    cdef Conn *conn
    cdef uint64_t serial
    cdef object server                  # keeps the Conn's memory
    cdef Buf head                       # taken over from the connection's Message, like what follows
    cdef Field *fields
    cdef uint32_t n_fields
    cdef Buf body
    cdef bint body_complete, keep_alive, is_head
    cdef int64_t limit                  # of the body, once it has been asked for
    cdef object done                    # called with the body, while it is awaited
    cdef readonly str method
    cdef readonly str path              # percent-decoded, without the query
    cdef readonly str query_string
    cdef readonly str http_version
    cdef readonly str client            # "address:port", "" for a Unix socket

    cpdef object get(self, str name)
    cpdef object body_at_once(self, int64_t limit)
    cpdef bint watch(self, object gone) except -1
    cdef int take(self, uint32_t target_len, const char *method, int minor) except -1
    cdef int put_head(self, Buf *b, int status, list headers, int64_t length, bint chunked) except -1
    cdef bint expecting(self) noexcept
