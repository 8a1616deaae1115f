# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False, cdivision=True
"""Msgpack of Python values, for handshakes, utility calls and tests; the token path reads and writes with `msgpack_raw` alone."""
from typing import NamedTuple

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.dict cimport PyDict_Items
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t, uint32_t, uint64_t
from fastfront._speedups.buffers cimport Buf, buf_free, buf_init
from fastfront._speedups.msgpack_raw cimport (
    MP_ARRAY,
    MP_BAD,
    MP_BIN,
    MP_BOOL,
    MP_EXT,
    MP_FLOAT,
    MP_INT,
    MP_MAP,
    MP_NIL,
    MP_STR,
    Cursor,
    MpType,
    mp_array,
    mp_bin,
    mp_bool,
    mp_ext,
    mp_float,
    mp_int,
    mp_map,
    mp_nil,
    mp_peek,
    mp_skip,
    mp_str,
    mp_uint64,
    mpw_array,
    mpw_bin,
    mpw_bool,
    mpw_ext,
    mpw_float,
    mpw_int,
    mpw_map,
    mpw_nil,
    mpw_str,
    mpw_uint64,
)

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object o, int *overflow) except? -1
    unsigned long long PyLong_AsUnsignedLongLong(object o) except? 0xFFFFFFFFFFFFFFFF

cdef enum:
    MAX_DEPTH = 64


class DecodeError(ValueError):
    """The bytes are not one whole, valid msgpack value of the supported kinds."""


class Ext(NamedTuple):
    """An extension value: `code` in -128..127 and its raw bytes."""

    code: int
    data: bytes


cdef list _write_value(Buf *b, object value):
    """Writes a scalar or a container's head; returns what the container holds (keys and values by turns) or None."""
    cdef int rc
    cdef int overflow = 0
    cdef int64_t number
    cdef Py_ssize_t n
    cdef const char *s
    cdef list inside = None
    if value is None:
        rc = mpw_nil(b)
    elif value is True or value is False:
        rc = mpw_bool(b, value is True)
    elif isinstance(value, int):
        number = PyLong_AsLongLongAndOverflow(value, &overflow)
        if overflow < 0:
            raise OverflowError("integer below -2**63")
        rc = mpw_uint64(b, PyLong_AsUnsignedLongLong(value)) if overflow > 0 else mpw_int(b, number)
    elif isinstance(value, str):
        s = PyUnicode_AsUTF8AndSize(value, &n)
        if n > 0xFFFFFFFF:
            raise ValueError("str longer than msgpack allows")
        rc = mpw_str(b, s, <uint32_t>n)
    elif isinstance(value, float):
        rc = mpw_float(b, value)
    elif isinstance(value, bytes):
        n = len(<bytes>value)
        if n > 0xFFFFFFFF:
            raise ValueError("bytes longer than msgpack allows")
        rc = mpw_bin(b, <const char *>(<bytes>value), <uint32_t>n)
    elif isinstance(value, dict):
        inside = []
        for pair in PyDict_Items(value):         # a copy: the head's count stays true whatever other code does
            inside.append((<tuple>pair)[0])
            inside.append((<tuple>pair)[1])
        n = len(inside) // 2
        if n > 0xFFFFFFFF:
            raise ValueError("dict larger than msgpack allows")
        rc = mpw_map(b, <uint32_t>n)
    elif isinstance(value, Ext):
        if not -128 <= value.code <= 127:
            raise ValueError(f"ext code {value.code} is outside -128..127")
        n = len(<bytes?>value.data)
        if n > 0xFFFFFFFF:
            raise ValueError("ext longer than msgpack allows")
        rc = mpw_ext(b, value.code, <const char *>(<bytes>value.data), <uint32_t>n)
    elif isinstance(value, (list, tuple, set, frozenset)):
        inside = list(value)
        n = len(inside)
        if n > 0xFFFFFFFF:
            raise ValueError("array larger than msgpack allows")
        rc = mpw_array(b, <uint32_t>n)
    else:
        raise TypeError(f"{type(value).__name__} has no msgpack form")
    if rc < 0:
        raise MemoryError
    return inside


cdef int mpw_object(Buf *b, object value) except -1:
    cdef list inside = _write_value(b, value)
    cdef list lists = []                         # the containers around `inside`, outermost first
    cdef Py_ssize_t next_index[MAX_DEPTH]        # where each of them goes on
    cdef Py_ssize_t i = 0
    cdef list deeper
    if inside is None:
        return 0
    while True:
        if i == len(inside):
            if not lists:
                return 0
            inside = lists.pop()
            i = next_index[len(lists)]
            continue
        deeper = _write_value(b, inside[i])
        i += 1
        if deeper is not None:
            if len(lists) == MAX_DEPTH - 1:
                raise ValueError(f"containers nested deeper than {MAX_DEPTH}")
            next_index[len(lists)] = i
            lists.append(inside)
            inside = deeper
            i = 0


def packb(obj: object) -> bytes:
    """`obj` as msgpack, shortest forms. Raises TypeError, ValueError (depth, sizes) or OverflowError."""
    cdef Buf b
    buf_init(&b)
    try:
        mpw_object(&b, obj)
        return b.data[:b.len]
    finally:
        buf_free(&b)


cdef object _text(const char *s, uint32_t n):
    try:
        return PyUnicode_DecodeUTF8(s, n, NULL)
    except UnicodeDecodeError as error:
        raise DecodeError(f"str is not UTF-8: {error.reason}") from None


cdef object _read_scalar(Cursor *c, MpType kind):
    cdef const char *s
    cdef uint32_t n
    cdef int64_t number
    cdef uint64_t large
    cdef double real
    cdef bint truth = False
    cdef int code
    if kind == MP_STR:
        if mp_str(c, &s, &n) == 0:
            return _text(s, n)
    elif kind == MP_INT:
        if mp_int(c, &number) == 0:
            return number
        if mp_uint64(c, &large) == 0:
            return large
    elif kind == MP_FLOAT:
        if mp_float(c, &real) == 0:
            return real
    elif kind == MP_BIN:
        if mp_bin(c, &s, &n) == 0:
            return s[:n]
    elif kind == MP_NIL:
        mp_nil(c)
        return None
    elif kind == MP_BOOL:
        mp_bool(c, &truth)
        return True if truth else False
    elif kind == MP_EXT:
        if mp_ext(c, &code, &s, &n) == 0:
            return Ext(code, s[:n])
    elif kind == MP_BAD:
        raise DecodeError("byte 0xc1 is not msgpack")
    raise DecodeError("the data ends inside a value")


cdef object _read_object(Cursor *c):
    cdef list open_ = []                        # containers that still lack entries, outermost first
    cdef list keys = []                         # per open container: the key that waits for its value (maps)
    cdef uint32_t missing[MAX_DEPTH]            # per open container: values it lacks (keys count, too)
    cdef bint is_map[MAX_DEPTH]
    cdef Py_ssize_t top = -1
    cdef MpType kind
    cdef uint32_t n
    cdef object value
    while True:
        kind = mp_peek(c)
        if kind == MP_ARRAY or kind == MP_MAP:
            if top >= 0 and is_map[top] and keys[top] is None:
                raise DecodeError("a map key is neither str nor int")
            if top == MAX_DEPTH - 1:
                raise DecodeError(f"containers nested deeper than {MAX_DEPTH}")
            if (mp_array(c, &n) if kind == MP_ARRAY else mp_map(c, &n)) < 0:
                raise DecodeError("the data ends inside a container")
            value = [] if kind == MP_ARRAY else {}
            if n > 0:
                top += 1
                open_.append(value)
                keys.append(None)
                missing[top] = n
                is_map[top] = kind == MP_MAP
                continue
        else:
            value = _read_scalar(c, kind)
        while True:                             # `value` is whole: hand it to the container around it
            if top < 0:
                return value
            if is_map[top]:
                if keys[top] is None:
                    if not isinstance(value, (str, int)) or isinstance(value, bool):
                        raise DecodeError("a map key is neither str nor int")
                    keys[top] = value
                    break
                (<dict>open_[top])[keys[top]] = value
                keys[top] = None
            else:
                (<list>open_[top]).append(value)
            missing[top] -= 1
            if missing[top] > 0:
                break
            value = open_.pop()
            keys.pop()
            top -= 1


def unpackb(data: object) -> object:
    """The one value in `data` (any contiguous buffer). Raises DecodeError, also for bytes left over at the end."""
    cdef Py_buffer view
    cdef Cursor c
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        c.p = <const unsigned char *>view.buf
        c.end = c.p + view.len
        value = _read_object(&c)
        if c.p != c.end:
            raise DecodeError(f"{c.end - c.p} bytes after the value")
        return value
    finally:
        PyBuffer_Release(&view)


def skip(const unsigned char[::1] data not None, uint64_t count=1) -> int:
    """Bytes taken by the first `count` values, found by mp_skip. Raises DecodeError if they are not all there."""
    cdef Cursor c
    cdef const unsigned char *start = &data[0]
    c.p = start
    c.end = start + data.shape[0]
    if mp_skip(&c, count) < 0:
        if c.p != start:
            raise AssertionError("a failed skip moved the cursor")
        raise DecodeError("not that many whole values")
    return c.p - start
