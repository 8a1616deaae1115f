# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False, cdivision=True
"""Stop strings over a stream of text; see the .pxd for the contract."""
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memchr, memcpy


cdef void _fail_links(const char *text, uint32_t length, uint32_t *fail) noexcept nogil:
    """fail[k]: length of the longest proper prefix of text[:k + 1] that also ends it."""
    cdef uint32_t k
    cdef uint32_t border = 0
    fail[0] = 0
    for k in range(1, length):
        while border > 0 and text[k] != text[border]:
            border = fail[border - 1]
        if text[k] == text[border]:
            border += 1
        fail[k] = border


cdef StopSet *stops_new(list strings) except NULL:
    cdef StopSet *s
    cdef Py_ssize_t n
    cdef Py_ssize_t size
    cdef Py_ssize_t i
    cdef const char *utf8
    cdef uint64_t total = 0
    cdef object string
    strings = list(strings)                    # a copy: sizes found in the first pass hold in the second
    n = len(strings)
    for string in strings:
        if not isinstance(string, str):
            raise TypeError(f"a stop string must be a str, not {type(string).__name__}")
        utf8 = PyUnicode_AsUTF8AndSize(string, &size)
        if size == 0:
            raise ValueError("a stop string must not be empty")
        total += size
    if total > 0x7FFFFFFF or n > 0x7FFFFFFF:
        raise ValueError("stop strings longer than 2 GiB together")
    # One block: the struct, three uint32 arrays, the text.
    s = <StopSet *>malloc(sizeof(StopSet) + (2 * n + total) * sizeof(uint32_t) + total + 1)
    if s is NULL:
        raise MemoryError
    s.n = 0
    s.length = <uint32_t *>(s + 1)
    s.offset = s.length + n
    s.fail = s.offset + n
    s.text = <char *>(s.fail + total)
    total = 0
    for i in range(n):
        string = strings[i]
        utf8 = PyUnicode_AsUTF8AndSize(string, &size)
        s.length[i] = <uint32_t>size
        s.offset[i] = <uint32_t>total
        memcpy(s.text + total, utf8, size)
        _fail_links(s.text + total, <uint32_t>size, s.fail + total)
        total += size
        s.n += 1
    return s


cdef void stops_free(StopSet *s) noexcept nogil:
    free(s)


cdef int stops_state_init(const StopSet *s, StopState *st) noexcept nogil:
    st.held = 0
    st.matched = <uint32_t *>calloc(s.n if s.n > 0 else 1, sizeof(uint32_t))
    return 0 if st.matched is not NULL else -1


cdef void stops_state_free(StopState *st) noexcept nogil:
    free(st.matched)
    st.matched = NULL
    st.held = 0


cdef inline StopHit _scan(
    const StopSet *s, StopState *st, const char *text, size_t n, bint armed, uint64_t *steps
) noexcept nogil:
    """stops_feed; adds the comparisons made to `steps` unless that is NULL."""
    cdef StopHit hit
    cdef uint32_t i
    cdef uint32_t k
    cdef uint32_t length
    cdef uint32_t held = 0
    cdef size_t at
    cdef const char *stop
    cdef const uint32_t *fail
    cdef const char *found
    hit.index = -1
    hit.end = 0
    for i in range(s.n):
        stop = s.text + s.offset[i]
        fail = s.fail + s.offset[i]
        length = s.length[i]
        k = st.matched[i]
        at = 0
        while at < n:                          # n shrinks at a hit: later strings win only by completing before it
            if k == 0:
                found = <const char *>memchr(text + at, stop[0], n - at)
                if steps is not NULL:
                    steps[0] += (<size_t>(found - text) if found is not NULL else n) - at + 1
                if found is NULL:
                    break
                at = <size_t>(found - text) + 1
                k = 1
            elif text[at] == stop[k]:
                if steps is not NULL:
                    steps[0] += 1
                at += 1
                k += 1
            else:
                if steps is not NULL:
                    steps[0] += 1
                k = fail[k - 1]
                continue
            if k == length:
                if armed:
                    hit.index = <int32_t>i
                    hit.end = at
                    n = at - 1
                    break
                k = fail[k - 1]
        st.matched[i] = k
        if k > held:
            held = k
    st.held = held
    return hit


cdef StopHit stops_feed(const StopSet *s, StopState *st, const char *text, size_t n, bint armed) noexcept nogil:
    return _scan(s, st, text, n, armed, NULL)


cdef class StopMatcher:
    """Stop strings over one stream, for callers in Python. One thread uses a matcher at a time.

    `push` decides what may be sent: with `min_tokens` the first that many pushed texts cannot stop the stream, and a
    match is cut off unless `include_stop`. `feed` is the C function alone.
    """

    cdef StopSet *_set
    cdef StopState _state
    cdef bint _include
    cdef Py_ssize_t _unarmed        # pushes that still cannot match
    cdef bytes _kept                # text pushed but not sent: the last `held` bytes
    cdef readonly Py_ssize_t stopped_by     # index of the stop string that ended the stream, else -1
    cdef readonly uint64_t steps            # byte comparisons so far: linear in the text

    def __cinit__(self, strings, include_stop=False, min_tokens=0):
        self._set = stops_new(list(strings))
        if stops_state_init(self._set, &self._state) < 0:
            raise MemoryError
        self._include = include_stop
        self._unarmed = min_tokens
        self._kept = b""
        self.stopped_by = -1

    def __dealloc__(self):
        stops_state_free(&self._state)
        stops_free(self._set)

    @property
    def held(self) -> int:
        """Bytes at the end of the text that can still become a stop string."""
        return self._state.held

    def feed(self, str text, bint armed=True) -> tuple[int, int]:
        """(index of the stop string that completes first or -1, byte offset in `text` just past it)."""
        cdef Py_ssize_t n
        cdef const char *utf8 = PyUnicode_AsUTF8AndSize(text, &n)
        cdef StopHit hit = _scan(self._set, &self._state, utf8, n, armed, &self.steps)
        return hit.index, hit.end

    def scan(self, bytes text, Py_ssize_t piece) -> int:
        """Feeds UTF-8 `text` in pieces of `piece` bytes without the interpreter, ignoring matches. Returns `held`."""
        cdef const char *p = text
        cdef Py_ssize_t left = len(text)
        if piece <= 0:
            raise ValueError("pieces have a positive size")
        with nogil:
            while left > 0:
                stops_feed(self._set, &self._state, p, piece if piece < left else left, False)
                p += piece
                left -= piece
        return self._state.held

    def push(self, str text) -> str:
        """The text that may be sent after `text` has arrived; once a stop string is complete, all that ever will be."""
        cdef bint armed = self._unarmed <= 0
        cdef Py_ssize_t cut
        if self.stopped_by >= 0:
            raise ValueError("the stream has stopped")
        self._unarmed -= 1
        index, end = self.feed(text, armed)
        pending = self._kept + text.encode()
        if index >= 0:
            self.stopped_by = index
            cut = len(self._kept) + end
            if not self._include:
                cut -= self._set.length[index]
            self._kept = b""
            return pending[:cut].decode()
        cut = len(pending) - self._state.held
        self._kept = pending[cut:]
        return pending[:cut].decode()

    def finish(self) -> str:
        """The held text, which no stop string can take any more."""
        kept = self._kept
        self._kept = b""
        return kept.decode()
