"""Growable byte buffer. One thread owns a Buf at a time; the bytes move when it grows, so keep offsets, not pointers."""
from libc.stddef cimport size_t
from libc.string cimport memcpy


cdef struct Buf:
    char *data    # malloc'ed, or NULL while cap is 0
    size_t len    # bytes in use
    size_t cap    # bytes allocated


# Makes room for `extra` more bytes. 0, or -1 when memory is out (buffer unchanged).
cdef int buf_grow(Buf *b, size_t extra) noexcept nogil
cdef void buf_free(Buf *b) noexcept nogil


cdef inline void buf_init(Buf *b) noexcept nogil:
    b.data = NULL
    b.len = 0
    b.cap = 0


# All writers return 0, or -1 when memory is out.
cdef inline int buf_reserve(Buf *b, size_t extra) noexcept nogil:
    if b.cap - b.len >= extra:
        return 0
    return buf_grow(b, extra)


cdef inline int buf_put(Buf *b, const char *p, size_t n) noexcept nogil:
    if n == 0:
        return 0
    if buf_reserve(b, n) < 0:
        return -1
    memcpy(b.data + b.len, p, n)
    b.len += n
    return 0


cdef inline int buf_byte(Buf *b, unsigned char c) noexcept nogil:
    if buf_reserve(b, 1) < 0:
        return -1
    b.data[b.len] = <char>c
    b.len += 1
    return 0


# Decimal digits of an integer.
cdef int buf_int(Buf *b, long long v) noexcept nogil


# Arrays that grow. Makes room for more than `cap` items of `size` bytes, twice as many at least. 0, or -1 when memory is out (array
# unchanged).
cdef int array_grow(void **items, size_t *cap, size_t need, size_t size) noexcept nogil


cdef inline int array_reserve(void **items, size_t *cap, size_t need, size_t size) noexcept nogil:
    return 0 if need <= cap[0] else array_grow(items, cap, need, size)
