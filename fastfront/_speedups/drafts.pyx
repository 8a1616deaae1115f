# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False
"""Reading a request's draft statistics."""
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport strtod
from libc.string cimport memcmp, strlen, strpbrk

from fastfront._speedups.buffers cimport Buf, buf_byte, buf_int, buf_put
from fastfront._speedups.msgpack_raw cimport Cursor, mp_array, mp_int, mp_map, mp_skip, mp_str

cdef enum:
    MOST_DRAFT = 4096           # tokens of a draft, so that no sum overflows
    MOST_COUNT = 0x7fffffff


cdef struct Lists:              # where the values of the keys begin; NULL p: not there
    Cursor histogram, accepted, drafted


cdef inline int lit(Buf *b, const char *s) noexcept nogil:
    return buf_put(b, s, strlen(s))


cdef inline bint named(const char *key, uint32_t n, const char *name) noexcept nogil:
    return n == strlen(name) and memcmp(key, name, n) == 0


cdef int read_count(Cursor *c, int64_t *value) noexcept nogil:
    return 0 if mp_int(c, value) == 0 and 0 <= value[0] <= MOST_COUNT else -1


cdef int put_number(Buf *out, double value) noexcept nogil:
    """The shortest digits that mean the same number."""
    cdef char digits[40]
    cdef int precision
    for precision in range(15, 18):
        snprintf(digits, sizeof(digits), b"%.*g", precision, value)
        if strtod(digits, NULL) == value:
            break
    if lit(out, digits) < 0:
        return -1
    return 0 if strpbrk(digits, b".e") != NULL else lit(out, b".0")


cdef int put_count(Buf *out, const char *name, int64_t count) noexcept nogil:
    return -1 if lit(out, name) < 0 else buf_int(out, count)


cdef int put_counts(Buf *out, Cursor c) noexcept nogil:
    cdef uint32_t n, k
    cdef int64_t value
    cdef int r = buf_byte(out, c'[')
    if mp_array(&c, &n) < 0:
        return -1
    for k in range(n):
        if read_count(&c, &value) < 0:
            return -1
        if k:
            r |= buf_byte(out, c',')
        r |= buf_int(out, value)
    return r | buf_byte(out, c']')


cdef int put_steps(Buf *out, const char *name, const Cursor *c, bint nulls) noexcept nogil:
    """One list with a value for each step; an empty one counts as none."""
    cdef Cursor look = c[0]
    cdef uint32_t n = 0
    if look.p != NULL and mp_array(&look, &n) < 0:
        return -1
    if n == 0 and not nulls:
        return 0
    if lit(out, name) < 0:
        return -1
    return put_counts(out, c[0]) if n else lit(out, b"null")


cdef int write(Buf *out, Lists *lists, int64_t most, int64_t drafted, bint nulls) noexcept nogil:
    cdef Cursor c = lists.histogram
    cdef uint32_t n, k
    cdef int64_t count
    cdef uint64_t steps = 0, accepted = 0
    cdef int r
    if c.p == NULL or mp_array(&c, &n) < 0 or n > MOST_DRAFT:
        return -1
    for k in range(n):
        if read_count(&c, &count) < 0:
            return -1
        steps += <uint64_t>count
        accepted += <uint64_t>count * k
    r = lit(out, b'{"mean_acceptance_length":')
    r |= put_number(out, 1.0 + (<double>accepted / <double>steps if steps else 0.0))
    r |= lit(out, b',"draft_acceptance_rate":')
    r |= put_number(out, <double>accepted / <double>drafted if drafted else 0.0)
    r |= lit(out, b',"acceptance_histogram":')
    r |= put_counts(out, lists.histogram)
    r |= put_count(out, b',"num_spec_steps":', <int64_t>steps)
    r |= put_count(out, b',"num_accepted_draft_tokens":', <int64_t>accepted)
    r |= put_count(out, b',"num_draft_tokens":', drafted)
    r |= put_count(out, b',"num_spec_tokens":', most)
    r |= put_steps(out, b',"per_step_accepted":', &lists.accepted, nulls)
    r |= put_steps(out, b',"per_step_drafted":', &lists.drafted, nulls)
    return r | buf_byte(out, c'}')


cdef int drafts_put(Buf *out, Cursor *c, bint nulls) noexcept nogil:
    cdef uint32_t pairs, n, k
    cdef const char *key
    cdef int64_t most = 0, drafted = 0
    cdef size_t before = out.len
    cdef Lists lists
    cdef int r
    lists.histogram.p = lists.accepted.p = lists.drafted.p = NULL
    if mp_map(c, &pairs) < 0:
        return -1
    for k in range(pairs):
        if mp_str(c, &key, &n) < 0:
            return -1
        if named(key, n, b"num_spec_tokens"):
            r = read_count(c, &most)
        elif named(key, n, b"num_draft_tokens"):
            r = read_count(c, &drafted)
        else:
            if named(key, n, b"histogram"):
                lists.histogram = c[0]
            elif named(key, n, b"per_step_accepted"):
                lists.accepted = c[0]
            elif named(key, n, b"per_step_drafted"):
                lists.drafted = c[0]
            r = mp_skip(c, 1)
        if r < 0:
            return -1
    if write(out, &lists, most, drafted, nulls) < 0:
        out.len = before
        return -1
    return 0
