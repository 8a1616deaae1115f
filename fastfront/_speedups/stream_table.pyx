# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False
"""The table of a lane's streams."""
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stddef cimport size_t
from libc.stdint cimport uint16_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from fastfront._speedups.buffers cimport Buf, array_reserve, buf_free, buf_init, buf_put
from fastfront._speedups.call cimport Choice
from fastfront._speedups.msgpack_raw cimport mpw_array, mpw_str

cdef enum:
    SUFFIX = 16                 # hex digits of slot and generation at the end of a wire id
    FIRST_SLOTS = 256


cdef inline int hex_value(unsigned char c) noexcept nogil:
    if c'0' <= c <= c'9':
        return c - c'0'
    if c'a' <= c <= c'f':
        return c - c'a' + 10
    return -1


cdef bint parse_hex8(const char *s, uint32_t *v) noexcept nogil:
    cdef uint32_t x = 0
    cdef int i, d
    for i in range(8):
        d = hex_value(<unsigned char>s[i])
        if d < 0:
            return False
        x = (x << 4) | <uint32_t>d
    v[0] = x
    return True


cdef int put_hex8(Buf *b, uint32_t v) noexcept nogil:
    cdef char digits[8]
    cdef int i
    for i in range(8):
        digits[7 - i] = b"0123456789abcdef"[(v >> (4 * i)) & 15]
    return buf_put(b, digits, 8)


cdef class StreamTable:

    def __cinit__(self, *args, **kwargs):
        buf_init(&self.abort_ids)
        self.finished_engines = []

    def __dealloc__(self):
        cdef uint32_t i
        for i in range(self.n_slots):
            if self.table[i] != NULL:
                self.table[i].attached = False
        free(self.table)
        free(self.generations)
        free(self.free_slots)
        free(self.detached)
        buf_free(&self.abort_ids)

    cdef int grow(self) except -1:
        cdef uint32_t n = self.n_slots * 2 if self.n_slots else FIRST_SLOTS, i
        cdef void *p
        p = realloc(self.table, n * sizeof(Choice *))
        if p == NULL:
            raise MemoryError
        self.table = <Choice **>p
        p = realloc(self.generations, n * sizeof(uint32_t))
        if p == NULL:
            raise MemoryError
        self.generations = <uint32_t *>p
        p = realloc(self.free_slots, n * sizeof(uint32_t))
        if p == NULL:
            raise MemoryError
        self.free_slots = <uint32_t *>p
        for i in range(self.n_slots, n):
            self.table[i] = NULL
            self.generations[i] = 1
            self.free_slots[self.n_free] = i
            self.n_free += 1
        self.n_slots = n
        return 0

    cdef int reserve(self, uint32_t n) except -1:
        cdef size_t wanted
        while self.n_free < n:
            self.grow()
        wanted = self.n_detached + self.live + n        # every choice in the table has a place in `detached`
        if array_reserve(<void **>&self.detached, &self.cap_detached, wanted, sizeof(uint16_t)) < 0:
            raise MemoryError
        return 0

    cdef void enter(self, Choice *ch) noexcept nogil:
        self.n_free -= 1
        ch.slot = self.free_slots[self.n_free]
        ch.generation = self.generations[ch.slot]
        ch.attached = True
        self.table[ch.slot] = ch
        self.live += 1
        ch.prefilling = True
        ch.call.tokenless += 1
        self.prefill_tokens += ch.prompt_tokens

    cdef void prefilled(self, Choice *ch) noexcept nogil:
        if ch.prefilling:
            ch.prefilling = False
            ch.call.tokenless -= 1
            self.prefill_tokens -= ch.prompt_tokens

    cdef void detach(self, Choice *ch) noexcept nogil:
        if not ch.attached:
            return
        ch.attached = False
        self.prefilled(ch)
        self.table[ch.slot] = NULL
        self.generations[ch.slot] += 1
        self.free_slots[self.n_free] = ch.slot
        self.n_free += 1
        self.live -= 1
        self.detached[self.n_detached] = ch.engine
        self.n_detached += 1

    cdef Choice *find(self, const char *id, uint32_t n) noexcept nogil:
        cdef uint32_t slot, generation
        if n < SUFFIX or not parse_hex8(id + n - 16, &slot) or not parse_hex8(id + n - 8, &generation):
            return NULL
        if slot >= self.n_slots or self.table[slot] == NULL or self.generations[slot] != generation:
            return NULL
        return self.table[slot]

    cdef int abort(self, const Choice *ch) noexcept nogil:
        cdef uint32_t n = <uint32_t>ch.wire_id.len
        cdef int r = buf_put(&self.abort_ids, <const char *>&ch.engine, 2)
        r |= buf_put(&self.abort_ids, <const char *>&n, 4)
        return r | buf_put(&self.abort_ids, ch.wire_id.data, n)

    cdef int settle_detached(self) except -1:
        cdef size_t i
        for i in range(self.n_detached):
            self.finished_engines.append(self.detached[i])
        self.n_detached = 0
        return 0

    def take_aborts(self):
        """[(engine index, ABORT payload)] for requests that engines must stop, each given once."""
        cdef size_t at = 0
        cdef uint16_t engine
        cdef uint32_t n
        cdef Buf message
        cdef dict by_engine = {}
        cdef list out = [], ids
        if self.abort_ids.len == 0:
            return out
        while at < self.abort_ids.len:
            memcpy(&engine, self.abort_ids.data + at, 2)
            memcpy(&n, self.abort_ids.data + at + 2, 4)
            by_engine.setdefault(engine, []).append(PyBytes_FromStringAndSize(self.abort_ids.data + at + 6, n))
            at += 6 + n
        self.abort_ids.len = 0
        for key, ids in by_engine.items():
            buf_init(&message)
            mpw_array(&message, <uint32_t>len(ids))
            for id in ids:
                mpw_str(&message, <bytes>id, <uint32_t>len(<bytes>id))
            out.append((key, PyBytes_FromStringAndSize(message.data, message.len)))
            buf_free(&message)
        return out
