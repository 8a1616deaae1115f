"""Asking for memory before it is used."""
from libc.stddef cimport size_t


cdef extern from * nogil:
    void __builtin_prefetch(const void *, ...)


cdef enum:
    CACHE_LINE = 64             # bytes


cdef inline void prefetch(const void *p, size_t n) noexcept nogil:
    cdef size_t at = 0
    while at < n:
        __builtin_prefetch(<const char *>p + at)
        at += CACHE_LINE
