# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False
"""Token ids as packed 32-bit integers, which cost nothing to copy, and the texts that they are known of."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.ref cimport Py_XDECREF
from libc.stdint cimport int32_t, uint8_t
from libc.string cimport memchr, memcmp, memcpy

from fastfront._speedups.buffers cimport Buf, buf_free, buf_init, buf_put, buf_reserve


cdef extern from *:
    """
    #if PY_VERSION_HEX < 0x030D0000 /* with a GIL: nobody takes the item away meanwhile */
    static int dict_get(PyObject *dict, PyObject *key, PyObject **found)
    {
        *found = PyDict_GetItemWithError(dict, key);
        Py_XINCREF(*found);
        return *found ? 1 : PyErr_Occurred() ? -1 : 0;
    }
    #else
    #define dict_get PyDict_GetItemRef
    #endif
    """
    int dict_get(object, object, PyObject **) except -1     # 1 with a new reference, 0: not there

cdef extern from "Python.h":
    object PyUnicode_Substring(object, Py_ssize_t, Py_ssize_t)
    Py_ssize_t PyUnicode_FindChar(object, Py_UCS4, Py_ssize_t, Py_ssize_t, int) except -2
    int PyUnicode_IS_COMPACT_ASCII(object)
    const uint8_t *PyUnicode_1BYTE_DATA(object)
    Py_ssize_t PyUnicode_GET_LENGTH(object)


cdef int put(Buf *b, const void *data, size_t n) except -1:
    if buf_put(b, <const char *>data, n) < 0:
        raise MemoryError
    return 0


cdef bytes taken(Buf *b):
    return PyBytes_FromStringAndSize(b.data, b.len) if b.len else b""


def pack(list ids not None) -> bytes:
    """The ids, each within 32 bits, packed. Raises OverflowError for others."""
    cdef Py_ssize_t k, n = len(ids)
    cdef bytes out = PyBytes_FromStringAndSize(NULL, n * sizeof(int32_t))
    cdef int32_t *to = <int32_t *>PyBytes_AS_STRING(out)
    for k in range(n):
        to[k] = ids[k]
    return out


def unpack(bytes packed not None) -> list:
    """A new list of packed ids."""
    cdef const int32_t *ids = packed_ids(packed)
    cdef Py_ssize_t k
    return [ids[k] for k in range(packed_count(packed))]


def count_of(bytes packed not None) -> int:
    """How many ids they are."""
    return packed_count(packed)


def largest_of(bytes packed not None) -> int:
    """The largest of the ids, -1 if there are none that is larger."""
    cdef const int32_t *ids = packed_ids(packed)
    cdef Py_ssize_t k
    cdef int32_t largest = -1
    for k in range(packed_count(packed)):
        largest = max(largest, ids[k])
    return largest


cdef bint put_known(Buf *b, dict known, object text) except -1:
    """Adds the packed ids that `known` has of a text; False if it has none."""
    cdef PyObject *found = NULL
    if dict_get(known, text, &found) == 0:
        return False
    try:
        put(b, PyBytes_AS_STRING(<object>found), PyBytes_GET_SIZE(<object>found))
    finally:
        Py_XDECREF(found)
    return True


def join_words(str text not None, dict first not None, dict later not None):
    """The packed ids of a text whose words are all known; None if one is not.

    Words stand between single spaces; `first` has those that a text begins with, `later` the others, without their space.
    """
    cdef Buf out
    cdef Py_ssize_t start = 0, end, n = PyUnicode_GET_LENGTH(text)
    cdef dict known = first
    buf_init(&out)
    try:
        if buf_reserve(&out, n) < 0:        # words and their spaces have about as many letters as ids have bytes
            raise MemoryError
        while True:
            end = PyUnicode_FindChar(text, c' ', start, n, 1)
            if end < 0:
                end = n
            if not put_known(&out, known, PyUnicode_Substring(text, start, end)):
                return None
            if end == n:
                return taken(&out)
            start = end + 1
            known = later
    finally:
        buf_free(&out)


cdef class Marks:
    """Tokens at which texts are cut, with their ids: `ids` by text; no two of them can overlap. Immutable.

    `split(text)` is what cuts texts that are not ASCII: at every mark, with the marks.
    """
    cdef dict ids
    cdef list texts             # those of `ids`, in any order
    cdef object split
    cdef bint simple            # all are ASCII and begin with the same character, `head`
    cdef uint8_t head

    def __init__(self, dict ids not None, object split not None):
        self.ids = {text: pack([number]) for text, number in ids.items()}
        self.texts = list(ids)
        self.split = split
        heads = {text[:1] for text in ids}
        self.simple = len(heads) == 1 and all(text and text.isascii() for text in ids)
        if self.simple:
            self.head = <uint8_t>ord(heads.pop())

    def encode(self, str text not None, dict known not None, object fetch not None):
        """The packed ids of a text: of its marks, and of the pieces between them from `known`, or `fetch(piece)`.

        None if it has no marks.
        """
        cdef Buf out
        cdef bint at_mark = False
        cdef list pieces
        buf_init(&out)
        try:
            if self.simple and PyUnicode_IS_COMPACT_ASCII(text):
                if not self.scan(&out, text, known, fetch):
                    return None
            else:
                pieces = self.split(text)
                if len(pieces) == 1:
                    return None
                for piece in pieces:
                    if at_mark:
                        put_known(&out, self.ids, piece)
                    elif piece:
                        self.put_piece(&out, piece, known, fetch)
                    at_mark = not at_mark
            return taken(&out)
        finally:
            buf_free(&out)

    cdef int put_piece(self, Buf *out, object piece, dict known, object fetch) except -1:
        cdef bytes fetched
        if not put_known(out, known, piece):
            fetched = fetch(piece)
            put(out, PyBytes_AS_STRING(fetched), PyBytes_GET_SIZE(fetched))
        return 0

    cdef bint scan(self, Buf *out, str text, dict known, object fetch) except -1:
        """False: there are no marks."""
        cdef const uint8_t *data = PyUnicode_1BYTE_DATA(text)
        cdef const uint8_t *hit
        cdef Py_ssize_t n = PyUnicode_GET_LENGTH(text), begun = 0, at = 0, size
        cdef str mark, found
        while at < n:
            hit = <const uint8_t *>memchr(data + at, self.head, n - at)
            if hit == NULL:
                break
            at = hit - data
            found = None
            size = 0
            for mark in self.texts:
                size = PyUnicode_GET_LENGTH(mark)
                if size <= n - at and memcmp(hit, PyUnicode_1BYTE_DATA(mark), size) == 0:
                    found = mark
                    break
            if found is None:
                at += 1
                continue
            if at > begun:
                self.put_piece(out, PyUnicode_Substring(text, begun, at), known, fetch)
            put_known(out, self.ids, found)
            at += size
            begun = at
        if begun and n > begun:
            self.put_piece(out, PyUnicode_Substring(text, begun, n), known, fetch)
        return begun > 0
