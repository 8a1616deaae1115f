"""Requests as Python sees them, and the answers that lanes write."""
from libc.stddef cimport size_t
from libc.stdint cimport uint64_t
from fastfront._speedups.buffers cimport Buf
from fastfront._speedups.http_connection cimport Conn
from fastfront._speedups.http_message cimport Field


cdef class HttpStream:
    """A streamed answer. One thread at a time."""
    cdef Conn *conn
    cdef uint64_t serial
    cdef object server                  # keeps the Conn's memory
