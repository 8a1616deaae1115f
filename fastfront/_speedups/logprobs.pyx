# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False, cdivision=True
"""Logprobs as JSON."""
from libc.math cimport isfinite
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdio cimport snprintf
from libc.string cimport memcmp, memcpy, strlen

from fastfront._speedups.buffers cimport Buf, buf_byte, buf_free, buf_init, buf_int, buf_put
from fastfront._speedups.detokenizer cimport token_bytes
from fastfront._speedups.json_escape cimport json_escape
from fastfront._speedups.msgpack_raw cimport MP_EXT, Cursor, mp_array, mp_ext, mp_int, mp_peek, mp_skip, mp_str
from fastfront._speedups.vocabulary cimport VOCAB_SLOW, Vocabulary

cdef enum:
    RAW_BYTES = 3               # msgpack extension code of an array's bytes
    CONTEXT = 4

cdef double FLOOR = -9999.0


cdef inline int lit(Buf *b, const char *s) noexcept nogil:
    return buf_put(b, s, strlen(s))


cdef int element_kind(const char *name, uint32_t n) noexcept nogil:
    """Kind of a numpy (`<i4`) or torch (`int32`) name, -1 for others."""
    if n == 3 and memcmp(name, b"<i4", 3) == 0 or n == 5 and memcmp(name, b"int32", 5) == 0:
        return ELEMENT_I4
    if n == 3 and memcmp(name, b"<i8", 3) == 0 or n == 5 and memcmp(name, b"int64", 5) == 0:
        return ELEMENT_I8
    if n == 3 and memcmp(name, b"<f4", 3) == 0 or n == 7 and memcmp(name, b"float32", 7) == 0:
        return ELEMENT_F4
    if n == 3 and memcmp(name, b"<f8", 3) == 0 or n == 7 and memcmp(name, b"float64", 7) == 0:
        return ELEMENT_F8
    return -1


cdef int parse_array(Cursor *c, const Frames *frames, NumberArray *a, uint32_t *rows, uint32_t *columns) noexcept nogil:
    """`[dtype, shape, data]` of one or two dimensions; a vector has one column."""
    cdef uint32_t n, dims, size
    cdef const char *name
    cdef const char *data
    cdef int64_t extent[2]
    cdef int64_t frame
    cdef int code
    cdef uint32_t d
    cdef size_t width, available
    if mp_array(c, &n) < 0 or n != 3 or mp_str(c, &name, &size) < 0:
        return -1
    a.kind = element_kind(name, size)
    if a.kind < 0 or mp_array(c, &dims) < 0 or dims < 1 or dims > 2:
        return -1
    extent[1] = 1
    for d in range(dims):
        if mp_int(c, &extent[d]) < 0 or extent[d] < 0 or extent[d] > 0x7FFFFFFF:
            return -1
    if mp_peek(c) == MP_EXT:
        if mp_ext(c, &code, &data, &size) < 0 or code != RAW_BYTES:
            return -1
        a.data = <const unsigned char *>data
        available = size
    else:
        if mp_int(c, &frame) < 0 or frame < 1 or <size_t>frame > frames.n:
            return -1
        a.data = frames.data[frame - 1]
        available = frames.size[frame - 1]
    width = 4 if a.kind == ELEMENT_I4 or a.kind == ELEMENT_F4 else 8
    if extent[1] and <size_t>extent[0] > available // width // <size_t>extent[1]:
        return -1
    a.n = <size_t>extent[0] * <size_t>extent[1]
    rows[0] = <uint32_t>extent[0]
    columns[0] = <uint32_t>extent[1]
    return 0


cdef int64_t int_at(const NumberArray *a, size_t i) noexcept nogil:
    cdef int32_t small
    cdef int64_t large
    if a.kind == ELEMENT_I4:
        memcpy(&small, a.data + 4 * i, 4)
        return small
    if a.kind == ELEMENT_I8:
        memcpy(&large, a.data + 8 * i, 8)
        return large
    return -1


cdef double float_at(const NumberArray *a, size_t i) noexcept nogil:
    cdef float small
    cdef double large
    if a.kind == ELEMENT_F4:
        memcpy(&small, a.data + 4 * i, 4)
        return small
    if a.kind == ELEMENT_F8:
        memcpy(&large, a.data + 8 * i, 8)
        return large
    return <double>int_at(a, i)


cdef int logprobs_parse(Cursor *c, const Frames *frames, LogprobRows *rows) noexcept nogil:
    cdef uint32_t n, r, k
    if mp_array(c, &n) < 0 or n < 3:
        return -1
    if parse_array(c, frames, &rows.ids, &rows.rows, &rows.columns) < 0 or rows.columns < 1:
        return -1
    if parse_array(c, frames, &rows.values, &r, &k) < 0 or r != rows.rows or k != rows.columns:
        return -1
    if parse_array(c, frames, &rows.ranks, &r, &k) < 0 or rows.ranks.n < rows.rows:
        return -1
    return mp_skip(c, n - 3)


cdef int64_t logprobs_id(const LogprobRows *rows, uint32_t row) noexcept nogil:
    return int_at(&rows.ids, <size_t>row * rows.columns)


cdef void context_add(Context *context, int64_t id) noexcept nogil:
    cdef uint32_t k
    if context.n == CONTEXT:
        for k in range(CONTEXT - 1):
            context.ids[k] = context.ids[k + 1]
        context.n -= 1
    context.ids[context.n] = id
    context.n += 1


cdef uint32_t sequence_length(const unsigned char *s, size_t n) noexcept nogil:
    """Length of the UTF-8 character at s, 0 if it is not a whole, valid one."""
    cdef unsigned char c = s[0]
    if c < 0x80:
        return 1
    if c < 0xC2 or c > 0xF4:
        return 0
    if c < 0xE0:
        return 2 if n >= 2 and (s[1] & 0xC0) == 0x80 else 0
    if c < 0xF0:
        if n < 3 or (s[1] & 0xC0) != 0x80 or (s[2] & 0xC0) != 0x80:
            return 0
        if c == 0xE0 and s[1] < 0xA0 or c == 0xED and s[1] > 0x9F:
            return 0
        return 3
    if n < 4 or (s[1] & 0xC0) != 0x80 or (s[2] & 0xC0) != 0x80 or (s[3] & 0xC0) != 0x80:
        return 0
    if c == 0xF0 and s[1] < 0x90 or c == 0xF4 and s[1] > 0x8F:
        return 0
    return 4


cdef int put_lossy(Buf *out, const unsigned char *s, size_t n, bint *broken_end) noexcept nogil:
    """Appends bytes as UTF-8, U+FFFD for what is none. broken_end: the last character is such a replacement."""
    cdef size_t at = 0
    cdef uint32_t k
    cdef int r = 0
    broken_end[0] = False
    while at < n:
        k = sequence_length(s + at, n - at)
        broken_end[0] = k == 0
        if k == 0:
            r |= lit(out, b"\xef\xbf\xbd")
            at += 1
        else:
            r |= buf_put(out, <const char *>s + at, k)
            at += k
    return r


cdef int slow_text(Vocabulary v, int64_t id, Buf *out) noexcept nogil:
    cdef Py_ssize_t n
    with gil:
        try:
            text = v.tokenizer.decode([id], skip_special_tokens=False).encode()
            n = len(text)
            return buf_put(out, <const char *><bytes>text, n)
        except Exception:
            return 0


cdef int token_text(Vocabulary v, const Context *context, int64_t id, Buf *out) noexcept nogil:
    cdef size_t start = out.len
    cdef uint32_t n, k, m
    cdef const char *s
    cdef const char *t
    cdef Buf joined
    cdef bint broken
    cdef int r
    if v.kind == VOCAB_SLOW:
        return slow_text(v, id, out)
    s = token_bytes(v, id, &n)
    r = put_lossy(out, <const unsigned char *>s, n, &broken)
    if not broken:
        return r
    out.len = start
    buf_init(&joined)
    r |= buf_put(&joined, s, n)
    for k in range(context.n, 0, -1):           # as few tokens before it as complete a character, all ending inside it
        t = token_bytes(v, context.ids[k - 1], &m)
        r |= put_lossy(out, <const unsigned char *>t, m, &broken)
        out.len = start
        if not broken:
            break
        r |= prepend(&joined, t, m)
        r |= put_lossy(out, <const unsigned char *>joined.data, joined.len, &broken)
        if not broken:
            break
        out.len = start
    buf_free(&joined)
    return r


cdef int prepend(Buf *b, const char *s, size_t n) noexcept nogil:
    cdef Buf whole
    cdef int r
    buf_init(&whole)
    r = buf_put(&whole, s, n)
    r |= buf_put(&whole, b.data, b.len)
    buf_free(b)
    b[0] = whole
    return r


cdef int put_logprob(Buf *out, double value) noexcept nogil:
    cdef char digits[40]
    cdef int n, k
    if not isfinite(value) or value < FLOOR:
        value = FLOOR
    n = snprintf(digits, sizeof(digits), b"%.9g", value)
    for k in range(n):
        if digits[k] == c'.' or digits[k] == c'e':
            return buf_put(out, digits, n)
    return -1 if buf_put(out, digits, n) < 0 else lit(out, b".0")


cdef int put_token(Buf *out, Vocabulary v, const Context *context, int64_t id, bint as_ids, Buf *scratch, uint32_t *characters) noexcept nogil:
    """A token as a JSON string; `characters` is its length in code points."""
    cdef int r = buf_byte(out, c'"')
    cdef size_t k
    scratch.len = 0
    if as_ids:
        r |= lit(scratch, b"token_id:")
        r |= buf_int(scratch, id)
    else:
        r |= token_text(v, context, id, scratch)
    characters[0] = 0
    for k in range(scratch.len):
        characters[0] += (<uint8_t>scratch.data[k] & 0xC0) != 0x80
    r |= json_escape(out, scratch.data, scratch.len)
    return r | buf_byte(out, c'"')


cdef int chat_token(Buf *out, Vocabulary v, const Context *context, int64_t id, double value, bint as_ids, Buf *scratch) noexcept nogil:
    """`{"token":...,"logprob":...,"bytes":[...]` without the closing brace."""
    cdef uint32_t n, k, characters
    cdef const char *s
    cdef int r = lit(out, b'{"token":')
    r |= put_token(out, v, context, id, as_ids, scratch, &characters)
    r |= lit(out, b',"logprob":')
    r |= put_logprob(out, value)
    r |= lit(out, b',"bytes":[')
    s = token_bytes(v, id, &n)
    if s == NULL and v.kind == VOCAB_SLOW:
        scratch.len = 0
        r |= slow_text(v, id, scratch)
        s = scratch.data
        n = <uint32_t>scratch.len
    for k in range(n):
        if k:
            r |= buf_byte(out, c',')
        r |= buf_int(out, <uint8_t>s[k])
    return r | buf_byte(out, c']')


cdef inline uint32_t last_column(const LogprobRows *rows, int32_t top) noexcept nogil:
    return rows.columns - 1 if top < 0 or <uint32_t>top > rows.columns - 1 else <uint32_t>top


cdef int chat_entry(Buf *out, Vocabulary v, const LogprobRows *rows, uint32_t row, const Context *context, int32_t top, bint as_ids,
                    Buf *scratch) noexcept nogil:
    cdef size_t at = <size_t>row * rows.columns
    cdef int64_t chosen = int_at(&rows.ids, at)
    cdef uint32_t k
    cdef uint32_t left = rows.columns if top < 0 else <uint32_t>top
    cdef bint first = True
    cdef int r = chat_token(out, v, context, chosen, float_at(&rows.values, at), as_ids, scratch)
    r |= lit(out, b',"top_logprobs":[')
    for k in range(rows.columns):                   # the token itself leads, and does not come twice
        if left == 0:
            break
        if k and int_at(&rows.ids, at + k) == chosen:
            continue
        left -= 1
        if not first:
            r |= buf_byte(out, c',')
        first = False
        r |= chat_token(out, v, context, int_at(&rows.ids, at + k), float_at(&rows.values, at + k), as_ids, scratch)
        r |= buf_byte(out, c'}')
    return r | lit(out, b"]}")


cdef void completion_init(CompletionLogprobs *lists) noexcept nogil:
    buf_init(&lists.offsets)
    buf_init(&lists.values)
    buf_init(&lists.tokens)
    buf_init(&lists.top)
    lists.offset = 0


cdef void completion_free(CompletionLogprobs *lists) noexcept nogil:
    buf_free(&lists.offsets)
    buf_free(&lists.values)
    buf_free(&lists.tokens)
    buf_free(&lists.top)


cdef void completion_clear(CompletionLogprobs *lists) noexcept nogil:
    lists.offsets.len = 0
    lists.values.len = 0
    lists.tokens.len = 0
    lists.top.len = 0


cdef int completion_token(CompletionLogprobs *lists, Vocabulary v, const Context *context, int64_t id, bint as_ids, Buf *scratch) noexcept nogil:
    """Offset and text of the next token, with the commas that all four lists need."""
    cdef uint32_t characters
    cdef int r = 0
    if lists.offsets.len:
        r |= buf_byte(&lists.offsets, c',')
        r |= buf_byte(&lists.values, c',')
        r |= buf_byte(&lists.tokens, c',')
        r |= buf_byte(&lists.top, c',')
    r |= buf_int(&lists.offsets, lists.offset)
    r |= put_token(&lists.tokens, v, context, id, as_ids, scratch, &characters)
    lists.offset += characters
    return r


cdef int completion_first(CompletionLogprobs *lists, Vocabulary v, int64_t id, bint as_ids, Buf *scratch) noexcept nogil:
    cdef Context nothing
    cdef int r
    nothing.n = 0
    r = completion_token(lists, v, &nothing, id, as_ids, scratch)
    r |= lit(&lists.values, b"null")
    return r | lit(&lists.top, b"null")


cdef int completion_entry(CompletionLogprobs *lists, Vocabulary v, const LogprobRows *rows, uint32_t row, const Context *context,
                          int32_t top, bint as_ids, Buf *scratch) noexcept nogil:
    cdef size_t at = <size_t>row * rows.columns
    cdef int64_t chosen = int_at(&rows.ids, at), id
    cdef uint32_t k, characters
    cdef int r = completion_token(lists, v, context, chosen, as_ids, scratch)
    r |= put_logprob(&lists.values, float_at(&rows.values, at))
    r |= buf_byte(&lists.top, c'{')
    for k in range(last_column(rows, top) + 1):
        id = int_at(&rows.ids, at + k)
        if k and id == chosen:
            continue
        if k:
            r |= buf_byte(&lists.top, c',')
        r |= put_token(&lists.top, v, context, id, as_ids, scratch, &characters)
        r |= buf_byte(&lists.top, c':')
        r |= put_logprob(&lists.top, float_at(&rows.values, at + k))
    return r | buf_byte(&lists.top, c'}')


cdef int completion_put(Buf *out, const CompletionLogprobs *lists) noexcept nogil:
    cdef int r = lit(out, b'{"text_offset":[')
    r |= buf_put(out, lists.offsets.data, lists.offsets.len)
    r |= lit(out, b'],"token_logprobs":[')
    r |= buf_put(out, lists.values.data, lists.values.len)
    r |= lit(out, b'],"tokens":[')
    r |= buf_put(out, lists.tokens.data, lists.tokens.len)
    r |= lit(out, b'],"top_logprobs":[')
    r |= buf_put(out, lists.top.data, lists.top.len)
    return r | lit(out, b"]}")


cdef int prompt_logprobs_put(Buf *out, Vocabulary v, const LogprobRows *rows, int64_t first_id, int32_t top, Buf *scratch) noexcept nogil:
    cdef Context context
    cdef uint32_t row, k, characters
    cdef size_t at
    cdef int64_t id, own
    cdef int64_t rank
    cdef int r = lit(out, b"[null")
    context.n = 0
    context_add(&context, first_id)
    for row in range(rows.rows):
        at = <size_t>row * rows.columns
        own = int_at(&rows.ids, at)
        r |= lit(out, b",{")
        for k in range(last_column(rows, top) + 1):
            id = int_at(&rows.ids, at + k)
            if k and id == own:
                continue
            if k:
                r |= buf_byte(out, c',')
            r |= buf_byte(out, c'"')
            r |= buf_int(out, id)
            r |= lit(out, b'":{"logprob":')
            r |= put_logprob(out, float_at(&rows.values, at + k))
            r |= lit(out, b',"rank":')
            rank = k if k else int_at(&rows.ranks, row)
            r |= buf_int(out, rank)
            r |= lit(out, b',"decoded_token":')
            r |= put_token(out, v, &context, id, False, scratch, &characters)
            r |= buf_byte(out, c'}')
        r |= buf_byte(out, c'}')
        context_add(&context, own)
    return r | buf_byte(out, c']')
