# cython: language_level=3, freethreading_compatible=True
"""Usual completion requests, with one prompt, made ready in one go; `fastfront.openai.completions` does all others, and all errors."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t

from fastfront._speedups.prepared cimport PreparedCall
from fastfront._speedups.quick_fields cimport INPUT, Quick, QuickFields, Values, number


cdef class QuickCompletions(Quick):
    """What one server's completions have in common besides `fields`. Immutable; any thread.

    `encode(text)` gives the ids of a text with the tokens around it, packed. `max_tokens` is what a request gets that does not say how many.
    """
    cdef object encode
    cdef int64_t max_tokens

    def __init__(self, QuickFields fields not None, *, object encode not None, int64_t max_tokens):
        self.fields = fields
        self.encode = encode
        self.max_tokens = max_tokens

    cdef PreparedCall make(self, dict fields, object header):
        cdef Values values
        cdef int64_t requested = self.fields.read(fields, values)
        cdef bytes packed
        if requested < 0:
            return None
        if requested == 0:
            requested = self.max_tokens
            if requested > self.fields.max_model_len:
                return None
        prompt = <object>values[<int>INPUT]
        if type(prompt) is str:
            if not prompt or not self.fields.fits(prompt, requested):
                return None
            packed = self.encode(prompt)
        else:
            packed = packed_prompt(<list>prompt, self.fields.room(requested))
        return None if packed is None else self.fields.call(values, header, packed, requested)


cdef bytes packed_prompt(list prompt, int64_t room):
    """None: it is not one prompt of ids that fits."""
    cdef Py_ssize_t k, n = len(prompt)
    cdef bytes packed
    cdef int32_t *to
    cdef int64_t found
    if n == 0 or n > room:
        return None
    packed = PyBytes_FromStringAndSize(NULL, n * sizeof(int32_t))
    to = <int32_t *>PyBytes_AS_STRING(packed)
    for k in range(n):
        item = prompt[k]
        if type(item) is not int:
            return None
        found = number(<PyObject *>item, 0)
        if not 0 <= found <= 0x7fffffff:
            return None
        to[k] = <int32_t>found
    return packed
