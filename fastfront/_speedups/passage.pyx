# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False
"""Text that passes natively; see the .pxd for the contract."""
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport uint32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset

from fastfront._speedups.buffers cimport Buf, buf_byte, buf_free, buf_init, buf_int, buf_put
from fastfront._speedups.json_escape cimport json_escape
from fastfront._speedups.sse cimport put_usage

cdef extern from "Python.h":
    bint Py_UNICODE_ISSPACE(uint32_t) nogil


cdef inline uint32_t last_character(const char *text, size_t n) noexcept nogil:
    """The last code point of valid UTF-8 that is not empty."""
    cdef const unsigned char *p = <const unsigned char *>text
    cdef size_t at = n - 1
    cdef uint32_t code
    if p[at] < 0x80:
        return p[at]
    while at > 0 and p[at] & 0xC0 == 0x80:
        at -= 1
    code = p[at] & (0x3F if p[at] < 0xE0 else 0x0F if p[at] < 0xF0 else 0x07)
    for at in range(at + 1, n):
        code = code << 6 | (p[at] & 0x3F)
    return code


cdef bint triggered(const TriggerSet *s, const char *text, size_t n) noexcept nogil:
    cdef size_t at
    cdef unsigned char start
    cdef const char *string
    cdef uint32_t i
    for at in range(n):
        start = s.starts[<unsigned char>text[at]]
        if start == 0:
            continue
        if start == 1:
            return True
        string = s.strings
        for i in range(s.n):
            if memcmp(text + at, string, min(n - at, <size_t>s.length[i])) == 0:
                return True
            string += s.length[i]
    return s.spaces and n > 0 and Py_UNICODE_ISSPACE(last_character(text, n))


cdef bint passage_takes(const PassageC *p, const Passing *piece) noexcept nogil:
    cdef uint32_t i
    if piece.n == 0:
        return not (p.says_all and (piece.ids.len or piece.logprobs.len))
    for i in range(p.n_sets):
        if triggered(p.sets[i], piece.text, piece.n):
            return False
    return True


cdef int put_field(Buf *out, PassageC *p, unsigned char field, const Passing *piece) noexcept nogil:
    cdef int r = 0
    if field == FIELD_TEXT:
        return json_escape(out, piece.text, piece.n)
    if field == FIELD_IDS:
        return buf_put(out, piece.ids.data, piece.ids.len)
    if field == FIELD_LOGPROBS:
        if piece.logprobs.len == 0:
            return buf_put(out, b"null", 4)
        r |= buf_put(out, b'{"content":[', 12)
        r |= buf_put(out, piece.logprobs.data, piece.logprobs.len)
        return r | buf_put(out, b"]}", 2)
    if field == FIELD_USAGE:
        r |= put_usage(out, piece.prompt_tokens, piece.completion_tokens)
        return r | buf_byte(out, c'}')
    if field == FIELD_NUMBER:
        p.number += 1
        return buf_int(out, p.number - 1)
    return 0


cdef int passage_put(Buf *out, PassageC *p, const Passing *piece) noexcept nogil:
    cdef int r = 0
    cdef uint32_t i, at = 0
    if p.keeps_text:
        r |= buf_put(&p.text, piece.text, piece.n)
    if p.keeps_ids and piece.ids.len:
        if p.ids.len:
            r |= buf_byte(&p.ids, c',')
        r |= buf_put(&p.ids, piece.ids.data, piece.ids.len)
    if p.silent or piece.n == 0:
        return r
    for i in range(p.n_parts):
        r |= buf_put(out, p.literals.data + at, p.ends[i] - at)
        at = p.ends[i]
        r |= put_field(out, p, p.fields[i], piece)
    return r


cdef class Triggers:
    """Strings that end a passage, none empty; with `spaces` white space at the end of a piece does too. Immutable."""

    def __cinit__(self):
        memset(&self.c, 0, sizeof(TriggerSet))

    def __init__(self, *strings, bint spaces=False):
        cdef Py_ssize_t size
        cdef const char *utf8
        cdef size_t total = 0
        cdef str string
        if self.c.length != NULL:
            raise RuntimeError("triggers are built once")
        for string in strings:
            utf8 = PyUnicode_AsUTF8AndSize(string, &size)
            if size == 0:
                raise ValueError("a trigger must not be empty")
            total += size
        self.c.spaces = spaces
        self.c.length = <uint32_t *>malloc((len(strings) + 1) * sizeof(uint32_t))
        self.c.strings = <char *>malloc(total + 1)
        if self.c.length == NULL or self.c.strings == NULL:
            raise MemoryError
        total = 0
        for string in strings:
            utf8 = PyUnicode_AsUTF8AndSize(string, &size)
            if size == 1:
                self.c.starts[<unsigned char>utf8[0]] = 1
            elif self.c.starts[<unsigned char>utf8[0]] == 0:
                self.c.starts[<unsigned char>utf8[0]] = 2
            memcpy(self.c.strings + total, utf8, size)
            total += size
            self.c.length[self.c.n] = <uint32_t>size
            self.c.n += 1

    def __dealloc__(self):
        free(self.c.length)
        free(self.c.strings)

    def end(self, str text) -> bool:
        """Whether a piece of text cannot pass."""
        cdef Py_ssize_t n
        cdef const char *utf8 = PyUnicode_AsUTF8AndSize(text, &n)
        return triggered(&self.c, utf8, n)


cdef class Passage:
    """How a choice's text passes while none of `triggers` comes.

    `layout` is an event's parts in order, bytes and Fields; None: nothing of it goes to the client. A piece without text has no event;
    where the layout shows ids or logprobs, one that has these does not pass. `keeps_text` and `keeps_ids`: what passes is kept for
    `take`. `number` counts the events that show it.
    """

    def __cinit__(self):
        memset(&self.c, 0, sizeof(PassageC))

    def __init__(self, list layout, tuple triggers not None, *, bint keeps_text=False, bint keeps_ids=False):
        cdef Triggers one
        cdef uint32_t n
        if self.triggers is not None:
            raise RuntimeError("a passage is built once")
        if len(triggers) > MOST_TRIGGERS:
            raise ValueError(f"a passage has {MOST_TRIGGERS} sets of triggers at most")
        self.triggers = triggers
        for one in triggers:
            if one is None:
                raise TypeError("None is no set of triggers")
            self.c.sets[self.c.n_sets] = &one.c
            self.c.n_sets += 1
        self.c.keeps_text = keeps_text
        self.c.keeps_ids = keeps_ids
        self.c.silent = layout is None
        if layout is None:
            return
        n = <uint32_t>len(layout)
        self.c.ends = <uint32_t *>calloc(n + 1, sizeof(uint32_t))
        self.c.fields = <unsigned char *>calloc(n + 1, 1)
        if self.c.ends == NULL or self.c.fields == NULL:
            raise MemoryError
        for part in layout:
            if isinstance(part, bytes):
                if buf_put(&self.c.literals, <bytes>part, len(<bytes>part)) < 0:
                    raise MemoryError
            else:
                self.c.fields[self.c.n_parts] = part
                self.c.says_all |= part == FIELD_IDS or part == FIELD_LOGPROBS
            self.c.ends[self.c.n_parts] = <uint32_t>self.c.literals.len
            self.c.n_parts += 1

    def __dealloc__(self):
        free(self.c.ends)
        free(self.c.fields)
        buf_free(&self.c.literals)
        buf_free(&self.c.text)
        buf_free(&self.c.ids)

    @property
    def number(self) -> int:
        return self.c.number

    @number.setter
    def number(self, value):
        self.c.number = value

    def take(self) -> tuple[str, bytes]:
        """The text and the ids that have passed and were kept, once."""
        cdef str text = ""
        cdef bytes ids = b""
        if self.c.text.len:
            text = PyBytes_FromStringAndSize(self.c.text.data, self.c.text.len).decode()
        if self.c.ids.len:
            ids = PyBytes_FromStringAndSize(self.c.ids.data, self.c.ids.len)
        self.c.text.len = 0
        self.c.ids.len = 0
        return text, ids
