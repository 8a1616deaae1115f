"""Checked msgpack reading and writing over raw memory. Every read checks the length first; no read allocates or recurses."""
from libc.stdint cimport int64_t, uint32_t, uint64_t
from fastfront._speedups.buffers cimport Buf


cdef struct Cursor:
    const unsigned char *p      # next unread byte; borrowed: valid while the frame it points into is held
    const unsigned char *end


cdef enum MpType:               # what mp_peek sees; MP_END when no byte is left, MP_BAD for the unused byte 0xc1
    MP_END = 0
    MP_NIL
    MP_BOOL
    MP_INT
    MP_FLOAT
    MP_STR
    MP_BIN
    MP_ARRAY
    MP_MAP
    MP_EXT
    MP_BAD


# Readers return 0 and move the cursor, or -1 (wrong type, out of range, truncated) and leave it where it was.
cdef MpType mp_peek(const Cursor *c) noexcept nogil
cdef int mp_array(Cursor *c, uint32_t *n) noexcept nogil
cdef int mp_map(Cursor *c, uint32_t *n) noexcept nogil
cdef int mp_str(Cursor *c, const char **s, uint32_t *n) noexcept nogil       # bytes not checked to be UTF-8
cdef int mp_bin(Cursor *c, const char **s, uint32_t *n) noexcept nogil
cdef int mp_ext(Cursor *c, int *code, const char **s, uint32_t *n) noexcept nogil
cdef int mp_int(Cursor *c, int64_t *v) noexcept nogil                         # a uint64 above int64 fails
cdef int mp_uint64(Cursor *c, uint64_t *v) noexcept nogil                     # those of eight bytes without a sign alone
cdef int mp_float(Cursor *c, double *v) noexcept nogil                        # takes integers too
cdef int mp_bool(Cursor *c, bint *v) noexcept nogil
cdef bint mp_nil(Cursor *c) noexcept nogil                                    # True and moves on if the next value is nil
# Skips n whole values of any nesting. Iterative; work is linear in the bytes skipped.
cdef int mp_skip(Cursor *c, uint64_t n) noexcept nogil

# Writers append the shortest encoding. 0, or -1 when memory is out.
cdef int mpw_nil(Buf *b) noexcept nogil
cdef int mpw_bool(Buf *b, bint v) noexcept nogil
cdef int mpw_int(Buf *b, int64_t v) noexcept nogil
cdef int mpw_uint64(Buf *b, uint64_t v) noexcept nogil
cdef int mpw_float(Buf *b, double v) noexcept nogil
cdef int mpw_str(Buf *b, const char *s, uint32_t n) noexcept nogil
cdef int mpw_bin(Buf *b, const char *s, uint32_t n) noexcept nogil
cdef int mpw_array(Buf *b, uint32_t n) noexcept nogil
cdef int mpw_map(Buf *b, uint32_t n) noexcept nogil
cdef int mpw_ext(Buf *b, int code, const char *s, uint32_t n) noexcept nogil   # `code` in -128..127
