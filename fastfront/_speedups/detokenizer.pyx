# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False, cdivision=True
"""Incremental detokenizing; see the .pxd for the contract."""
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeUTF8
from libc.stdlib cimport free, malloc
from libc.string cimport memmove, memset
from fastfront._speedups.buffers cimport buf_byte, buf_free, buf_init, buf_put, buf_reserve
from fastfront._speedups.utf8 cimport utf8_continues, utf8_length, utf8_whole
from fastfront._speedups.vocabulary cimport (
    TOKEN_BYTE,
    TOKEN_KNOWN,
    TOKEN_SPECIAL,
    TOKEN_WHOLE,
    VOCAB_BYTE_LEVEL,
    VOCAB_SLOW,
)

cdef enum:
    CONTEXT = 16        # ids a slow stream keeps in front of new ones, so that its decoder sees what went before


# --- native kinds ------------------------------------------------------------------------------------------------


cdef inline int _replacement(Buf *out) noexcept nogil:
    return buf_put(out, "\xef\xbf\xbd", 3)


cdef int _put(Vocabulary v, Detok *d, const char *p, size_t n, Buf *out) noexcept nogil:
    """Appends whole characters, less the leading space that some decoders strip."""
    if d.first and n > 0:
        d.first = False
        if v.strip and p[0] == 32:
            p += 1
            n -= 1
    return buf_put(out, p, n)


cdef int _drop_pending(Detok *d, Buf *out) noexcept nogil:
    """The unfinished character stays unfinished: one U+FFFD, unless the prompt alone is to blame."""
    cdef int rc = 0
    if d.n_pending > d.primed:
        rc = _replacement(out)
    d.n_pending = 0
    d.primed = 0
    return rc


cdef int _bytes(Detok *d, const uint8_t *p, size_t n, Buf *out) noexcept nogil:
    """Bytes of a token that holds parts of characters. Replaces as Rust and WHATWG do: one U+FFFD per maximal part."""
    cdef size_t i = 0
    cdef uint8_t c
    if buf_reserve(out, 3 * n + 8) < 0:
        return -1
    while i < n:
        c = p[i]
        if d.n_pending > 0:
            if not utf8_continues(d.pending[0], d.n_pending, c):
                if _drop_pending(d, out) < 0:
                    return -1
                continue
            d.pending[d.n_pending] = c
            d.n_pending += 1
            if d.n_pending == utf8_length(d.pending[0]):
                if buf_put(out, <const char *>d.pending, d.n_pending) < 0:
                    return -1
                d.n_pending = 0
                d.primed = 0
        elif c < 0x80:
            if buf_byte(out, c) < 0:
                return -1
        elif utf8_length(c) == 0:
            if _replacement(out) < 0:
                return -1
        else:
            d.pending[0] = c
            d.n_pending = 1
        i += 1
    return 0


cdef int _end_run(Vocabulary v, Detok *d, Buf *out) noexcept nogil:
    """A run of byte pieces is over: its text if valid as a whole, else one U+FFFD per byte that is not the prompt's."""
    cdef bint partial
    cdef size_t n = d.run.len
    cdef size_t i
    d.run.len = 0
    if utf8_whole(<const uint8_t *>d.run.data, n, &partial) == n:
        d.primed = 0
        return _put(v, d, d.run.data, n, out)
    for i in range(d.primed, n):
        if _put(v, d, "\xef\xbf\xbd", 3, out) < 0:
            return -1
    d.primed = 0
    return 0


cdef int detok_feed(Vocabulary v, Detok *d, int64_t id, Buf *out) noexcept nogil:
    cdef uint8_t flags
    cdef const char *p
    cdef uint32_t n
    if id < 0 or id >= v.size:
        return 0
    flags = v.flags[id]
    if not flags & TOKEN_KNOWN or (flags & TOKEN_SPECIAL and d.skip_special):
        return 0
    if v.kind == VOCAB_SLOW:
        return _slow_feed(d, id, out)
    p = v.blob + v.at[id]
    n = v.at[id + 1] - v.at[id]
    if v.kind == VOCAB_BYTE_LEVEL:
        if flags & TOKEN_WHOLE:
            if d.n_pending > 0 and n > 0 and _drop_pending(d, out) < 0:
                return -1
            return buf_put(out, p, n)
        return _bytes(d, <const uint8_t *>p, n, out)
    if flags & TOKEN_BYTE:
        return buf_byte(&d.run, <unsigned char>p[0])
    if d.run.len > 0 and _end_run(v, d, out) < 0:
        return -1
    if d.first and v.first_blob is not NULL:
        d.first = False
        return buf_put(out, v.first_blob + v.first_at[id], v.first_at[id + 1] - v.first_at[id])
    return _put(v, d, p, n, out)


cdef int detok_flush(Vocabulary v, Detok *d, bint keep_partial, Buf *out) noexcept nogil:
    cdef bint partial
    cdef size_t whole
    if v.kind == VOCAB_SLOW:
        return _slow_flush(d, keep_partial, out)
    if d.n_pending > 0:
        if keep_partial:
            return _drop_pending(d, out)
        d.n_pending = 0
        d.primed = 0
        return 0
    if d.run.len == 0:
        return 0
    if not keep_partial:
        whole = utf8_whole(<const uint8_t *>d.run.data, d.run.len, &partial)
        if partial:
            d.run.len = whole
            if d.primed > whole:
                d.primed = 0
    return _end_run(v, d, out)


cdef int detok_prime(Vocabulary v, Detok *d, const int64_t *ids, size_t n) noexcept nogil:
    cdef bint first = d.first
    cdef bint partial
    cdef size_t i
    cdef size_t whole
    cdef Buf text
    cdef int rc = 0
    if v.kind == VOCAB_SLOW:
        return _slow_prime(v, d, ids, n)
    buf_init(&text)
    for i in range(n):
        text.len = 0
        rc = detok_feed(v, d, ids[i], &text)
        if rc < 0:
            break
    buf_free(&text)
    d.first = first
    if d.run.len > 0:
        whole = utf8_whole(<const uint8_t *>d.run.data, d.run.len, &partial)
        if not partial:
            whole = d.run.len
        d.run.len -= whole
        memmove(d.run.data, d.run.data + whole, d.run.len)
    d.primed = d.n_pending + <uint8_t>d.run.len
    return rc


cdef const char *token_bytes(Vocabulary v, int64_t id, uint32_t *n) noexcept nogil:
    n[0] = 0
    if id < 0 or id >= v.size or v.kind == VOCAB_SLOW or not v.flags[id] & TOKEN_KNOWN:
        return NULL
    n[0] = v.at[id + 1] - v.at[id]
    return v.blob + v.at[id]


cdef int detok_init(Detok *d, Vocabulary v, bint skip_special, bint continues) except -1:
    cdef object slow
    memset(d, 0, sizeof(Detok))
    d.first = not continues
    d.skip_special = skip_special
    buf_init(&d.run)
    if v.kind == VOCAB_SLOW:
        slow = SlowDetokenizer.__new__(SlowDetokenizer, v, skip_special)
        Py_INCREF(slow)
        d.slow = <void *><PyObject *>slow
    return 0


cdef void detok_free(Detok *d) noexcept:
    buf_free(&d.run)
    if d.slow is not NULL:
        slow = <object><PyObject *>d.slow
        d.slow = NULL
        Py_DECREF(slow)


# --- slow kind ---------------------------------------------------------------------------------------------------


cdef class SlowDetokenizer:
    """Decodes a short window of ids again for every token and gives out what has been added at the end.

    Exact for decoders whose output only grows at the end and depends on fewer than CONTEXT ids before a token. Owned by
    the stream's lane thread.
    """

    cdef object decode
    cdef Vocabulary vocabulary
    cdef bint skip_special
    cdef list window            # last ids of the stream
    cdef Py_ssize_t sent        # characters of decode(window) that are out
    cdef bint in_run            # the last id is a byte piece: what its run becomes is open

    def __cinit__(self, Vocabulary vocabulary, bint skip_special):
        self.vocabulary = vocabulary
        self.decode = vocabulary.tokenizer.decode
        self.skip_special = skip_special
        self.window = []

    cdef str text(self):
        """decode(window). A window that cannot be decoded is given up, only its last id is tried again."""
        try:
            return self.decode(self.window, self.skip_special)
        except BaseException:                     # a panic in the tokenizer is not an Exception
            self.window = self.window[len(self.window) - 1:]
            self.sent = 0
        try:
            return self.decode(self.window, self.skip_special)
        except BaseException:
            self.window = []
            return ""

    cdef Py_ssize_t settled(self, str text):
        """How many characters no later id can change: all but a trailing U+FFFD per byte of an unfinished character."""
        cdef Py_ssize_t end = len(text)
        cdef Py_ssize_t least = end - 3
        while end > 0 and end > least and text[end - 1] == u"\ufffd":
            end -= 1
        return end

    cdef str step(self, int64_t id):
        cdef str text
        cdef str new = ""
        cdef Py_ssize_t end
        cdef Py_ssize_t held
        self.window.append(id)
        self.in_run = self.vocabulary.flags[id] & TOKEN_BYTE != 0
        if self.in_run:
            return new
        text = self.text()
        end = self.settled(text)
        if end > self.sent:
            new = text[self.sent:end]
            self.sent = end
        if len(self.window) >= 2 * CONTEXT:
            held = len(text) - self.sent
            self.window = self.window[len(self.window) - CONTEXT:]
            self.sent = max(0, len(self.text()) - held)
        return new

    cdef str finish(self, bint keep_partial):
        cdef str text = self.text() if self.window else ""
        cdef Py_ssize_t end = len(text)
        cdef str new
        if not keep_partial:
            end = len(text.rstrip("\ufffd")) if self.in_run else self.settled(text)
        new = text[self.sent:end] if end > self.sent else ""
        self.window = []
        self.sent = 0
        self.in_run = False
        return new

    cdef int prime(self, const int64_t *ids, size_t n) except -1:
        cdef size_t i
        cdef uint8_t flags
        for i in range(n):
            if 0 <= ids[i] < self.vocabulary.size:
                flags = self.vocabulary.flags[ids[i]]
                if flags & TOKEN_KNOWN and not (flags & TOKEN_SPECIAL and self.skip_special):
                    self.window.append(ids[i])
        if len(self.window) > CONTEXT:
            self.window = self.window[len(self.window) - CONTEXT:]
        self.sent = self.settled(self.text()) if self.window else 0
        return 0


cdef int _append_text(Buf *out, str text) except -1:
    cdef Py_ssize_t n
    cdef const char *utf8 = PyUnicode_AsUTF8AndSize(text, &n)
    return buf_put(out, utf8, n)


cdef int _slow_feed(Detok *d, int64_t id, Buf *out) noexcept with gil:
    try:
        return _append_text(out, (<SlowDetokenizer><PyObject *>d.slow).step(id))
    except BaseException:
        return -1


cdef int _slow_flush(Detok *d, bint keep_partial, Buf *out) noexcept with gil:
    try:
        return _append_text(out, (<SlowDetokenizer><PyObject *>d.slow).finish(keep_partial))
    except BaseException:
        return -1


cdef int _slow_prime(Vocabulary v, Detok *d, const int64_t *ids, size_t n) noexcept with gil:
    try:
        return (<SlowDetokenizer><PyObject *>d.slow).prime(ids, n)
    except BaseException:
        return -1


# --- Python side -------------------------------------------------------------------------------------------------


cdef class Detokenizer:
    """One stream's detokenizer for callers in Python. One thread uses it at a time; the vocabulary may be shared."""

    cdef Vocabulary _vocabulary
    cdef Detok _state
    cdef Buf _out

    def __cinit__(self, Vocabulary vocabulary not None, bint skip_special_tokens=True, bint continues=False):
        buf_init(&self._out)
        self._vocabulary = vocabulary
        detok_init(&self._state, vocabulary, skip_special_tokens, continues)

    def __dealloc__(self):
        detok_free(&self._state)
        buf_free(&self._out)

    def prime(self, ids) -> None:
        """The ids at the end of the prompt, before the first `feed`."""
        cdef list items = list(ids)
        cdef size_t n = len(items)
        cdef size_t i
        cdef int rc
        cdef int64_t *array = <int64_t *>malloc((n + 1) * sizeof(int64_t))
        if array is NULL:
            raise MemoryError
        try:
            for i in range(n):
                array[i] = items[i]
            with nogil:
                rc = detok_prime(self._vocabulary, &self._state, array, n)
            if rc < 0:
                raise MemoryError
        finally:
            free(array)

    def feed(self, ids) -> str:
        """The text that the ids complete."""
        cdef int64_t id
        self._out.len = 0
        for item in ids:
            id = item
            if detok_feed(self._vocabulary, &self._state, id, &self._out) < 0:
                raise MemoryError
        return PyUnicode_DecodeUTF8(self._out.data, self._out.len, NULL) if self._out.len else ""

    def flush(self, bint keep_partial=True) -> str:
        """What decoding all ids gives beyond the text so far; less an unfinished character without `keep_partial`."""
        self._out.len = 0
        if detok_flush(self._vocabulary, &self._state, keep_partial, &self._out) < 0:
            raise MemoryError
        return PyUnicode_DecodeUTF8(self._out.data, self._out.len, NULL) if self._out.len else ""


cdef class StreamSet:
    """Many streams over one vocabulary, fed step by step without the interpreter. One thread uses a set."""

    cdef Vocabulary _vocabulary
    cdef Detok *_streams
    cdef Py_ssize_t _count
    cdef Buf _out

    def __cinit__(self, Vocabulary vocabulary not None, Py_ssize_t count, bint skip_special_tokens=True):
        cdef Py_ssize_t i
        buf_init(&self._out)
        self._vocabulary = vocabulary
        self._streams = <Detok *>malloc((count + 1) * sizeof(Detok))
        if self._streams is NULL:
            raise MemoryError
        for i in range(count):
            detok_init(&self._streams[i], vocabulary, skip_special_tokens, False)
            self._count += 1

    def __dealloc__(self):
        cdef Py_ssize_t i
        for i in range(self._count):
            detok_free(&self._streams[i])
        free(self._streams)
        buf_free(&self._out)

    def steps(self, const int64_t[::1] ids not None) -> bytes:
        """`ids` holds one id per stream, step after step. Returns the text of all streams in the order it came."""
        cdef Py_ssize_t n = ids.shape[0]
        cdef Py_ssize_t at = 0
        cdef Py_ssize_t i
        cdef int rc = 0
        self._out.len = 0
        with nogil:
            while at + self._count <= n and rc == 0:
                for i in range(self._count):
                    rc |= detok_feed(self._vocabulary, &self._streams[i], ids[at + i], &self._out)
                at += self._count
                if self._count == 0:
                    break
        if rc < 0:
            raise MemoryError
        return self._out.data[:self._out.len] if self._out.len else b""


cdef str _decoded(Vocabulary v, object ids, bint skip_special):
    detokenizer = Detokenizer(v, skip_special)
    return detokenizer.feed(ids) + detokenizer.flush()


def agrees(Vocabulary v, tokenizer) -> bool:
    """Whether native decoding equals the tokenizer's on every special id and part of a character, and some of the rest.

    Decoding all ids would take longer than building the table; what is sampled goes by one rule each.
    """
    cdef int64_t i
    cdef list known = [i for i in range(v.size) if v.flags[i] & TOKEN_KNOWN]
    cdef list parts = [i for i in known if not v.flags[i] & TOKEN_WHOLE or v.flags[i] & (TOKEN_BYTE | TOKEN_SPECIAL)]
    cdef list apart = []
    cdef list starts
    cdef object letter = None
    for i in known:
        if v.flags[i] == TOKEN_KNOWN | TOKEN_WHOLE and v.blob[v.at[i]:v.at[i + 1]] in (b"a", b" a"):
            letter = i
            break
    # A plain token after each part keeps them from making a character together.
    for i in parts:
        apart.append(i)
        apart.append(i if letter is None else letter)
    # Strides bring other neighbours together; starts show what a token is at the beginning.
    for ids in (apart, parts, parts[::-7], known[:: max(1, len(known) // 16384)], known[::-97]):
        for skip in (False, True):
            if tokenizer.decode(ids, skip_special_tokens=skip) != _decoded(v, ids, skip):
                return False
    starts = known[:: max(1, len(known) // 500)] + parts[:: max(1, len(parts) // 500)]
    return all(tokenizer.decode([i, i], skip_special_tokens=False) == _decoded(v, (i, i), False) for i in starts)
