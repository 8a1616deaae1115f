# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False, cdivision=True
"""The msgpack cursor's readers one by one, for tests: only native code uses them otherwise. Holds no state."""
from libc.stdint cimport int64_t, uint32_t
from fastfront._speedups.msgpack_raw cimport (
    Cursor,
    mp_array,
    mp_bin,
    mp_bool,
    mp_ext,
    mp_float,
    mp_int,
    mp_map,
    mp_nil,
    mp_str,
)


def read_one(str kind not None, const unsigned char[::1] data not None) -> tuple[object, int] | None:
    """What the reader for `kind` makes of the start of `data`: (value or count, bytes taken); None if it fails."""
    cdef Cursor c
    cdef const unsigned char *start = &data[0]
    cdef uint32_t n = 0
    cdef const char *s = NULL
    cdef int code = 0
    cdef int64_t number = 0
    cdef double real = 0
    cdef bint truth = False
    cdef int rc
    cdef object value = None
    c.p = start
    c.end = start + data.shape[0]
    if kind == "array":
        rc = mp_array(&c, &n)
        value = n
    elif kind == "map":
        rc = mp_map(&c, &n)
        value = n
    elif kind == "str":
        rc = mp_str(&c, &s, &n)
        value = s[:n] if rc == 0 else None
    elif kind == "bin":
        rc = mp_bin(&c, &s, &n)
        value = s[:n] if rc == 0 else None
    elif kind == "ext":
        rc = mp_ext(&c, &code, &s, &n)
        value = (code, s[:n]) if rc == 0 else None
    elif kind == "int":
        rc = mp_int(&c, &number)
        value = number
    elif kind == "float":
        rc = mp_float(&c, &real)
        value = real
    elif kind == "bool":
        rc = mp_bool(&c, &truth)
        value = True if truth else False
    elif kind == "nil":
        rc = 0 if mp_nil(&c) else -1
    else:
        raise ValueError(f"no reader {kind!r}")
    if rc < 0:
        if c.p != start:
            raise AssertionError("a failed read moved the cursor")
        return None
    return value, c.p - start
