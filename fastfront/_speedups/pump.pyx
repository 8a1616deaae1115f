# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False
"""The pump: takes one engine message and drives all its streams.

First the whole message is decoded, detokenized, checked for stop strings and encoded without the GIL, into one buffer and a
list of events; then every event is one call of granian's send. One lane thread owns a Pump and everything attached to it.
"""
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_TYPE
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy, memmove
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from fastfront._speedups.buffers cimport Buf, buf_byte, buf_free, buf_init, buf_int, buf_put
from fastfront._speedups.call cimport (
    FINISH_ERROR, FINISH_NONE, FINISH_REPETITION, FINISH_STOP, REASON_NULL, REASON_REPETITION, REASON_STRING, REASON_TOKEN,
    Call, CallC, Choice, call_release,
)
from fastfront._speedups.detokenizer cimport detok_feed, detok_flush
from fastfront._speedups.logprobs cimport (
    Frames, LogprobRows, chat_entry, completion_entry, completion_first, context_add, logprobs_id, logprobs_parse, prompt_logprobs_put,
)
from fastfront._speedups.msgpack cimport (
    MP_INT, MP_NIL, MP_STR, Cursor, mp_array, mp_float, mp_int, mp_map, mp_nil, mp_peek, mp_skip, mp_str, mpw_array, mpw_str,
)
from fastfront._speedups.sse cimport json_body, sse_delta, sse_end, sse_role
from fastfront._speedups.stop_matcher cimport StopHit, stops_feed
from fastfront._speedups.vocabulary cimport Vocabulary


cdef extern from "Python.h":
    PyObject *PyObject_CallOneArg(PyObject *callable, PyObject *arg) except NULL
    void Py_DecRef(PyObject *)


cdef enum EventKind:
    EVENT_SEND          # bytes of a stream
    EVENT_LAST          # the last bytes of a stream
    EVENT_BODY          # the whole answer of a call that does not stream
    EVENT_FAIL          # the call failed; `at` is its ErrorCode
    EVENT_PIECE         # text of one choice for a call's sink
    EVENT_LAST_PIECE    # the same, and all choices have finished


cdef enum:
    SUFFIX = 16         # hex digits of slot and generation at the end of a wire id
    OUTPUT_ERROR = 18   # place of the `error` map in an output (vLLM 0.33)


cpdef enum ErrorCode:
    ERROR_INTERNAL = 0          # the engine finished the request with an error, or its output could not be read
    ERROR_VALIDATION = 1        # the engine refused the request as invalid
    ERROR_PAUSED = 2            # the engine is paused; the request may be tried again
    ERROR_ENGINE_DEAD = 3       # the engine has gone


cdef struct Piece:              # of EVENT_PIECE: what its choice was like then; text at `at`, then ids, then logprobs
    uint32_t index
    size_t n_ids
    size_t n_logprobs
    uint32_t completion_tokens
    int finish
    int reason
    uint32_t stop_index
    int64_t stop_token


cdef struct Event:
    CallC *call
    size_t at
    size_t n
    uint8_t kind
    Piece piece


FINISH_NAMES = ("stop", "length", "abort", "error", "repetition")     # by Finish


class EngineMessageError(ValueError):
    """A message of an engine does not follow the wire protocol."""


cdef inline double monotonic() noexcept nogil:
    cdef timespec t
    clock_gettime(CLOCK_MONOTONIC, &t)
    return t.tv_sec + t.tv_nsec * 1e-9


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


cdef class Pump:
    """Streams of one lane. `fail_body(code, message)` gives (status, headers, body) of a failed answer, `fail_event(code,
    message)` the last bytes of a failed stream; `sse_headers` and `json_headers` are lists of (name, value) pairs."""
    cdef Vocabulary vocabulary
    cdef Choice **table                 # n_slots places; NULL: free
    cdef uint32_t *generations          # of every slot, counted up when it is freed
    cdef uint32_t *free_slots
    cdef uint32_t n_slots, n_free
    cdef Event *events
    cdef size_t n_events, cap_events
    cdef Buf out                        # bytes of the events of the message at hand
    cdef Buf abort_ids                  # requests the engines must stop: uint16 engine, uint32 length, id; and so on
    cdef Buf scratch                    # text of one token, for logprob entries
    cdef Frames frames                  # what follows the message at hand; borrowed from feed's arguments
    cdef Buf fail_message               # of the newest EVENT_FAIL, UTF-8
    cdef object fail_body, fail_event, sse_headers, json_headers
    cdef PyObject *ok_type              # type of what send returns while the client is there
    cdef double now                     # when the message at hand came (monotonic s)
    cdef readonly uint64_t tokens       # tokens taken from engines for live streams
    cdef readonly uint64_t sends        # events handed to granian
    cdef readonly uint64_t overrun      # tokens dropped behind a stop string
    cdef readonly uint64_t malformed    # outputs that could not be read; their requests failed
    cdef readonly uint64_t prompt_tokens
    cdef readonly uint64_t requests[5]  # finished choices by Finish
    cdef readonly uint32_t live         # choices attached now
    cdef list gone                      # calls given up while a message's events are sent
    cdef readonly list errors           # exceptions of calls' Python; the lane logs and empties it
    cdef readonly list finished_engines # engine index of every choice detached by feed/cancel/fail; the lane empties it
    cdef uint16_t *detached             # the same, while the GIL is not held
    cdef size_t n_detached, cap_detached

    def __cinit__(self):
        buf_init(&self.out)
        buf_init(&self.abort_ids)
        buf_init(&self.fail_message)
        buf_init(&self.scratch)

    def __init__(self, Vocabulary vocabulary not None, object fail_body, object fail_event, list sse_headers, list json_headers):
        self.vocabulary = vocabulary
        self.fail_body = fail_body
        self.fail_event = fail_event
        self.sse_headers = sse_headers
        self.json_headers = json_headers
        self.finished_engines = []
        self.gone = []
        self.errors = []

    def __dealloc__(self):
        cdef uint32_t i
        for i in range(self.n_slots):
            if self.table[i] != NULL:
                self.table[i].attached = False
        free(self.table)
        free(self.generations)
        free(self.free_slots)
        free(self.events)
        free(self.detached)
        buf_free(&self.out)
        buf_free(&self.abort_ids)
        buf_free(&self.fail_message)
        buf_free(&self.scratch)
        free(self.frames.data)
        free(self.frames.size)

    # ---- table -------------------------------------------------------------------------------------------------------

    cdef int grow(self) except -1:
        cdef uint32_t n = self.n_slots * 2 if self.n_slots else 256, i
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
        for i in range(n - 1, self.n_slots - 1 if self.n_slots else -1, -1):
            self.table[i] = NULL
            self.generations[i] = 1
            self.free_slots[self.n_free] = i
            self.n_free += 1
        self.n_slots = n
        return 0

    cdef int detach(self, Choice *ch) noexcept nogil:
        """Takes a choice out of the table. Every slot's place in `detached` was reserved by attach."""
        if not ch.attached:
            return 0
        ch.attached = False
        self.table[ch.slot] = NULL
        self.generations[ch.slot] += 1
        self.free_slots[self.n_free] = ch.slot
        self.n_free += 1
        self.live -= 1
        self.detached[self.n_detached] = ch.engine
        self.n_detached += 1
        return 0

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

    def attach(self, Call call not None):
        """Takes the call into the table. Returns [(engine index, ADD payload)] for the wire, one per choice."""
        cdef CallC *c = &call.c
        cdef Choice *ch
        cdef uint32_t i
        cdef Buf message
        cdef list adds = []
        cdef void *p
        if c.ended or c.choices == NULL:
            raise ValueError("the call has ended")
        while self.n_free < c.n_choices:
            self.grow()
        if self.n_detached + self.live + c.n_choices > self.cap_detached:
            self.cap_detached = 2 * (self.n_detached + self.live + c.n_choices) + 256
            p = realloc(self.detached, self.cap_detached * sizeof(uint16_t))
            if p == NULL:
                raise MemoryError
            self.detached = <uint16_t *>p
        Py_INCREF(call)
        c.sent_at = monotonic()
        for i in range(c.n_choices):
            ch = &c.choices[i]
            self.n_free -= 1
            ch.slot = self.free_slots[self.n_free]
            ch.generation = self.generations[ch.slot]
            ch.attached = True
            self.table[ch.slot] = ch
            self.live += 1
            if c.n_choices > 1:
                buf_int(&ch.wire_id, i)
                buf_byte(&ch.wire_id, c'_')
            name = call.external_id.encode()
            buf_put(&ch.wire_id, name, len(name))
            buf_byte(&ch.wire_id, c'-')
            put_hex8(&ch.wire_id, ch.slot)
            if put_hex8(&ch.wire_id, ch.generation) < 0:
                raise MemoryError
            buf_init(&message)
            mpw_array(&message, 22)
            mpw_str(&message, ch.wire_id.data, <uint32_t>ch.wire_id.len)
            if buf_put(&message, ch.add.data, ch.add.len) < 0:
                buf_free(&message)
                raise MemoryError
            adds.append((ch.engine, PyBytes_FromStringAndSize(message.data, message.len)))
            buf_free(&message)
            buf_free(&ch.add)
        self.prompt_tokens += c.prompt_tokens
        return adds

    # ---- one message -------------------------------------------------------------------------------------------------

    cdef int event(self, CallC *c, uint8_t kind, size_t at) noexcept nogil:
        """Notes the bytes from `at` to the end of `out`; joins them to the event before if that is the same call's."""
        cdef Event *e
        cdef void *p
        if self.n_events and (kind == EVENT_SEND or kind == EVENT_LAST):
            e = &self.events[self.n_events - 1]
            if e.call == c and e.kind == EVENT_SEND and e.at + e.n == at:
                e.n = self.out.len - e.at
                e.kind = kind
                return 0
        if self.n_events == self.cap_events:
            p = realloc(self.events, (2 * self.cap_events + 256) * sizeof(Event))
            if p == NULL:
                return -1
            self.events = <Event *>p
            self.cap_events = 2 * self.cap_events + 256
        e = &self.events[self.n_events]
        self.n_events += 1
        e.call = c
        e.kind = kind
        e.at = at
        e.n = self.out.len - at if kind != EVENT_FAIL else 0
        return 0

    cdef int fail(self, CallC *c, size_t code) noexcept nogil:
        """Ends a call with an error; its other choices are aborted."""
        cdef uint32_t i
        cdef int r = 0
        if c.ended:
            return 0
        c.ended = True
        for i in range(c.n_choices):
            if c.choices[i].attached:
                if not c.choices[i].finished and code != ERROR_ENGINE_DEAD:
                    r |= self.abort(&c.choices[i])
                self.detach(&c.choices[i])
        self.requests[<int>FINISH_ERROR] += c.remaining
        return r | self.event(c, EVENT_FAIL, code)

    cdef int stop_at(self, CallC *c, Choice *ch, StopHit hit, size_t start) noexcept nogil:
        cdef size_t end = start + hit.end
        ch.text.len = end if c.include_stop else end - c.stops.length[hit.index]
        ch.finish = FINISH_STOP
        ch.reason = REASON_STRING
        ch.stop_index = <uint32_t>hit.index
        return 0

    cdef int take_logprobs(self, CallC *c, Choice *ch, const LogprobRows *rows, uint32_t row, int64_t id) noexcept nogil:
        cdef int r
        if c.chat:
            r = buf_byte(&ch.logprobs, c',') if ch.logprobs.len else 0
            r |= chat_entry(&ch.logprobs, self.vocabulary, rows, row, &ch.context, c.top, c.tokens_as_ids, &self.scratch)
        else:
            r = completion_entry(
                &ch.lists, self.vocabulary, rows, row, &ch.context, c.top, c.tokens_as_ids, &self.scratch)
        context_add(&ch.context, id)
        return r

    cdef int take_prompt_logprobs(self, CallC *c, Choice *ch, const LogprobRows *rows) noexcept nogil:
        """Prompt logprobs come once, with a choice's first tokens."""
        cdef uint32_t row
        cdef int64_t id
        cdef int r = 0
        if ch.prompt_logprobs.len or ch.completion_tokens:
            return 0
        if not c.stream:
            r |= prompt_logprobs_put(
                &ch.prompt_logprobs, self.vocabulary, rows, ch.first_prompt_id, c.prompt_top, c.tokens_as_ids, &self.scratch)
        if c.echo_logprobs and not c.chat and ch.lists.offsets.len == 0:
            ch.context.n = 0
            r |= completion_first(&ch.lists, self.vocabulary, ch.first_prompt_id, c.tokens_as_ids, &self.scratch)
            id = ch.first_prompt_id
            for row in range(rows.rows):
                context_add(&ch.context, id)
                r |= completion_entry(
                    &ch.lists, self.vocabulary, rows, row, &ch.context, c.prompt_top, c.tokens_as_ids, &self.scratch)
                id = logprobs_id(rows, row)
            context_add(&ch.context, id)
        return r

    cdef int take_tokens(
        self, CallC *c, Choice *ch, Cursor *ids, uint32_t n, int finish, const LogprobRows *rows
    ) noexcept nogil:
        """Adds n tokens to a choice. 1: a stop string completed, 0: none, -1: memory, -2: not token ids."""
        cdef uint32_t k
        cdef int64_t id
        cdef size_t start
        cdef StopHit hit
        for k in range(n):
            if mp_int(ids, &id) < 0:
                if mp_peek(ids) != MP_INT or mp_skip(ids, 1) < 0:
                    return -2
                id = -1                                         # beyond 64 bits: decodes to nothing, as any unknown id
            ch.completion_tokens += 1
            self.tokens += 1
            if c.return_ids:
                if (ch.ids.len and buf_byte(&ch.ids, c',') < 0) or buf_int(&ch.ids, id) < 0:
                    return -1
            if rows != NULL and k < rows.rows and not c.hide_output and self.take_logprobs(c, ch, rows, k, id) < 0:
                return -1
            if c.hide_output or (k == n - 1 and finish == FINISH_STOP and not c.include_stop):
                continue
            start = ch.text.len
            if detok_feed(self.vocabulary, &ch.detok, id, &ch.text) < 0:
                return -1
            if c.stops != NULL and ch.text.len > start:
                hit = stops_feed(c.stops, &ch.stop, ch.text.data + start, ch.text.len - start, ch.completion_tokens > ch.min_tokens)
                if hit.index >= 0:
                    self.stop_at(c, ch, hit, start)
                    self.overrun += n - 1 - k
                    return 1
        if finish == FINISH_NONE or c.hide_output:
            return 0
        start = ch.text.len
        if detok_flush(self.vocabulary, &ch.detok, False, &ch.text) < 0:
            return -1
        if c.stops != NULL and ch.text.len > start:
            hit = stops_feed(c.stops, &ch.stop, ch.text.data + start, ch.text.len - start, ch.completion_tokens > ch.min_tokens)
            if hit.index >= 0:
                self.stop_at(c, ch, hit, start)
                return 1
        return 0

    cdef int answer(self, CallC *c, Choice *ch) noexcept nogil:
        """Encodes what is new of a choice."""
        cdef size_t at = self.out.len, held, n
        cdef uint32_t i
        cdef int r = 0
        if c.has_sink:
            return self.give_piece(c, ch)
        if not c.stream:
            if c.remaining:
                return 0
            c.ended = True
            return json_body(&self.out, c) | self.event(c, EVENT_BODY, at)
        c.sent_at = self.now
        if not c.started:
            c.started = True
            if c.chat:
                for i in range(c.n_choices):
                    r |= sse_role(&self.out, c, &c.choices[i])
        held = 0 if ch.finished or c.include_stop or c.stops == NULL else ch.stop.held
        n = ch.text.len - held
        r |= sse_delta(&self.out, c, ch, ch.text.data, n)
        if held and n:
            memmove(ch.text.data, ch.text.data + n, held)
        ch.text.len = held
        if c.remaining:
            return r | self.event(c, EVENT_SEND, at)
        c.ended = True
        r |= sse_end(&self.out, c)
        return r | self.event(c, EVENT_LAST, at)

    cdef int give_piece(self, CallC *c, Choice *ch) noexcept nogil:
        """Notes what is new of a choice for the call's sink."""
        cdef size_t at = self.out.len
        cdef size_t held = 0 if ch.finished or c.include_stop or c.stops == NULL else ch.stop.held
        cdef size_t n = ch.text.len - held
        cdef Event *e
        cdef int r = buf_put(&self.out, ch.text.data, n)
        c.sent_at = self.now
        c.started = True
        c.ended = c.remaining == 0
        r |= buf_put(&self.out, ch.ids.data, ch.ids.len)
        r |= buf_put(&self.out, ch.logprobs.data, ch.logprobs.len)
        r |= self.event(c, EVENT_LAST_PIECE if c.ended else EVENT_PIECE, at)
        if r < 0:
            return -1
        e = &self.events[self.n_events - 1]
        e.n = n
        e.piece.index = ch.index
        e.piece.n_ids = ch.ids.len
        e.piece.n_logprobs = ch.logprobs.len
        e.piece.completion_tokens = ch.completion_tokens
        e.piece.finish = ch.finish if ch.finished else FINISH_NONE
        e.piece.reason = ch.reason
        e.piece.stop_index = ch.stop_index
        e.piece.stop_token = ch.stop_token
        if held and n:
            memmove(ch.text.data, ch.text.data + n, held)
        ch.text.len = held
        ch.ids.len = 0
        ch.logprobs.len = 0
        return 0

    cdef int read_error(self, Cursor *c, size_t *code) noexcept nogil:
        """The `error` map of an output: sets the code and fail_message. -1 if it is not such a map."""
        cdef uint32_t pairs, n, m, k
        cdef const char *key
        cdef const char *value
        if mp_map(c, &pairs) < 0:
            return -1
        for k in range(pairs):
            if mp_str(c, &key, &n) < 0:
                return -1
            if mp_peek(c) != MP_STR:
                if mp_skip(c, 1) < 0:
                    return -1
                continue
            if mp_str(c, &value, &m) < 0:
                return -1
            if n == 4 and memcmp(key, b"code", 4) == 0:
                if m == 16 and memcmp(value, b"validation_error", 16) == 0:
                    code[0] = ERROR_VALIDATION
                elif m == 13 and memcmp(value, b"engine_paused", 13) == 0:
                    code[0] = ERROR_PAUSED
            elif n == 7 and memcmp(key, b"message", 7) == 0:
                self.fail_message.len = 0
                if buf_put(&self.fail_message, value, m) < 0:
                    return -1
        return 0

    cdef int take_output(self, Cursor *o) noexcept nogil:
        """One EngineCoreOutput. 0, -1: memory, -2: the output itself is malformed (its request, if known, has failed)."""
        cdef uint32_t n, n_ids, id_len, k
        cdef const char *id
        cdef const char *reason
        cdef Cursor ids
        cdef Choice *ch
        cdef CallC *c
        cdef int64_t v
        cdef int64_t finish = FINISH_NONE, stop_token = -1
        cdef int stop_kind = REASON_NULL, hit
        cdef size_t code = ERROR_INTERNAL
        cdef LogprobRows rows, prompt_rows
        cdef bint has_rows = False
        if mp_array(o, &n) < 0 or n < 2 or mp_str(o, &id, &id_len) < 0:
            return -2
        ch = self.find(id, id_len)
        if ch == NULL:
            return 0
        c = ch.call
        if mp_array(o, &n_ids) < 0:
            return self.fail(c, ERROR_INTERNAL) | -2
        ids = o[0]
        if mp_skip(o, n_ids) < 0:
            return self.fail(c, ERROR_INTERNAL) | -2
        if n > 5:
            if c.wants_logprobs and mp_peek(o) != MP_NIL:
                if logprobs_parse(o, &self.frames, &rows) < 0:
                    return self.fail(c, ERROR_INTERNAL) | -2
                has_rows = True
            elif mp_skip(o, 1) < 0:
                return self.fail(c, ERROR_INTERNAL) | -2
            if mp_peek(o) != MP_NIL and logprobs_parse(o, &self.frames, &prompt_rows) == 0:
                if self.take_prompt_logprobs(c, ch, &prompt_rows) < 0:
                    return -1
            elif mp_peek(o) != MP_NIL or not mp_nil(o):
                return self.fail(c, ERROR_INTERNAL) | -2
            if mp_skip(o, 1) < 0 or (not mp_nil(o) and (mp_int(o, &finish) < 0 or finish < 0 or finish > FINISH_REPETITION)):
                return self.fail(c, ERROR_INTERNAL) | -2
        if n > 6 and not mp_nil(o):
            if mp_peek(o) == MP_INT and mp_int(o, &stop_token) == 0:
                stop_kind = REASON_TOKEN
            elif mp_str(o, &reason, &k) == 0:
                stop_kind = REASON_REPETITION if finish == FINISH_REPETITION else REASON_NULL
            else:
                return self.fail(c, ERROR_INTERNAL) | -2
        if finish == FINISH_ERROR:
            self.fail_message.len = 0
            if n > OUTPUT_ERROR and (mp_skip(o, OUTPUT_ERROR - 7) < 0 or (not mp_nil(o) and self.read_error(o, &code) < 0)):
                code = ERROR_INTERNAL
            self.detach(ch)
            return self.fail(c, code)
        hit = self.take_tokens(c, ch, &ids, n_ids, <int>finish, &rows if has_rows else NULL)
        if hit < 0:
            if hit == -1:
                return -1
            return self.fail(c, ERROR_INTERNAL) | -2
        if hit == 0:
            ch.finish = <int>finish
            ch.reason = <uint8_t>stop_kind
            ch.stop_token = stop_token
        if hit or finish != FINISH_NONE:
            ch.finished = True
            c.remaining -= 1
            c.completion_tokens += ch.completion_tokens
            self.requests[ch.finish] += 1
            if finish == FINISH_NONE and self.abort(ch) < 0:
                return -1
            self.detach(ch)
        elif n_ids == 0:
            return 0
        return self.answer(c, ch)

    cdef int take_message(self, const unsigned char *data, size_t size, int64_t *engine, Cursor *rest) noexcept nogil:
        """All outputs of one message; `rest` is left behind them. 0, -1: memory, -2: malformed."""
        cdef Cursor c, o
        cdef uint32_t n, n_outputs, k
        cdef int r
        c.p = data
        c.end = data + size
        engine[0] = 0
        if mp_array(&c, &n) < 0:
            return -2
        if n > 0 and mp_int(&c, engine) < 0:
            return -2
        if n > 1:
            if mp_array(&c, &n_outputs) < 0:
                return -2
            for k in range(n_outputs):
                o.p = c.p
                if mp_skip(&c, 1) < 0:
                    return -2
                o.end = c.p
                r = self.take_output(&o)
                if r == -1:
                    return -1
                if r < 0:
                    self.malformed += 1
        rest[0] = c
        return 0

    cdef int set_frames(self, list aux) except -1:
        """Notes where the frames behind the message lie; `aux` keeps them alive."""
        cdef size_t n = len(aux), k
        cdef const unsigned char[::1] view
        cdef void *p
        p = realloc(self.frames.data, (n + 1) * sizeof(void *))
        if p == NULL:
            raise MemoryError
        self.frames.data = <const unsigned char **>p
        p = realloc(self.frames.size, (n + 1) * sizeof(size_t))
        if p == NULL:
            raise MemoryError
        self.frames.size = <size_t *>p
        for k in range(n):
            view = aux[k]
            self.frames.data[k] = &view[0] if view.shape[0] else NULL
            self.frames.size[k] = view.shape[0]
        self.frames.n = n
        return 0

    def feed(self, const unsigned char[::1] message not None, list aux=None):
        """Takes one EngineCoreOutputs message, with the frames `aux` that follow it, and answers its streams.

        Returns (engine index, rest): `rest` is None, or the bytes from scheduler_stats on when there is any. Raises
        EngineMessageError for a malformed message; what stood before the fault has been answered.
        """
        cdef int64_t engine = 0
        cdef Cursor rest
        cdef int r
        cdef size_t size = message.shape[0]
        cdef const unsigned char *data
        if size == 0:
            raise EngineMessageError("empty message")
        data = &message[0]
        self.now = monotonic()
        rest.p = data
        rest.end = data
        self.frames.n = 0
        if aux:
            self.set_frames(aux)
        with nogil:
            r = self.take_message(data, size, &engine, &rest)
        self.flush()
        if r == -1:
            raise MemoryError
        if r < 0:
            raise EngineMessageError("not an EngineCoreOutputs message")
        if rest.p >= rest.end or rest.p[0] == 0xC0 and self.plain_rest(&rest):
            return engine, None
        return engine, PyBytes_FromStringAndSize(<const char *>rest.p, rest.end - rest.p)

    cdef bint plain_rest(self, Cursor *rest) noexcept nogil:
        """True if there are no scheduler stats, utility output or finished requests behind the outputs."""
        cdef Cursor c = rest[0]
        cdef double timestamp
        if not mp_nil(&c):
            return False
        if c.p >= c.end:
            return True
        if mp_float(&c, &timestamp) < 0:
            return False
        while c.p < c.end:
            if not mp_nil(&c):
                return False
        return True

    # ---- with the GIL (or thread state) ------------------------------------------------------------------------------

    def ping(self, bytes comment not None, double silent_s):
        """Writes an SSE comment to every stream that has been silent for `silent_s` seconds, opening it if need be."""
        cdef double now = monotonic()
        cdef uint32_t i
        cdef Call call
        cdef list gone = []
        for i in range(self.n_slots):
            if self.table[i] == NULL or not self.table[i].call.stream or now - self.table[i].call.sent_at < silent_s:
                continue
            call = <Call>self.table[i].call.owner
            call.c.sent_at = now
            if not self.deliver(call, comment, len(comment)):
                gone.append(call)
        for call in gone:
            self.cancel(call)

    cdef bint deliver(self, Call call, const char *data, size_t n) except -1:
        """Hands bytes of a stream to granian, opening it first if needed. False: the client has gone."""
        cdef PyObject *result
        cdef bint ok
        cdef bytes piece = PyBytes_FromStringAndSize(data, n)
        if call.send is None:
            call.transport = call.protocol.response_stream(
                200, self.sse_headers if call.headers is None else self.sse_headers + call.headers)
            call.send = call.transport.send_bytes
        result = PyObject_CallOneArg(<PyObject *>call.send, <PyObject *>piece)
        self.sends += 1
        ok = <PyObject *>Py_TYPE(<object>result) == self.ok_type
        if not ok:
            ok = "Err" not in type(<object>result).__name__
            if ok:
                self.ok_type = <PyObject *>Py_TYPE(<object>result)
        Py_DecRef(result)
        return ok

    cdef int finish_call(self, Call call) except -1:
        """The call is over: gives everything back, once. Runs Python (on_end)."""
        if call.c.choices == NULL:
            return 0
        call.send = None
        call.transport = None
        on_end = call.on_end
        call.on_end = None
        if on_end is not None:
            on_end(call)
        call.protocol = None
        call_release(&call.c)
        Py_DECREF(call)
        return 0

    cdef int give_up(self, Call call) except -1:
        """The client has gone: aborts what is still running."""
        cdef uint32_t i
        cdef CallC *c = &call.c
        c.ended = True
        for i in range(c.n_choices):
            if c.choices[i].attached:
                if self.abort(&c.choices[i]) < 0:
                    raise MemoryError
                self.detach(&c.choices[i])
        self.requests[2] += c.remaining
        c.remaining = 0
        return 0

    cdef int flush(self) except -1:
        """Sends the events of the message at hand. An exception in one call's Python ends that call and goes to `errors`."""
        cdef size_t i
        cdef Event *e
        cdef Call call
        cdef list over = None
        for i in range(self.n_events):
            e = &self.events[i]
            call = <Call>e.call.owner
            if self.gone and call in self.gone:
                continue
            try:
                if e.kind == EVENT_SEND or e.kind == EVENT_LAST:
                    if not self.deliver(call, self.out.data + e.at, e.n) and e.kind == EVENT_SEND:
                        self.gone.append(call)
                        if not call.c.ended:
                            self.give_up(call)
                elif e.kind == EVENT_BODY:
                    call.protocol.response_bytes(
                        200, self.json_headers if call.headers is None else self.json_headers + call.headers,
                        PyBytes_FromStringAndSize(self.out.data + e.at, e.n))
                    self.sends += 1
                elif e.kind == EVENT_FAIL:
                    self.send_failure(call, e.at)
                else:
                    self.take_piece(call, e)
            except Exception as exc:
                self.errors.append(exc)
                self.gone.append(call)
                self.break_off(call)
            if e.kind != EVENT_SEND and e.kind != EVENT_PIECE:
                over = over or []
                over.append(call)
        self.n_events = 0
        self.out.len = 0
        if self.gone:
            over = (over or []) + self.gone
            self.gone = []
        if over is not None:
            for call in over:
                self.finish_call(call)
        if self.n_detached:
            for i in range(self.n_detached):
                self.finished_engines.append(self.detached[i])
            self.n_detached = 0
        return 0

    cdef int take_piece(self, Call call, Event *e) except -1:
        """Gives a piece to the call's sink and sends what it makes of it."""
        cdef const char *data = self.out.data + e.at
        cdef bytes made
        cdef Piece *p = &e.piece
        reason = None
        if p.finish != FINISH_NONE:
            if p.reason == REASON_TOKEN:
                reason = p.stop_token
            elif p.reason == REASON_STRING:
                reason = PyBytes_FromStringAndSize(
                    call.c.stops.text + call.c.stops.offset[p.stop_index], call.c.stops.length[p.stop_index]).decode()
            elif p.reason == REASON_REPETITION:
                reason = "repetition_detected"
        made = call.sink.add(
            p.index,
            PyBytes_FromStringAndSize(data, e.n).decode(),
            PyBytes_FromStringAndSize(data + e.n, p.n_ids),
            PyBytes_FromStringAndSize(data + e.n + p.n_ids, p.n_logprobs),
            FINISH_NAMES[p.finish] if p.finish != FINISH_NONE else None,
            reason,
            p.completion_tokens,
        )
        if e.kind == EVENT_LAST_PIECE:
            made = made + call.sink.end(call.c.prompt_tokens, call.c.completion_tokens)
            if not call.c.stream:
                call.protocol.response_bytes(
                    200, self.json_headers if call.headers is None else self.json_headers + call.headers, made)
                return 0
        if made and call.c.stream and not self.deliver(call, made, len(made)) and e.kind == EVENT_PIECE:
            self.gone.append(call)
            if not call.c.ended:
                self.give_up(call)
        return 0

    cdef int break_off(self, Call call) except -1:
        """The Python of a call's answer failed: tells the client, aborts what is still running."""
        if not call.c.ended:
            self.give_up(call)
        self.fail_message.len = 0
        try:
            self.send_failure(call, ERROR_INTERNAL)
        except Exception:
            pass
        return 0

    cdef int send_failure(self, Call call, int code) except -1:
        message = PyBytes_FromStringAndSize(self.fail_message.data, self.fail_message.len).decode("utf-8", "replace")
        if call.send is not None:
            call.send((self.fail_event if call.sink is None else call.sink.failure_event)(code, message))
            self.sends += 1
            return 0
        status, headers, body = (self.fail_body if call.sink is None else call.sink.failure_answer)(code, message)
        if call.headers is not None:
            headers = headers + call.headers
        call.protocol.response_bytes(status, headers, body)
        return 0

    def cancel(self, Call call not None):
        """The client has gone: aborts the call's requests. Does nothing for a call that has ended."""
        if call.c.ended or call.c.choices == NULL:
            return
        self.give_up(call)
        self.finish_call(call)
        self.flush()

    def fail_call(self, Call call not None, int code, str message):
        """Ends an attached call with an error."""
        text = message.encode()
        self.fail_message.len = 0
        buf_put(&self.fail_message, text, len(text))
        self.fail(&call.c, code)
        self.flush()

    def fail_engine(self, int engine, str message):
        """An engine has gone (-1: all): fails every call with a choice there. Returns how many calls failed."""
        cdef uint32_t i
        cdef int failed = 0
        text = message.encode()
        self.fail_message.len = 0
        buf_put(&self.fail_message, text, len(text))
        for i in range(self.n_slots):
            if self.table[i] != NULL and (engine < 0 or self.table[i].engine == engine):
                self.fail(self.table[i].call, ERROR_ENGINE_DEAD)
                failed += 1
        self.flush()
        return failed

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
