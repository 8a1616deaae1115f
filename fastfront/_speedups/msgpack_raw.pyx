# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False, cdivision=True
"""Checked msgpack reading and writing over raw memory; see the .pxd for the contract. Holds no state, runs no Python."""
from libc.string cimport memcpy
from libc.stdint cimport int8_t, int16_t, int32_t, uint8_t, uint16_t
from fastfront._speedups.buffers cimport buf_byte, buf_put, buf_reserve


# --- reading -----------------------------------------------------------------------------------------------------


cdef inline uint64_t _be(const unsigned char *p, int width) noexcept nogil:
    cdef uint64_t v = 0
    cdef int i
    for i in range(width):
        v = (v << 8) | p[i]
    return v


cdef inline size_t _left(const Cursor *c) noexcept nogil:
    return <size_t>(c.end - c.p)


cdef inline int _sized(Cursor *c, int width, size_t extra, uint32_t *n) noexcept nogil:
    """After a type byte: a length of `width` bytes, then `extra` bytes, then the content itself is all there."""
    cdef size_t head = 1 + width + extra
    if _left(c) < head:
        return -1
    n[0] = <uint32_t>_be(c.p + 1, width)
    if _left(c) - head < n[0]:
        return -1
    return 0


cdef inline int _count(Cursor *c, int width, size_t least, uint32_t *n) noexcept nogil:
    """A container's count of `width` bytes. Each entry takes `least` bytes or more, so too high a count fails."""
    cdef uint32_t count
    if _left(c) < <size_t>(1 + width):
        return -1
    count = <uint32_t>_be(c.p + 1, width)
    if count > (_left(c) - 1 - width) // least:
        return -1
    c.p += 1 + width
    n[0] = count
    return 0


cdef MpType mp_peek(const Cursor *c) noexcept nogil:
    cdef unsigned char t
    if c.p >= c.end:
        return MP_END
    t = c.p[0]
    if t < 0x80 or t >= 0xE0:
        return MP_INT
    if t < 0x90:
        return MP_MAP
    if t < 0xA0:
        return MP_ARRAY
    if t < 0xC0:
        return MP_STR
    if t == 0xC0:
        return MP_NIL
    if t == 0xC1:
        return MP_BAD
    if t <= 0xC3:
        return MP_BOOL
    if t <= 0xC6:
        return MP_BIN
    if t <= 0xC9:
        return MP_EXT
    if t <= 0xCB:
        return MP_FLOAT
    if t <= 0xD3:
        return MP_INT
    if t <= 0xD8:
        return MP_EXT
    if t <= 0xDB:
        return MP_STR
    if t <= 0xDD:
        return MP_ARRAY
    return MP_MAP


cdef int mp_array(Cursor *c, uint32_t *n) noexcept nogil:
    cdef unsigned char t
    if c.p >= c.end:
        return -1
    t = c.p[0]
    if 0x90 <= t <= 0x9F:
        if <size_t>(t & 15) > _left(c) - 1:
            return -1
        n[0] = t & 15
        c.p += 1
        return 0
    if t == 0xDC:
        return _count(c, 2, 1, n)
    if t == 0xDD:
        return _count(c, 4, 1, n)
    return -1


cdef int mp_map(Cursor *c, uint32_t *n) noexcept nogil:
    cdef unsigned char t
    if c.p >= c.end:
        return -1
    t = c.p[0]
    if 0x80 <= t <= 0x8F:
        if <size_t>(t & 15) > (_left(c) - 1) // 2:
            return -1
        n[0] = t & 15
        c.p += 1
        return 0
    if t == 0xDE:
        return _count(c, 2, 2, n)
    if t == 0xDF:
        return _count(c, 4, 2, n)
    return -1


cdef int mp_str(Cursor *c, const char **s, uint32_t *n) noexcept nogil:
    cdef unsigned char t
    cdef int width
    cdef uint32_t length
    if c.p >= c.end:
        return -1
    t = c.p[0]
    if 0xA0 <= t <= 0xBF:
        length = t & 31
        if _left(c) - 1 < length:
            return -1
        width = 0
    else:
        if t == 0xD9:
            width = 1
        elif t == 0xDA:
            width = 2
        elif t == 0xDB:
            width = 4
        else:
            return -1
        if _sized(c, width, 0, &length) < 0:
            return -1
    s[0] = <const char *>c.p + 1 + width
    n[0] = length
    c.p += 1 + width + <size_t>length
    return 0


cdef int mp_bin(Cursor *c, const char **s, uint32_t *n) noexcept nogil:
    cdef int width
    cdef uint32_t length
    if c.p >= c.end:
        return -1
    if c.p[0] == 0xC4:
        width = 1
    elif c.p[0] == 0xC5:
        width = 2
    elif c.p[0] == 0xC6:
        width = 4
    else:
        return -1
    if _sized(c, width, 0, &length) < 0:
        return -1
    s[0] = <const char *>c.p + 1 + width
    n[0] = length
    c.p += 1 + width + <size_t>length
    return 0


cdef int mp_ext(Cursor *c, int *code, const char **s, uint32_t *n) noexcept nogil:
    cdef unsigned char t
    cdef int width
    cdef uint32_t length
    if c.p >= c.end:
        return -1
    t = c.p[0]
    if 0xD4 <= t <= 0xD8:
        width = 0
        length = <uint32_t>1 << (t - 0xD4)
        if _left(c) < <size_t>2 + length:
            return -1
    else:
        if t == 0xC7:
            width = 1
        elif t == 0xC8:
            width = 2
        elif t == 0xC9:
            width = 4
        else:
            return -1
        if _sized(c, width, 1, &length) < 0:
            return -1
    code[0] = <int8_t>c.p[1 + width]
    s[0] = <const char *>c.p + 2 + width
    n[0] = length
    c.p += 2 + width + <size_t>length
    return 0


cdef int mp_int(Cursor *c, int64_t *v) noexcept nogil:
    cdef unsigned char t
    cdef int width
    cdef uint64_t raw
    if c.p >= c.end:
        return -1
    t = c.p[0]
    if t < 0x80 or t >= 0xE0:
        v[0] = <int8_t>t
        c.p += 1
        return 0
    if t < 0xCC or t > 0xD3:
        return -1
    width = 1 << (t & 3)
    if _left(c) < <size_t>(1 + width):
        return -1
    raw = _be(c.p + 1, width)
    if t == 0xCF and raw >> 63:
        return -1
    if t < 0xD0 or width == 8:
        v[0] = <int64_t>raw
    elif width == 1:
        v[0] = <int8_t>raw
    elif width == 2:
        v[0] = <int16_t>raw
    else:
        v[0] = <int32_t>raw
    c.p += 1 + width
    return 0


cdef int mp_uint64(Cursor *c, uint64_t *v) noexcept nogil:
    if _left(c) < 9 or c.p[0] != 0xCF:
        return -1
    v[0] = _be(c.p + 1, 8)
    c.p += 9
    return 0


cdef int mp_float(Cursor *c, double *v) noexcept nogil:
    cdef uint64_t bits
    cdef uint32_t short_bits
    cdef float single
    cdef int64_t whole
    if c.p >= c.end:
        return -1
    if c.p[0] == 0xCB:
        if _left(c) < 9:
            return -1
        bits = _be(c.p + 1, 8)
        memcpy(v, &bits, 8)
        c.p += 9
        return 0
    if c.p[0] == 0xCA:
        if _left(c) < 5:
            return -1
        short_bits = <uint32_t>_be(c.p + 1, 4)
        memcpy(&single, &short_bits, 4)
        v[0] = single
        c.p += 5
        return 0
    if mp_uint64(c, &bits) == 0:
        v[0] = <double>bits
        return 0
    if mp_int(c, &whole) < 0:
        return -1
    v[0] = <double>whole
    return 0


cdef int mp_bool(Cursor *c, bint *v) noexcept nogil:
    if c.p >= c.end or (c.p[0] != 0xC2 and c.p[0] != 0xC3):
        return -1
    v[0] = c.p[0] == 0xC3
    c.p += 1
    return 0


cdef bint mp_nil(Cursor *c) noexcept nogil:
    if c.p < c.end and c.p[0] == 0xC0:
        c.p += 1
        return True
    return False


cdef int mp_skip(Cursor *c, uint64_t n) noexcept nogil:
    cdef Cursor at = c[0]
    cdef const char *s
    cdef uint32_t length
    cdef int code
    cdef unsigned char t
    cdef size_t width
    while n > 0:
        if n > _left(&at):                # every value takes a byte at least: also keeps n from wrapping around
            return -1
        n -= 1
        t = at.p[0]
        if t < 0x80 or t >= 0xE0 or t == 0xC0 or t == 0xC2 or t == 0xC3:
            at.p += 1
            continue
        if 0xCA <= t <= 0xD3:
            width = (5 if t == 0xCA else 9) if t <= 0xCB else 1 + (1 << (t & 3))
            if _left(&at) < width:
                return -1
            at.p += width
            continue
        if t < 0x90 or t >= 0xDE:
            if mp_map(&at, &length) < 0:
                return -1
            n += 2 * <uint64_t>length
        elif t < 0xA0 or t >= 0xDC:
            if mp_array(&at, &length) < 0:
                return -1
            n += length
        elif t < 0xC0 or t >= 0xD9:
            if mp_str(&at, &s, &length) < 0:
                return -1
        elif t <= 0xC6:
            if mp_bin(&at, &s, &length) < 0:          # refuses 0xc1, too
                return -1
        elif mp_ext(&at, &code, &s, &length) < 0:
            return -1
    c[0] = at
    return 0


# --- writing -----------------------------------------------------------------------------------------------------


cdef inline int _head(Buf *b, unsigned char t, uint64_t v, int width) noexcept nogil:
    """A type byte and a big-endian number of `width` bytes."""
    cdef unsigned char head[9]
    cdef int i
    head[0] = t
    for i in range(width):
        head[1 + i] = <unsigned char>(v >> (8 * (width - 1 - i)))
    return buf_put(b, <const char *>head, 1 + width)


cdef int mpw_uint64(Buf *b, uint64_t v) noexcept nogil:
    if v < 0x80:
        return buf_byte(b, <unsigned char>v)
    if v < 0x100:
        return _head(b, 0xCC, v, 1)
    if v < 0x10000:
        return _head(b, 0xCD, v, 2)
    if v < <uint64_t>0x100000000:
        return _head(b, 0xCE, v, 4)
    return _head(b, 0xCF, v, 8)


cdef int mpw_nil(Buf *b) noexcept nogil:
    return buf_byte(b, 0xC0)


cdef int mpw_bool(Buf *b, bint v) noexcept nogil:
    return buf_byte(b, 0xC3 if v else 0xC2)


cdef int mpw_int(Buf *b, int64_t v) noexcept nogil:
    if v >= 0:
        return mpw_uint64(b, <uint64_t>v)
    if v >= -32:
        return buf_byte(b, <unsigned char><uint8_t>v)
    if v >= -0x80:
        return _head(b, 0xD0, <uint64_t>v, 1)
    if v >= -0x8000:
        return _head(b, 0xD1, <uint64_t>v, 2)
    if v >= -<int64_t>0x80000000:
        return _head(b, 0xD2, <uint64_t>v, 4)
    return _head(b, 0xD3, <uint64_t>v, 8)


cdef int mpw_float(Buf *b, double v) noexcept nogil:
    cdef uint64_t bits
    memcpy(&bits, &v, 8)
    return _head(b, 0xCB, bits, 8)


cdef int mpw_str(Buf *b, const char *s, uint32_t n) noexcept nogil:
    cdef int rc
    if buf_reserve(b, <size_t>n + 5) < 0:      # once, so that a failure never leaves a head without its content
        return -1
    if n < 32:
        rc = buf_byte(b, 0xA0 | <unsigned char>n)
    elif n < 0x100:
        rc = _head(b, 0xD9, n, 1)
    elif n < 0x10000:
        rc = _head(b, 0xDA, n, 2)
    else:
        rc = _head(b, 0xDB, n, 4)
    return rc if rc < 0 else buf_put(b, s, n)


cdef int mpw_bin(Buf *b, const char *s, uint32_t n) noexcept nogil:
    cdef int rc
    if buf_reserve(b, <size_t>n + 5) < 0:
        return -1
    if n < 0x100:
        rc = _head(b, 0xC4, n, 1)
    elif n < 0x10000:
        rc = _head(b, 0xC5, n, 2)
    else:
        rc = _head(b, 0xC6, n, 4)
    return rc if rc < 0 else buf_put(b, s, n)


cdef int mpw_array(Buf *b, uint32_t n) noexcept nogil:
    if n < 16:
        return buf_byte(b, 0x90 | <unsigned char>n)
    return _head(b, 0xDC, n, 2) if n < 0x10000 else _head(b, 0xDD, n, 4)


cdef int mpw_map(Buf *b, uint32_t n) noexcept nogil:
    if n < 16:
        return buf_byte(b, 0x80 | <unsigned char>n)
    return _head(b, 0xDE, n, 2) if n < 0x10000 else _head(b, 0xDF, n, 4)


cdef int mpw_ext(Buf *b, int code, const char *s, uint32_t n) noexcept nogil:
    cdef int rc
    if buf_reserve(b, <size_t>n + 6) < 0:
        return -1
    if n == 1 or n == 2 or n == 4 or n == 8 or n == 16:
        rc = buf_byte(b, 0xD4 if n == 1 else 0xD5 if n == 2 else 0xD6 if n == 4 else 0xD7 if n == 8 else 0xD8)
    elif n < 0x100:
        rc = _head(b, 0xC7, n, 1)
    elif n < 0x10000:
        rc = _head(b, 0xC8, n, 2)
    else:
        rc = _head(b, 0xC9, n, 4)
    return rc if rc < 0 or buf_byte(b, <unsigned char><uint8_t>code) < 0 else buf_put(b, s, n)
