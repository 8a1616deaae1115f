# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False, cdivision=True
"""JSON string escaping; see the .pxd for the contract. Runs without escapes are found 8 bytes at a time."""
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport uint64_t
from libc.string cimport memcpy
from fastfront._speedups.buffers cimport Buf, buf_free, buf_init, buf_reserve

cdef extern from *:
    """
    static const char FF_HEX[] = "0123456789abcdef";
    /* What follows the backslash: 0 = no escape, 'u' = hex form. */
    static const unsigned char FF_ESCAPE[256] = {
        'u','u','u','u','u','u','u','u','b','t','n','u','f','r','u','u',
        'u','u','u','u','u','u','u','u','u','u','u','u','u','u','u','u',
        0,0,'"',0,0,0,0,0,0,0,0,0,0,0,0,0,
        [0x5c] = '\\\\',
    };
    """
    const char *FF_HEX
    const unsigned char *FF_ESCAPE


cdef inline bint _has_escape(uint64_t x) noexcept nogil:
    """Whether one of 8 bytes is a control character, a quote or a backslash. Bytes above 0x7f never count."""
    cdef uint64_t ones = <uint64_t>0x0101010101010101
    cdef uint64_t quote = x ^ (ones * 0x22)
    cdef uint64_t slash = x ^ (ones * 0x5C)
    return (((x - ones * 0x20) & ~x) | ((quote - ones) & ~quote) | ((slash - ones) & ~slash)) & (ones * 0x80) != 0


cdef int json_escape(Buf *b, const char *s, size_t n) noexcept nogil:
    cdef const unsigned char *p = <const unsigned char *>s
    cdef const unsigned char *end = p + n
    cdef char *out
    cdef uint64_t word
    cdef unsigned char code
    while p < end:
        # Room for the rest of the text as it stands plus the longest escape; an escape makes the loop start over.
        if buf_reserve(b, <size_t>(end - p) + 6) < 0:
            return -1
        out = b.data + b.len
        while end - p >= 8:
            memcpy(&word, p, 8)
            if _has_escape(word):
                break
            memcpy(out, p, 8)
            out += 8
            p += 8
        code = 0
        while p < end:
            code = FF_ESCAPE[p[0]]
            if code != 0:
                break
            out[0] = <char>p[0]
            out += 1
            p += 1
        if code != 0:
            out[0] = 92
            out[1] = <char>code
            out += 2
            if code == 117:
                out[0] = 48
                out[1] = 48
                out[2] = FF_HEX[p[0] >> 4]
                out[3] = FF_HEX[p[0] & 15]
                out += 4
            p += 1
        b.len = out - b.data
    return 0


def escape(str text) -> bytes:
    """`text` as UTF-8, escaped for the inside of a JSON string. Raises UnicodeEncodeError for lone surrogates."""
    cdef Buf b
    cdef Py_ssize_t n
    cdef const char *s = PyUnicode_AsUTF8AndSize(text, &n)
    buf_init(&b)
    try:
        if json_escape(&b, s, n) < 0:
            raise MemoryError
        return b.data[:b.len] if b.len else b""
    finally:
        buf_free(&b)
