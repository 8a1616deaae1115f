"""UTF-8 as Unicode defines it (no surrogates, no overlong forms), byte by byte. Pure functions, no state."""
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t


# Bytes of the character that `lead` begins, or 0 if no character begins with it.
cdef inline int utf8_length(uint8_t lead) noexcept nogil:
    if lead < 0x80:
        return 1
    if lead < 0xC2:
        return 0
    if lead < 0xE0:
        return 2
    if lead < 0xF0:
        return 3
    return 4 if lead < 0xF5 else 0


# Whether `c` can be byte number `at` (1..3) of the character that `lead` begins.
cdef inline bint utf8_continues(uint8_t lead, int at, uint8_t c) noexcept nogil:
    if at == 1:
        if lead == 0xE0:
            return 0xA0 <= c <= 0xBF
        if lead == 0xED:
            return 0x80 <= c <= 0x9F
        if lead == 0xF0:
            return 0x90 <= c <= 0xBF
        if lead == 0xF4:
            return 0x80 <= c <= 0x8F
    return 0x80 <= c <= 0xBF


# Length of the longest prefix made of whole characters; *partial says whether all bytes after it begin one more.
cdef inline size_t utf8_whole(const uint8_t *p, size_t n, bint *partial) noexcept nogil:
    cdef size_t at = 0
    cdef int length
    cdef int i
    partial[0] = False
    while at < n:
        if p[at] < 0x80:
            at += 1
            continue
        length = utf8_length(p[at])
        i = 1
        while i < length and at + i < n and utf8_continues(p[at], i, p[at + i]):
            i += 1
        if length == 0 or i < length:
            partial[0] = length != 0 and at + i == n
            return at
        at += length
    return at
