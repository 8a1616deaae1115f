# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False
"""The pump: takes one engine message and drives all its streams.

First the whole message is decoded, detokenized, checked for stop strings and encoded without the GIL, into one buffer and a
list of events, each of which is then written to its connection, or handed to granian. One lane thread owns a Pump and
everything attached to it.
"""
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_TYPE, Py_XDECREF
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy, memmove

from fastfront._speedups.buffers cimport Buf, buf_byte, buf_free, buf_init, buf_int, buf_put
from fastfront._speedups.call cimport Call, CallC, Choice, call_release
from fastfront._speedups.clocks cimport monotonic, unix_time
from fastfront._speedups.counters cimport Counters
from fastfront._speedups.detokenizer cimport detok_feed, detok_flush
from fastfront._speedups.engine_sockets cimport EngineSockets, Peer
from fastfront._speedups.histograms cimport LANE_EVENT_TOKENS, LANE_LAG, observe
from fastfront._speedups.http_connection cimport PIECE_LAST, PIECE_MORE, Conn, conn_send
from fastfront._speedups.http_request cimport HttpStream
from fastfront._speedups.logprobs cimport (
    Frames, LogprobRows, chat_entry, completion_entry, completion_first, context_add, logprobs_id, prompt_logprobs_put,
)
from fastfront._speedups.msgpack cimport (
    MP_INT, MP_MAP, MP_NIL, Cursor, mp_array, mp_float, mp_int, mp_nil, mp_peek, mp_skip, mp_str, mpw_array, mpw_str,
)
from fastfront._speedups.output cimport (
    ERROR_ENGINE_DEAD, ERROR_INTERNAL, FINISH_ABORT, FINISH_ERROR, FINISH_NONE, FINISH_STOP, REASON_REPETITION, REASON_STRING, REASON_TOKEN,
    Output, Progress, output_progress, output_read,
)
from fastfront._speedups.scheduler_stats cimport SchedulerStats, scheduler_stats_read
from fastfront._speedups.sse cimport json_body, put_metrics, sse_delta, sse_end, sse_role
from fastfront._speedups.stop_matcher cimport StopHit, stops_feed
from fastfront._speedups.stream_table cimport StreamTable, put_hex8
from fastfront._speedups.vocabulary cimport Vocabulary
from fastfront._speedups.zmtp cimport zmtp_frame, zmtp_release


cdef extern from * nogil:
    void __builtin_prefetch(const void *, ...)


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
    bint sent           # written to the call's connection
    bint failed         # the client has gone
    PyObject *drop      # to be released
    size_t at
    size_t n
    uint8_t kind
    Piece piece


cdef struct Taken:              # an engine's message, decoded
    int result                  # 0, or -1: memory, -2: malformed, LEAVING
    int64_t engine
    Cursor rest                 # what follows the outputs
    bint looked_at              # Python is to see `rest`


cdef enum:
    LEAVING = 1
    SENTINEL_BYTES = 16

cdef const char *SENTINEL = b"ENGINE_CORE_DEAD"
ANSWERED, MALFORMED, DEAD = range(3)        # what `Pump.run` has met
FINISH_NAMES = ("stop", "length", "abort", "error", "repetition")     # by Finish


cdef struct Place:              # where an output begins, and whose it is; NULL: nobody's that is here
    const unsigned char *p
    Choice *choice


cdef enum:
    LINE = 64                   # bytes of a cache line
    AHEAD = 6                   # outputs between asking for a stream's call and using it,
    NEAR = 3                    # and for what the call points to


cdef inline void prefetch(const void *p, size_t n) noexcept nogil:
    cdef size_t at = 0
    while at < n:
        __builtin_prefetch(<const char *>p + at)
        at += LINE


cdef inline void prefetch_choice(const Choice *ch) noexcept nogil:
    if ch != NULL:
        prefetch(ch, <size_t>&(<Choice *>NULL).echo)      # what lies behind is seldom used


cdef inline void prefetch_call(const Choice *ch) noexcept nogil:
    """What a choice that is at hand points to."""
    if ch != NULL:
        prefetch(ch.call, sizeof(CallC))
        prefetch(ch.text.data, LINE)
        prefetch(ch.stop.matched, LINE)


cdef inline void prefetch_head(const Choice *ch) noexcept nogil:
    """What a call that is at hand points to."""
    if ch != NULL:
        prefetch(ch.call.head.data, ch.call.head.len)


cdef int64_t sender(const unsigned char *data, size_t size) noexcept nogil:
    """The engine that a malformed message begins with, as far as that can be read; else -1."""
    cdef size_t header = 3 if size and data[0] == 0xDC else 1
    cdef Cursor c
    cdef int64_t engine
    if size <= header:
        return -1
    c.p = data + header
    c.end = data + size
    return engine if mp_int(&c, &engine) == 0 else -1


class EngineMessageError(ValueError):
    """A message of an engine does not follow the wire protocol."""


cdef class Pump(StreamTable):
    """Streams of one lane. `fail_body(code, message)` gives (status, headers, body) of a failed answer, `fail_event(code,
    message)` the last bytes of a failed stream; `sse_headers` and `json_headers` are lists of (name, value) pairs."""
    cdef Vocabulary vocabulary
    cdef Event *events
    cdef size_t n_events, cap_events
    cdef Buf out                        # bytes of the events of the message at hand
    cdef Buf scratch                    # text of one token, for logprob entries
    cdef Frames frames                  # what follows the message at hand; borrowed from feed's arguments
    cdef Buf fail_message               # of the newest EVENT_FAIL, UTF-8
    cdef object fail_body, fail_event, sse_headers, json_headers
    cdef PyObject *ok_type              # type of what send returns while the client is there
    cdef int lost_engine                # of the newest fail_engine
    cdef double now                     # when the message at hand came (monotonic s)
    cdef double made_at                 # the same by its engine's clock; 0: it does not say
    cdef Place *places                  # of the outputs in it
    cdef size_t cap_places
    cdef uint64_t message_tokens        # new tokens of live choices in it
    cdef readonly Counters counters     # by engine; of the lane
    cdef int local_engines              # those with a lower index share this machine's clock
    cdef readonly uint64_t sends        # events written to connections, or handed to granian
    cdef readonly uint64_t overrun      # tokens dropped behind a stop string
    cdef readonly uint64_t malformed    # outputs that could not be read; their requests failed
    cdef list gone                      # calls given up while a message's events are sent
    cdef readonly list errors           # exceptions of calls' Python; the lane logs and empties it

    def __cinit__(self):
        buf_init(&self.out)
        buf_init(&self.fail_message)
        buf_init(&self.scratch)

    def __init__(self, Vocabulary vocabulary not None, object fail_body, object fail_event, list sse_headers, list json_headers,
                 int engines=1, int local_engines=0, object buckets=None):
        self.counters = Counters(engines, buckets)
        self.local_engines = local_engines
        self.vocabulary = vocabulary
        self.fail_body = fail_body
        self.fail_event = fail_event
        self.sse_headers = sse_headers
        self.json_headers = json_headers
        self.gone = []
        self.errors = []

    def __dealloc__(self):
        free(self.events)
        free(self.places)
        buf_free(&self.out)
        buf_free(&self.fail_message)
        buf_free(&self.scratch)
        free(self.frames.data)
        free(self.frames.size)

    def attach(self, Call call not None):
        """Takes the call into the table. Returns [(engine index, ADD payload)] for the wire, one per choice."""
        cdef CallC *c = &call.c
        cdef Choice *ch
        cdef uint32_t i
        cdef Buf message
        cdef list adds = []
        if c.ended or c.choices == NULL:
            raise ValueError("the call has ended")
        self.reserve(c.n_choices)
        Py_INCREF(call)
        c.entered = True
        c.sent_at = monotonic()
        c.arrived_at = c.sent_at - max(0.0, unix_time() - call.arrival_time)
        for i in range(c.n_choices):
            ch = &c.choices[i]
            self.enter(ch)
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
        self.counters.submitted(c)
        return adds

    @property
    def tokens(self) -> int:
        """Tokens taken from engines for live choices."""
        return self.counters.total_tokens

    @property
    def prompt_tokens(self) -> int:
        """Of all choices that were submitted."""
        return self.counters.total_prompt_tokens

    def unsent(self, int engine):
        """Calls with a choice on this engine (-1: any) that can begin anew elsewhere: nothing of them has been sent."""
        cdef uint32_t i
        cdef Call call
        cdef list found = []
        for i in range(self.n_slots):
            if self.table[i] != NULL and (engine < 0 or self.table[i].engine == engine):
                call = <Call>self.table[i].call.owner
                if call.again is not None and call.transport is None and not call.c.started and call not in found:
                    found.append(call)
        return found

    def withdraw(self, Call call not None, int engine):
        """Takes a call out of the table unanswered: its on_end is not called, its end is not counted.

        What engines other than `engine` do for it is aborted. Does nothing for a call that is not in the table.
        """
        cdef uint32_t i
        cdef CallC *c = &call.c
        cdef Choice *ch
        if c.ended or not c.entered:
            return
        c.ended = True
        for i in range(c.n_choices):
            ch = &c.choices[i]
            if ch.attached and not ch.finished and ch.engine != engine and self.abort(ch) < 0:
                raise MemoryError
            self.detach(ch)
        call.on_end = None
        self.finish_call(call)
        self.settle_detached()

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
        e.sent = False
        e.failed = False
        e.drop = NULL
        e.kind = kind
        e.at = at
        e.n = self.out.len - at if kind != EVENT_FAIL else 0
        return 0

    cdef bint is_lost(self, int engine) noexcept nogil:
        """Whether fail_engine is at work on this engine."""
        return self.lost_engine < 0 or self.lost_engine == engine

    cdef int fail(self, CallC *c, size_t code) noexcept nogil:
        """Ends a call with an error; its other choices are aborted."""
        cdef uint32_t i
        cdef int r = 0
        if c.ended:
            return 0
        c.ended = True
        for i in range(c.n_choices):
            if not c.choices[i].finished:
                self.counters.of(c.choices[i].engine).requests[<int>FINISH_ERROR] += 1
            if c.choices[i].attached:
                if not c.choices[i].finished and not (code == ERROR_ENGINE_DEAD and self.is_lost(c.choices[i].engine)):
                    r |= self.abort(&c.choices[i])
                self.detach(&c.choices[i])
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
                &ch.prompt_logprobs, self.vocabulary, rows, ch.first_prompt_id, c.prompt_top, &self.scratch)
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
        if c.stream:
            observe(&self.counters.lane[<int>LANE_EVENT_TOKENS], ch.completion_tokens - ch.told_tokens)
            ch.told_tokens = ch.completion_tokens
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

    cdef int take_output(self, Cursor *cursor) noexcept nogil:
        """One EngineCoreOutput. 0, -1: memory, -2: it is malformed (its request, if known, has failed)."""
        cdef Output o
        cdef Choice *ch
        cdef CallC *c
        cdef Progress p
        cdef uint32_t before
        cdef int hit
        cdef int r = output_read(cursor, &self.frames, &o)
        if o.id == NULL:
            return -2
        ch = self.find(o.id, o.id_len)
        if ch == NULL:
            return 0
        c = ch.call
        if r < 0:
            return self.fail(c, ERROR_INTERNAL) | -2
        if o.finish == FINISH_ERROR:
            self.fail_message.len = 0
            self.detach(ch)
            return buf_put(&self.fail_message, o.message, o.message_len) | self.fail(c, o.code)
        if o.has_prompt_logprobs and self.take_prompt_logprobs(c, ch, &o.prompt_logprobs) < 0:
            return -1
        if (ch.first_at == 0 or (o.n_rest and mp_peek(&o.rest) != MP_NIL)) and output_progress(&o, &p):
            self.counters.progress(ch, &p)
        before = ch.completion_tokens
        if o.n_ids:
            self.prefilled(ch)
        if c.metrics and o.n_ids:
            ch.known_at = self.made_at
        hit = self.take_tokens(c, ch, &o.ids, o.n_ids, o.finish, &o.logprobs if o.has_logprobs and c.wants_logprobs else NULL)
        self.message_tokens += ch.completion_tokens - before
        self.counters.of(ch.engine).tokens += ch.completion_tokens - before
        if hit < 0:
            if hit == -1:
                return -1
            return self.fail(c, ERROR_INTERNAL) | -2
        if hit == 0:
            ch.finish = o.finish
            ch.reason = <uint8_t>o.reason
            ch.stop_token = o.stop_token
        if hit or o.finish != FINISH_NONE:
            ch.finished = True
            c.remaining -= 1
            c.completion_tokens += ch.completion_tokens
            self.counters.of(ch.engine).requests[ch.finish] += 1
            if o.finish == FINISH_NONE and self.abort(ch) < 0:
                return -1
            self.detach(ch)
        elif o.n_ids == 0:
            return 0
        if self.counters.arrival(ch, before == 0 and o.n_ids != 0, before != 0 and o.n_ids != 0, ch.finished) < 0:
            return -1
        return self.answer(c, ch)

    cdef int find_outputs(self, Cursor *c, uint32_t n) noexcept nogil:
        """Fills `places` with where n outputs begin, and with one more: the end of the last. Asks the memory for their streams, which
        have not been touched since the step before. Returns how many are whole; the cursor stands behind them. -1: memory."""
        cdef uint32_t k
        cdef Cursor o
        cdef uint32_t elements, length
        cdef const char *id
        cdef void *p
        if n + 1 > self.cap_places:
            p = realloc(self.places, (n + 1 + n // 2) * sizeof(Place))
            if p == NULL:
                return -1
            self.places = <Place *>p
            self.cap_places = n + 1 + n // 2
        for k in range(n):
            self.places[k].p = c.p
            self.places[k].choice = NULL
            o = c[0]
            if mp_skip(c, 1) < 0:
                self.places[k].p = c.p
                return k
            if mp_array(&o, &elements) == 0 and mp_str(&o, &id, &length) == 0:
                self.places[k].choice = self.find(id, length)
                prefetch_choice(self.places[k].choice)
        self.places[n].p = c.p
        return n

    cdef int take_message(self, const unsigned char *data, size_t size, int64_t *engine, Cursor *rest) noexcept nogil:
        """All outputs of one message; `rest` is left behind them. 0, -1: memory, -2: malformed."""
        cdef Cursor c, o
        cdef uint32_t n, n_outputs
        cdef int r, found, k
        c.p = data
        c.end = data + size
        engine[0] = -1
        self.message_tokens = 0
        self.made_at = 0
        if mp_array(&c, &n) < 0:
            return -2
        if n == 0:
            engine[0] = 0
        elif mp_int(&c, engine) < 0:
            return -2
        if n > 1:
            if mp_array(&c, &n_outputs) < 0:
                return -2
            found = self.find_outputs(&c, n_outputs)
            if found < 0:
                return -1
            o = c
            if mp_skip(&o, 1) < 0 or mp_float(&o, &self.made_at) < 0:      # behind the scheduler's statistics
                self.made_at = 0
            for k in range(found):
                if k + AHEAD < found:
                    prefetch_call(self.places[k + AHEAD].choice)
                if k + NEAR < found:
                    prefetch_head(self.places[k + NEAR].choice)
                o.p = self.places[k].p
                o.end = self.places[k + 1].p
                r = self.take_output(&o)
                if r == -1:
                    return -1
                if r < 0:
                    self.malformed += 1
            if <uint32_t>found < n_outputs:
                return -2
        rest[0] = c
        return 0

    cdef bint take_stats(self, int64_t engine, Cursor *rest) noexcept nogil:
        """Scheduler stats and the time, behind the outputs. True if Python must look at `rest` too."""
        cdef Cursor c = rest[0]
        cdef SchedulerStats *stats
        cdef bint found = False
        if mp_peek(&c) == MP_MAP:
            stats = &self.counters.of(engine).stats
            found = scheduler_stats_read(&c, stats) != 0
            stats.at = self.now
        elif c.p < c.end and not mp_nil(&c):
            return True
        if found:                           # the cursor may stand anywhere
            c = rest[0]
            if mp_skip(&c, 1) < 0:
                return True
        if c.p < c.end and mp_float(&c, &self.made_at) < 0:
            return True
        return found or (c.p < c.end and not mp_nil(&c))      # a reply to a utility call

    cdef int room_for_frames(self, size_t n) noexcept nogil:
        cdef void *p = realloc(self.frames.data, (n + 1) * sizeof(void *))
        if p == NULL:
            return -1
        self.frames.data = <const unsigned char **>p
        p = realloc(self.frames.size, (n + 1) * sizeof(size_t))
        if p == NULL:
            return -1
        self.frames.size = <size_t *>p
        self.frames.n = n
        return 0

    cdef void take(self, const unsigned char *data, size_t size, Taken *t) noexcept nogil:
        """Decodes one EngineCoreOutputs message, answers its streams and writes what can be written without Python."""
        self.now = monotonic()
        t.engine = 0
        t.rest.p = t.rest.end = data
        t.result = self.take_message(data, size, &t.engine, &t.rest)
        t.looked_at = self.take_stats(t.engine, &t.rest)
        self.counters.settle(t.engine, self.message_tokens, self.made_at or self.now, self.now)
        self.write_events()

    cdef void observe_lag(self, int64_t engine) noexcept nogil:
        if self.made_at > 0 and 0 <= engine < self.local_engines:
            observe(&self.counters.lane[<int>LANE_LAG], max(0.0, monotonic() - self.made_at))

    def feed(self, const unsigned char[::1] message not None, list aux=None):
        """Takes one EngineCoreOutputs message, with the frames `aux` that follow it, and answers its streams.

        Returns (engine index, rest): `rest` is None, or the bytes from scheduler_stats on when Python should look at them: a
        reply to a utility call, stats that tell of a changed load or of LoRA adapters, what cannot be read. Raises
        EngineMessageError for a malformed message; what stood before the fault has been answered.
        """
        cdef const unsigned char[::1] view
        cdef size_t k
        cdef Taken t
        if message.shape[0] == 0:
            raise EngineMessageError("empty message")
        self.frames.n = 0
        if aux:
            if self.room_for_frames(len(aux)) < 0:
                raise MemoryError
            for k in range(self.frames.n):
                view = aux[k]
                self.frames.data[k] = &view[0] if view.shape[0] else NULL
                self.frames.size[k] = view.shape[0]
        with nogil:
            self.take(&message[0], message.shape[0], &t)
        self.flush()
        self.observe_lag(t.engine)
        if t.result == -1:
            raise MemoryError
        if t.result < 0:
            raise EngineMessageError("not an EngineCoreOutputs message")
        if not t.looked_at:
            return t.engine, None
        return t.engine, PyBytes_FromStringAndSize(<const char *>t.rest.p, t.rest.end - t.rest.p)

    cdef void take_from(self, Peer *peer, Taken *t) noexcept nogil:
        """Takes the message at hand of a connection."""
        cdef const unsigned char *data = zmtp_frame(&peer.zmtp, 0)
        cdef size_t size = peer.zmtp.frames[0].size, k
        self.frames.n = 0
        t.looked_at = False
        t.engine = peer.engine
        if size == SENTINEL_BYTES and memcmp(data, SENTINEL, SENTINEL_BYTES) == 0:
            t.result = LEAVING
            return
        if peer.zmtp.n_frames > 1:
            if self.room_for_frames(peer.zmtp.n_frames - 1) < 0:
                t.result = -1
                return
            for k in range(self.frames.n):
                self.frames.data[k] = zmtp_frame(&peer.zmtp, k + 1)
                self.frames.size[k] = peer.zmtp.frames[k + 1].size
        self.take(data, size, t)
        if t.result == 0:
            peer.engine = <int>t.engine
        elif t.engine < 0:
            t.engine = peer.engine if peer.engine >= 0 else sender(data, size)

    cdef bint needs_python(self) noexcept nogil:
        """Whether events are left that `flush` must see to, or aborts and ended choices that the lane must."""
        cdef size_t i
        if self.n_detached or self.abort_ids.len:
            return True
        for i in range(self.n_events):
            if not self.events[i].sent or self.events[i].failed or self.events[i].kind != EVENT_SEND:
                return True
        self.n_events = 0
        self.out.len = 0
        return False

    cdef Peer *drive(self, EngineSockets sockets, int patience_ms, Taken *t) noexcept nogil:
        """Waits for messages and takes them, until one needs Python (its connection; it stays at hand there), the sockets do, or
        the patience is at its end (NULL)."""
        cdef Peer *peer
        cdef bint waited = False
        cdef double until = 0
        cdef int left = patience_ms
        sockets.woken = False
        sockets.flush_native()
        while True:
            peer = sockets.next_output()
            if peer != NULL:
                self.take_from(peer, t)
                if t.result != 0 or t.looked_at or self.needs_python():
                    return peer
                self.observe_lag(t.engine)
                zmtp_release(&peer.zmtp)
                continue
            if sockets.calls() or (waited and patience_ms == 0):
                return NULL
            if patience_ms > 0:
                if not waited:
                    until = sockets.now + patience_ms * 1e-3
                elif sockets.now >= until:
                    return NULL
                left = max(0, <int>((until - sockets.now) * 1e3) + 1) if waited else patience_ms
            sockets.wait_native(left)
            waited = True

    def run(self, EngineSockets sockets not None, int patience_ms):
        """Waits for engines' messages and answers their streams, without Python, until something asks for it: a message, the
        sockets, or `patience_ms` milliseconds are over (-1: never).

        Returns None, or (what, engine index, rest) for a message: ANSWERED, with `rest` as `feed` returns it; MALFORMED, from an
        engine that is -1 when it cannot be told; DEAD: the engine, as far as it is known, has said that it leaves.
        """
        cdef Taken t
        cdef Peer *peer
        with nogil:
            peer = self.drive(sockets, patience_ms, &t)
        if peer == NULL:
            return None
        rest = PyBytes_FromStringAndSize(<const char *>t.rest.p, t.rest.end - t.rest.p) if t.looked_at else None
        zmtp_release(&peer.zmtp)
        if t.result == LEAVING:
            return DEAD, t.engine, None
        self.flush()
        self.observe_lag(t.engine)
        if t.result == -1:
            raise MemoryError
        return (MALFORMED if t.result < 0 else ANSWERED), t.engine, rest

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
            if not self.deliver(call, comment, len(comment), False):
                gone.append(call)
        for call in gone:
            self.cancel(call)

    cdef int open_stream(self, Call call) except -1:
        call.transport = call.protocol.response_stream(
            200, self.sse_headers if call.headers is None else self.sse_headers + call.headers)
        if type(call.transport) is HttpStream:
            call.c.conn = (<HttpStream>call.transport).conn
            call.c.serial = (<HttpStream>call.transport).serial
        else:
            call.send = call.transport.send_bytes
        return 0

    cdef void write_events(self) noexcept nogil:
        """Writes the events of streams that are open on connections of the native server."""
        cdef size_t i
        cdef Event *e
        cdef CallC *c
        for i in range(self.n_events):
            if i + NEAR < self.n_events and self.events[i + NEAR].call.conn != NULL:
                prefetch(self.events[i + NEAR].call.conn, <size_t>&(<Conn *>NULL).message)
            e = &self.events[i]
            c = e.call
            if c.conn == NULL or (e.kind != EVENT_SEND and e.kind != EVENT_LAST):
                continue
            e.failed = conn_send(
                c.conn, c.serial, self.out.data + e.at, e.n, PIECE_LAST if e.kind == EVENT_LAST else PIECE_MORE, &e.drop) < 0
            e.sent = True
            self.sends += 1

    cdef bint deliver(self, Call call, const char *data, size_t n, bint last) except -1:
        """Sends bytes of a stream, opening it first if needed. False: the client has gone."""
        cdef PyObject *result
        cdef PyObject *drop
        cdef bint ok
        cdef bytes piece
        if call.transport is None:
            self.open_stream(call)
        if call.c.conn != NULL:
            self.sends += 1
            ok = conn_send(call.c.conn, call.c.serial, data, n, PIECE_LAST if last else PIECE_MORE, &drop) == 0
            Py_XDECREF(drop)
            return ok
        piece = PyBytes_FromStringAndSize(data, n)
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
        if call.c.conn != NULL:
            call.c.conn = NULL
            (<HttpStream>call.transport).end()
        elif call.c.given_up and call.transport is None:
            call.protocol.abandon()
        call.transport = None
        on_end = call.on_end
        call.on_end = None
        call.again = None
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
        c.given_up = True
        for i in range(c.n_choices):
            if not c.choices[i].finished:
                self.counters.of(c.choices[i].engine).requests[<int>FINISH_ABORT] += 1
            if c.choices[i].attached:
                if self.abort(&c.choices[i]) < 0:
                    raise MemoryError
                self.detach(&c.choices[i])
        c.remaining = 0
        return 0

    cdef int flush(self) except -1:
        """Sends what has not been written of the events of the message at hand.

        An exception in one call's Python ends that call and goes to `errors`.
        """
        cdef size_t i
        cdef Event *e
        cdef Call call
        cdef list over = None
        for i in range(self.n_events):
            e = &self.events[i]
            if e.sent and e.kind == EVENT_SEND and not e.failed:
                continue
            Py_XDECREF(e.drop)
            call = <Call>e.call.owner
            if self.gone and call in self.gone:
                continue
            try:
                if e.kind == EVENT_SEND or e.kind == EVENT_LAST:
                    if not e.sent:
                        e.failed = not self.deliver(call, self.out.data + e.at, e.n, e.kind == EVENT_LAST)
                    if e.failed and e.kind == EVENT_SEND:
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
        return self.settle_detached()

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
        if call.c.choices[p.index].prompt_logprobs.len:
            call.sink.prompt_logprobs(p.index, PyBytes_FromStringAndSize(
                call.c.choices[p.index].prompt_logprobs.data, call.c.choices[p.index].prompt_logprobs.len))
            call.c.choices[p.index].prompt_logprobs.len = 0
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
            if call.c.prompt_details or call.c.metrics:
                self.tell_measures(call)
            made = made + call.sink.end(call.c.prompt_tokens, call.c.completion_tokens)
            if not call.c.stream:
                call.protocol.response_bytes(
                    200, self.json_headers if call.headers is None else self.json_headers + call.headers, made)
                return 0
        if made and call.c.stream:
            e.failed = not self.deliver(call, made, len(made), e.kind == EVENT_LAST_PIECE)
        if e.failed and e.kind == EVENT_PIECE:
            self.gone.append(call)
            if not call.c.ended:
                self.give_up(call)
        return 0

    cdef int tell_measures(self, Call call) except -1:
        """Tells a sink what it asked for about the call that is over."""
        cdef Choice *ch = call.c.choices if call.c.stream else &call.c.choices[call.c.n_choices - 1]
        cdef Buf metrics
        cdef bytes told = b""
        if call.c.metrics:
            buf_init(&metrics)
            if put_metrics(&metrics, ch, not call.c.stream) < 0:
                buf_free(&metrics)
                raise MemoryError
            told = PyBytes_FromStringAndSize(metrics.data, metrics.len)
            buf_free(&metrics)
        call.sink.measured(ch.cached_tokens, ch.created_tokens, told)
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
        if call.transport is not None:
            call.transport.send_bytes((self.fail_event if call.sink is None else call.sink.failure_event)(code, message))
            self.sends += 1
            return 0
        status, headers, body = (self.fail_body if call.sink is None else call.sink.failure_answer)(code, message)
        if call.headers is not None:
            headers = headers + call.headers
        call.protocol.response_bytes(status, headers, body)
        return 0

    def cancel(self, Call call not None):
        """The client has gone: aborts the call's requests. Does nothing for a call that has ended or was never attached."""
        if call.c.ended or not call.c.entered:
            return
        self.give_up(call)
        self.finish_call(call)
        self.flush()

    def fail_engine(self, int engine, str message):
        """An engine has gone (-1: all): fails every call with a choice there. Returns how many calls failed."""
        cdef uint32_t i
        cdef int failed = 0
        text = message.encode()
        self.lost_engine = engine
        self.fail_message.len = 0
        buf_put(&self.fail_message, text, len(text))
        for i in range(self.n_slots):
            if self.table[i] != NULL and (engine < 0 or self.table[i].engine == engine):
                self.fail(self.table[i].call, ERROR_ENGINE_DEAD)
                failed += 1
        self.flush()
        return failed
