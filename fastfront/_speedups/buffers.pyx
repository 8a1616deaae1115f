# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False, cdivision=True
"""Growth and number formatting of the byte buffer; see the .pxd for the contract."""
from libc.stdint cimport SIZE_MAX
from libc.stdlib cimport free, realloc


cdef int buf_grow(Buf *b, size_t extra) noexcept nogil:
    cdef size_t need = b.len + extra
    cdef size_t cap = b.cap
    cdef char *data
    if need < extra:                     # size_t wrapped around
        return -1
    if need <= cap:
        return 0
    cap = cap + (cap >> 1)               # at least half more each time: appending stays linear
    if cap < need:
        cap = need
    if cap < 64:
        cap = 64
    data = <char *>realloc(b.data, cap)
    if data is NULL:
        return -1
    b.data = data
    b.cap = cap
    return 0


cdef int array_grow(void **items, size_t *cap, size_t need, size_t size) noexcept nogil:
    cdef size_t wanted = max(need, 2 * cap[0], <size_t>16)
    cdef void *p
    if wanted > SIZE_MAX // size:
        return -1
    p = realloc(items[0], wanted * size)
    if p is NULL:
        return -1
    items[0] = p
    cap[0] = wanted
    return 0


cdef void buf_free(Buf *b) noexcept nogil:
    free(b.data)
    buf_init(b)


cdef int buf_int(Buf *b, long long v) noexcept nogil:
    cdef char digits[24]
    cdef int at = 24
    cdef unsigned long long u = <unsigned long long>v
    if v < 0:
        u = 0 - u                        # well defined for the smallest long long too
    while True:
        at -= 1
        digits[at] = <char>(48 + u % 10)
        u //= 10
        if u == 0:
            break
    if v < 0:
        at -= 1
        digits[at] = 45
    return buf_put(b, digits + at, 24 - at)


def int_text(long long v) -> bytes:
    """Decimal text of `v`, as buf_int writes it."""
    cdef Buf b
    buf_init(&b)
    try:
        if buf_int(&b, v) < 0:
            raise MemoryError
        return b.data[:b.len]
    finally:
        buf_free(&b)


def joined(list parts) -> bytes:
    """All the bytes objects in `parts` appended to one buffer: lets a test watch growth."""
    cdef Buf b
    cdef bytes part
    buf_init(&b)
    try:
        for part in parts:
            if buf_put(&b, <const char *>part, len(part)) < 0:
                raise MemoryError
        return b.data[:b.len] if b.len else b""
    finally:
        buf_free(&b)
