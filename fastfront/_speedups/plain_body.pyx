# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False
"""JSON bodies of plain shapes, read in one pass.

Most requests are an object of known fields with numbers, texts and flags, and messages of texts. `PlainBodies` makes of such a body what
pydantic makes of it, and leaves every other one, and all errors, to that: what it gives needs no further look at its shape.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_Contains, PyDict_SetItem
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

cdef extern from "Python.h":
    double PyOS_string_to_double(const char *, char **, PyObject *) except? -1.0
    str PyUnicode_DecodeUTF8(const char *, Py_ssize_t, const char *)

SHAPES = {
    "null": SHAPE_NULL, "bool": SHAPE_BOOL, "int": SHAPE_INT, "float": SHAPE_FLOAT, "text": SHAPE_TEXT, "texts": SHAPE_TEXTS,
    "ids": SHAPE_IDS, "flags": SHAPE_FLAGS, "messages": SHAPE_MESSAGES,
}

cdef enum:
    MOST_DIGITS = 18            # of an integer: within 64 bits
    MOST_NUMBER = 40            # characters of a number with a fraction

cdef uint64_t ONES = 0x0101010101010101ULL
cdef object NOT_PLAIN = object()
cdef str ROLE = "role", CONTENT = "content", TYPE = "type", TEXT = "text"
cdef str INCLUDE_USAGE = "include_usage", CONTINUOUS = "continuous_usage_stats"


cdef inline uint32_t hashed(const char *name, Py_ssize_t size) noexcept nogil:
    """Of a name that is not empty."""
    return <uint32_t>size * 31 + <unsigned char>name[0] * 7 + <unsigned char>name[size - 1] * 3 + <unsigned char>name[size >> 1]


cdef inline char after_space(Reader *r) noexcept nogil:
    """The next character that is no white space, which is left there; NUL at the end."""
    while r.p < r.end and (r.p[0] == c' ' or r.p[0] == c'\n' or r.p[0] == c'\r' or r.p[0] == c'\t'):
        r.p += 1
    return r.p[0] if r.p < r.end else 0


cdef inline bint takes(Reader *r, char c) noexcept nogil:
    """Whether `c` is next behind white space; it is taken then."""
    if after_space(r) != c or r.p == r.end:
        return False
    r.p += 1
    return True


cdef inline bint takes_word(Reader *r, const char *word, Py_ssize_t n) noexcept nogil:
    if r.end - r.p < n or memcmp(r.p, word, n) != 0:
        return False
    r.p += n
    return True


cdef inline int hex_digit(char c) noexcept nogil:
    if c'0' <= c <= c'9':
        return c - c'0'
    if c'a' <= c <= c'f':
        return c - c'a' + 10
    return c - c'A' + 10 if c'A' <= c <= c'F' else -1


cdef int hex4(const char *p, const char *end) noexcept nogil:
    """The number of four hex digits; -1: they are none."""
    cdef int value = 0, k, digit
    if end - p < 4:
        return -1
    for k in range(4):
        digit = hex_digit(p[k])
        if digit < 0:
            return -1
        value = value << 4 | digit
    return value


cdef inline char *put_utf8(char *to, int c) noexcept nogil:
    if c < 0x80:
        to[0] = <char>c
        return to + 1
    if c < 0x800:
        to[0] = <char>(0xC0 | c >> 6)
        to[1] = <char>(0x80 | c & 0x3F)
        return to + 2
    if c < 0x10000:
        to[0] = <char>(0xE0 | c >> 12)
        to[1] = <char>(0x80 | c >> 6 & 0x3F)
        to[2] = <char>(0x80 | c & 0x3F)
        return to + 3
    to[0] = <char>(0xF0 | c >> 18)
    to[1] = <char>(0x80 | c >> 12 & 0x3F)
    to[2] = <char>(0x80 | c >> 6 & 0x3F)
    to[3] = <char>(0x80 | c & 0x3F)
    return to + 4


cdef Py_ssize_t unescape(const char *p, const char *end, char *to) noexcept nogil:
    """The UTF-8 of an escaped text, which is never longer; -1: an escape is wrong, or half of a pair of surrogates."""
    cdef char *start = to
    cdef int c, low
    while p < end:
        if p[0] != c'\\':
            to[0] = p[0]
            to += 1
            p += 1
            continue
        p += 1                          # something follows: the text ends at a quote that is not escaped
        c = p[0]
        p += 1
        if c == c'n':
            to[0] = c'\n'
        elif c == c'"' or c == c'\\' or c == c'/':
            to[0] = <char>c
        elif c == c't':
            to[0] = c'\t'
        elif c == c'r':
            to[0] = c'\r'
        elif c == c'b':
            to[0] = 8
        elif c == c'f':
            to[0] = 12
        elif c == c'u':
            c = hex4(p, end)
            p += 4
            if 0xD800 <= c < 0xDC00:
                if end - p < 6 or p[0] != c'\\' or p[1] != c'u':
                    return -1
                low = hex4(p + 2, end)
                if not 0xDC00 <= low < 0xE000:
                    return -1
                p += 6
                c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00)
            elif c < 0 or 0xDC00 <= c < 0xE000:
                return -1
            to = put_utf8(to, c)
            continue
        else:
            return -1
        to += 1
    return to - start


cdef inline bint has_special(const char *p) noexcept nogil:
    """Whether a quote, a backslash or a control character may be among the next eight bytes: false only if there is none."""
    cdef uint64_t x, quote, slash
    memcpy(&x, p, 8)
    quote = x ^ 0x2222222222222222ULL
    slash = x ^ 0x5C5C5C5C5C5C5C5CULL
    return ((((quote - ONES) & ~quote) | ((slash - ONES) & ~slash) | ((x - ONES * 0x20) & ~x)) & ONES * 0x80) != 0


cdef int find_end(Reader *r, const char **start, bint *escaped) noexcept nogil:
    """Takes a text, from quote to quote. 0, or -1: there is none, or a control character in it."""
    cdef const char *p
    if not takes(r, c'"'):
        return -1
    p = start[0] = r.p
    escaped[0] = False
    while r.end - p >= 8 and not has_special(p):
        p += 8
    while p < r.end and p[0] != c'"':
        if <unsigned char>p[0] < 32:
            return -1
        if p[0] == c'\\':
            escaped[0] = True
            p += 1
        p += 1
        while r.end - p >= 8 and not has_special(p):
            p += 8
    if p >= r.end:
        return -1
    r.p = p + 1
    return 0


cdef object text(Reader *r):
    cdef const char *start = NULL
    cdef bint escaped = False
    cdef Py_ssize_t n
    cdef char *plain
    if find_end(r, &start, &escaped) < 0:
        return NOT_PLAIN
    n = r.p - 1 - start
    try:
        if not escaped:
            return PyUnicode_DecodeUTF8(start, n, NULL)
        plain = <char *>malloc(n)
        if plain == NULL:
            raise MemoryError
        try:
            n = unescape(start, start + n, plain)
            return NOT_PLAIN if n < 0 else PyUnicode_DecodeUTF8(plain, n, NULL)
        finally:
            free(plain)
    except UnicodeDecodeError:
        return NOT_PLAIN


cdef object number(Reader *r, int shapes):
    """An integer or a number with a fraction, without an exponent."""
    cdef const char *p = r.p
    cdef const char *digits
    cdef char copy[MOST_NUMBER + 1]
    cdef bint negative = p[0] == c'-'
    cdef int64_t value = 0
    cdef Py_ssize_t n, k
    if negative:
        p += 1
    digits = p
    while p < r.end and c'0' <= p[0] <= c'9' and p - digits < MOST_DIGITS:
        value = value * 10 + (p[0] - c'0')
        p += 1
    if p == digits or (digits[0] == c'0' and p - digits > 1) or p == r.end:
        return NOT_PLAIN
    if p[0] != c'.':
        if c'0' <= p[0] <= c'9' or p[0] == c'e' or p[0] == c'E' or (negative and value == 0):
            return NOT_PLAIN
        r.p = p
        if negative:
            value = -value
        if shapes & <int>SHAPE_INT:
            return value
        return <double>value if shapes & <int>SHAPE_FLOAT and -(1LL << 53) < value < 1LL << 53 else NOT_PLAIN
    if not shapes & <int>SHAPE_FLOAT:
        return NOT_PLAIN
    p += 1
    digits = p
    while p < r.end and c'0' <= p[0] <= c'9':
        p += 1
    n = p - r.p
    if p == digits or p == r.end or p[0] == c'e' or p[0] == c'E' or n > MOST_NUMBER:
        return NOT_PLAIN
    for k in range(n):
        copy[k] = r.p[k]
    copy[n] = 0
    r.p = p
    return PyOS_string_to_double(copy, NULL, NULL)


cdef object token_id(Reader *r):
    return number(r, <int>SHAPE_INT) if c'0' <= after_space(r) <= c'9' else NOT_PLAIN


cdef object listed(Reader *r, object (*item)(Reader *)):
    """A list of what `item` reads, behind its bracket."""
    cdef list found = []
    if takes(r, c']'):
        return found
    while True:
        value = item(r)
        if value is NOT_PLAIN:
            return NOT_PLAIN
        found.append(value)
        if takes(r, c']'):
            return found
        if not takes(r, c','):
            return NOT_PLAIN


cdef str known_key(Reader *r):
    """One of the keys of messages and their parts; None for another, or none."""
    cdef const char *start = NULL
    cdef bint escaped = False
    cdef Py_ssize_t n
    if find_end(r, &start, &escaped) < 0:
        return None
    n = r.p - 1 - start
    if n == 4:
        if memcmp(start, b"role", 4) == 0:
            return ROLE
        if memcmp(start, b"type", 4) == 0:
            return TYPE
        if memcmp(start, b"text", 4) == 0:
            return TEXT
    elif n == 7 and memcmp(start, b"content", 7) == 0:
        return CONTENT
    return None


cdef object parts(Reader *r, bint nested):
    """An object of texts behind its brace; with `nested` a value may be a list of such objects."""
    cdef dict found = {}
    cdef str key
    if takes(r, c'}'):
        return found
    while True:
        key = known_key(r)
        if key is None or PyDict_Contains(found, key) or not takes(r, c':'):
            return NOT_PLAIN
        if nested and takes(r, c'['):
            value = listed(r, part)
        else:
            value = text(r)
        if value is NOT_PLAIN:
            return NOT_PLAIN
        PyDict_SetItem(found, key, value)
        if takes(r, c'}'):
            return found
        if not takes(r, c','):
            return NOT_PLAIN


cdef object part(Reader *r):
    return parts(r, False) if takes(r, c'{') else NOT_PLAIN


cdef object message(Reader *r):
    return parts(r, True) if takes(r, c'{') else NOT_PLAIN


cdef class PlainBodies:
    """Bodies of one kind. `fields` are what is known of values by the field's name: the sum of SHAPES. A body without the `required` ones
    is not plain. Immutable; any thread."""

    def __cinit__(self):
        self.fields = NULL

    def __init__(self, dict fields not None, tuple required not None):
        cdef Py_ssize_t slots = 64
        cdef size_t at
        cdef bytes raw
        if self.fields != NULL:
            raise RuntimeError("PlainBodies are made once")
        while slots < 4 * len(fields):
            slots *= 2
        self.fields = <Known *>calloc(slots, sizeof(Known))
        if self.fields == NULL:
            raise MemoryError
        self.mask = slots - 1
        self.required = required
        self.names = list(fields)
        self.texts = [name.encode() for name in self.names]
        for place, raw in enumerate(self.texts):
            at = hashed(raw, len(raw)) & self.mask
            while self.fields[at].name != NULL:
                at = (at + 1) & self.mask
            self.fields[at].name = raw
            self.fields[at].size = len(raw)
            self.fields[at].place = place
            self.fields[at].shapes = fields[self.names[place]]

    def __dealloc__(self):
        free(self.fields)

    def read(self, bytes body not None):
        """The fields of a body as pydantic reads them; None for one that is not plain."""
        return self.read_body(body)

    cdef dict read_body(self, bytes body):
        cdef Reader reader
        cdef Reader *r = &reader
        cdef const char *start = NULL
        cdef bint escaped = False
        cdef dict found = {}
        cdef Known *known
        r.p = PyBytes_AS_STRING(body)
        r.end = r.p + PyBytes_GET_SIZE(body)
        if not takes(r, c'{'):
            return None
        if not takes(r, c'}'):
            while True:
                if find_end(r, &start, &escaped) < 0:
                    return None
                known = self.find(start, r.p - 1 - start)
                if known == NULL or not takes(r, c':'):
                    return None
                name = self.names[known.place]
                if PyDict_Contains(found, name):
                    return None
                value = self.value(r, known.shapes)
                if value is NOT_PLAIN:
                    return None
                PyDict_SetItem(found, name, value)
                if takes(r, c'}'):
                    break
                if not takes(r, c','):
                    return None
        after_space(r)
        if r.p != r.end:
            return None
        for name in self.required:
            if not PyDict_Contains(found, name):
                return None
        return found

    cdef Known *find(self, const char *name, Py_ssize_t size) noexcept nogil:
        cdef size_t at
        cdef Known *known
        if size == 0:
            return NULL
        at = hashed(name, size) & self.mask
        while True:
            known = &self.fields[at]
            if known.name == NULL or (known.size == size and memcmp(known.name, name, size) == 0):
                return NULL if known.name == NULL else known
            at = (at + 1) & self.mask

    cdef object value(self, Reader *r, int shapes):
        """NOT_PLAIN for one of no such shape."""
        cdef char c = after_space(r)
        if c == c'"':
            return text(r) if shapes & <int>SHAPE_TEXT else NOT_PLAIN
        if c == c'n':
            return None if shapes & <int>SHAPE_NULL and takes_word(r, b"null", 4) else NOT_PLAIN
        if c == c't':
            return True if shapes & <int>SHAPE_BOOL and takes_word(r, b"true", 4) else NOT_PLAIN
        if c == c'f':
            return False if shapes & <int>SHAPE_BOOL and takes_word(r, b"false", 5) else NOT_PLAIN
        if c == c'-' or c'0' <= c <= c'9':
            return number(r, shapes)
        if c == c'[':
            r.p += 1
            if shapes & <int>SHAPE_MESSAGES:
                return listed(r, message)
            c = after_space(r)
            if shapes & <int>SHAPE_TEXTS and c == c'"':
                return listed(r, text)
            return listed(r, token_id) if shapes & <int>SHAPE_IDS and c != c']' else NOT_PLAIN
        if c == c'{' and shapes & <int>SHAPE_FLAGS:
            r.p += 1
            return self.flags(r)
        return NOT_PLAIN

    cdef object flags(self, Reader *r):
        """The flags of streams, behind their brace."""
        cdef const char *start = NULL
        cdef bint escaped = False
        cdef dict found = {}
        cdef Py_ssize_t n
        if takes(r, c'}'):
            return found
        while True:
            if find_end(r, &start, &escaped) < 0:
                return NOT_PLAIN
            n = r.p - 1 - start
            if n == 13 and memcmp(start, b"include_usage", 13) == 0:
                name = INCLUDE_USAGE
            elif n == 22 and memcmp(start, b"continuous_usage_stats", 22) == 0:
                name = CONTINUOUS
            else:
                return NOT_PLAIN
            if PyDict_Contains(found, name) or not takes(r, c':'):
                return NOT_PLAIN
            value = self.value(r, <int>SHAPE_BOOL | <int>SHAPE_NULL)
            if value is NOT_PLAIN:
                return NOT_PLAIN
            PyDict_SetItem(found, name, value)
            if takes(r, c'}'):
                return found
            if not takes(r, c','):
                return NOT_PLAIN
