# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False
"""From an engine's message to events: decoded, detokenized, checked for stop strings and encoded, into one buffer and a list."""
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport free
from libc.string cimport memcmp, memmove

from fastfront._speedups.buffers cimport array_reserve, buf_byte, buf_free, buf_init, buf_int, buf_put
from fastfront._speedups.call cimport CallC, Choice
from fastfront._speedups.counters cimport EngineCounters
from fastfront._speedups.detokenizer cimport detok_feed, detok_flush
from fastfront._speedups.drafts cimport drafts_put
from fastfront._speedups.histograms cimport LANE_EVENT_TOKENS, observe
from fastfront._speedups.logprobs cimport (
    LogprobRows, chat_entry, completion_entry, completion_first, context_add, logprobs_id, prompt_logprobs_put,
)
from fastfront._speedups.msgpack_raw cimport (
    MP_INT, MP_MAP, MP_NIL, Cursor, mp_array, mp_float, mp_int, mp_nil, mp_peek, mp_skip, mp_str,
)
from fastfront._speedups.output cimport (
    ERROR_ENGINE_DEAD, ERROR_INTERNAL, FINISH_ERROR, FINISH_NONE, FINISH_STOP, REASON_STRING, Output, Progress,
    output_progress, output_read,
)
from fastfront._speedups.passage cimport Passing, passage_put, passage_takes
from fastfront._speedups.prefetch cimport CACHE_LINE, prefetch
from fastfront._speedups.scheduler_stats cimport scheduler_stats_read
from fastfront._speedups.sse cimport json_body, sse_delta, sse_end, sse_role
from fastfront._speedups.stop_matcher cimport StopHit, stops_feed
from fastfront._speedups.stream_table cimport StreamTable
from fastfront._speedups.vocabulary cimport prefetch_text, prefetch_token


cdef enum:
    AHEAD = 6                   # outputs between asking for a stream's call and using it,
    NEAR = 3                    # and for what the call points to
    DRAFTS_BEHIND = 9           # elements between stop_reason and the statistics of drafts


cdef inline void prefetch_choice(const Choice *ch) noexcept nogil:
    if ch != NULL:
        prefetch(ch, <size_t>&(<Choice *>NULL).echo)      # what lies behind is seldom used


cdef inline void prefetch_call(const Choice *ch) noexcept nogil:
    """What a choice points to, which must be at hand."""
    if ch != NULL:
        prefetch(ch.call, sizeof(CallC))
        prefetch(ch.text.data, CACHE_LINE)
        prefetch(ch.stop.matched, CACHE_LINE)


cdef inline void prefetch_head(const Choice *ch) noexcept nogil:
    """What a choice's call points to, which must be at hand."""
    if ch != NULL:
        prefetch(ch.call.head.data, ch.call.head.len)


cdef inline bint is_settled(const Choice *ch, size_t start) noexcept nogil:
    """Whether the text from `start` on ends with a whole character that the next token leaves as it is.

    vLLM gives out the text of a token that ends otherwise with the next one that does not, and drops it at the end.
    """
    if ch.detok.n_pending > ch.detok.primed:
        return False
    return ch.text.len < start + 3 or memcmp(ch.text.data + ch.text.len - 3, b"\xef\xbf\xbd", 3) != 0


cdef class MessageReader(StreamTable):
    """What a Pump knows of its streams and of the message at hand."""

    def __cinit__(self):
        buf_init(&self.out)
        buf_init(&self.fail_message)
        buf_init(&self.scratch)

    def __dealloc__(self):
        free(self.events)
        free(self.places)
        buf_free(&self.out)
        buf_free(&self.fail_message)
        buf_free(&self.scratch)
        free(self.frames.data)
        free(self.frames.size)

    cdef int event(self, CallC *c, uint8_t kind, size_t at) noexcept nogil:
        """Notes the bytes from `at` to the end of `out`; joins them to the event before if that is the same call's."""
        cdef Event *e
        if self.n_events and (kind == EVENT_SEND or kind == EVENT_LAST):
            e = &self.events[self.n_events - 1]
            if e.call == c and e.kind == EVENT_SEND and e.at + e.n == at:
                e.n = self.out.len - e.at
                e.kind = kind
                return 0
        if array_reserve(<void **>&self.events, &self.cap_events, self.n_events + 1, sizeof(Event)) < 0:
            return -1
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
            start = ch.text.len - ch.soft
            if detok_feed(self.vocabulary, &ch.detok, id, &ch.text) < 0:
                return -1
            ch.soft = 0 if is_settled(ch, start) else ch.text.len - start
            if ch.soft:
                continue
            if c.stops != NULL and ch.text.len > start:
                hit = stops_feed(c.stops, &ch.stop, ch.text.data + start, ch.text.len - start, ch.completion_tokens > ch.min_tokens)
                if hit.index >= 0:
                    self.stop_at(c, ch, hit, start)
                    self.overrun += n - 1 - k
                    return 1
        if finish == FINISH_NONE or c.hide_output:
            return 0
        ch.text.len -= ch.soft
        ch.soft = 0
        start = ch.text.len
        if detok_flush(self.vocabulary, &ch.detok, False, &ch.text) < 0:
            return -1
        if c.stops != NULL and ch.text.len > start:
            hit = stops_feed(c.stops, &ch.stop, ch.text.data + start, ch.text.len - start, ch.completion_tokens > ch.min_tokens)
            if hit.index >= 0:
                self.stop_at(c, ch, hit, start)
                return 1
        return 0

    cdef void take_drafts(self, CallC *c, Choice *ch, Cursor *rest) noexcept nogil:
        """What an engine tells of a request's drafts at its end, for answers with one choice; what cannot be read is left out."""
        if c.n_choices == 1 and mp_skip(rest, DRAFTS_BEHIND) == 0 and mp_peek(rest) == MP_MAP:
            drafts_put(&ch.drafts, rest, not c.stream)

    cdef int answer(self, CallC *c, Choice *ch) noexcept nogil:
        """Encodes what is new of a choice, unless it waits for more of it (stream_interval)."""
        cdef size_t at = self.out.len, held, n
        cdef uint32_t i
        cdef int r = 0
        if c.stream:
            if not ch.finished and ch.told_tokens and ch.completion_tokens - ch.told_tokens < c.interval:
                return 0
            observe(&self.counters.lane[<int>LANE_EVENT_TOKENS], ch.completion_tokens - ch.told_tokens)
            ch.told_tokens = ch.completion_tokens
        if c.has_sink:
            return self.give_piece(c, ch)
        if not c.stream:
            if c.remaining:
                return 0
            c.ended = True
            return -1 if json_body(&self.out, c) < 0 else self.event(c, EVENT_BODY, at)
        c.sent_at = self.now
        if not c.started:
            c.started = True
            if c.chat:
                for i in range(c.n_choices):
                    r |= sse_role(&self.out, c, &c.choices[i])
        held = ch.soft + (0 if ch.finished or c.include_stop or c.stops == NULL else ch.stop.held)
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

    cdef int pass_on(self, CallC *c, Choice *ch, size_t n) noexcept nogil:
        """Passes n bytes of text and what goes with them, if they may pass. 1: passed, 0: they are for the sink, -1: memory."""
        cdef size_t at = self.out.len
        cdef Passing piece
        piece.text = ch.text.data
        piece.n = n
        piece.ids = &ch.ids
        piece.logprobs = &ch.logprobs
        piece.prompt_tokens = ch.prompt_tokens
        piece.completion_tokens = ch.completion_tokens
        if ch.finished or not passage_takes(ch.passage, &piece):
            return 0
        if passage_put(&self.out, ch.passage, &piece) < 0:
            return -1
        c.sent_at = self.now
        return -1 if self.out.len > at and self.event(c, EVENT_SEND, at) < 0 else 1

    cdef int give_piece(self, CallC *c, Choice *ch) noexcept nogil:
        """Notes what is new of a choice for the call's sink."""
        cdef size_t at = self.out.len
        cdef size_t held = ch.soft + (0 if ch.finished or c.include_stop or c.stops == NULL else ch.stop.held)
        cdef size_t n = ch.text.len - held
        cdef Event *e
        cdef int r
        if not c.stream and not ch.finished:            # its sink gets it in one piece
            return 0
        if ch.passage != NULL:
            r = self.pass_on(c, ch, n)
            if r != 0:
                return r if r < 0 else self.keep_held(ch, n, held)
            ch.passage = NULL                           # until the sink says anew
        r = buf_put(&self.out, ch.text.data, n)
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
        return self.keep_held(ch, n, held)

    cdef int keep_held(self, Choice *ch, size_t n, size_t held) noexcept nogil:
        """What is new of a choice has been given out, but for the last `held` bytes of its text."""
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
            r = buf_put(&self.fail_message, o.message, o.message_len)
            return r | self.fail(c, o.code)
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
        if o.n_rest > DRAFTS_BEHIND and o.finish != FINISH_NONE:
            self.take_drafts(c, ch, &o.rest)
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
        have not been touched since the step before, and for their tokens. Returns how many are whole; the cursor stands behind them.
        -1: memory."""
        cdef uint32_t k
        cdef Cursor o
        cdef uint32_t elements, length
        cdef const char *id
        if array_reserve(<void **>&self.places, &self.cap_places, <size_t>n + 1, sizeof(Place)) < 0:
            return -1
        for k in range(n):
            self.places[k].p = c.p
            self.places[k].choice = NULL
            self.places[k].token = -1
            o = c[0]
            if mp_skip(c, 1) < 0:
                self.places[k].p = c.p
                return k
            if mp_array(&o, &elements) == 0 and mp_str(&o, &id, &length) == 0:
                self.places[k].choice = self.find(id, length)
                prefetch_choice(self.places[k].choice)
                if mp_array(&o, &elements) == 0 and elements and mp_int(&o, &self.places[k].token) == 0:
                    prefetch_token(self.vocabulary, self.places[k].token)
        self.places[n].p = c.p
        return n

    cdef int take_message(
        self, const unsigned char *data, size_t size, int64_t *engine, Cursor *rest, bint *looked_at
    ) noexcept nogil:
        """One message: what stands behind the outputs first, as the engine's time is there. `rest` is left behind the outputs;
        `looked_at` says whether Python must look at it. 0, -1: memory, -2: malformed."""
        cdef Cursor c, o
        cdef uint32_t n, n_outputs = 0
        cdef int r, found = 0, k
        c.p = data
        c.end = data + size
        rest[0] = c
        rest.end = data
        looked_at[0] = False
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
        if <uint32_t>found == n_outputs:
            rest[0] = c
            looked_at[0] = self.take_stats(engine[0], rest)
        for k in range(found):
            if k + AHEAD < found:
                prefetch_call(self.places[k + AHEAD].choice)
            if k + NEAR < found:
                prefetch_head(self.places[k + NEAR].choice)
                prefetch_text(self.vocabulary, self.places[k + NEAR].token)
            o.p = self.places[k].p
            o.end = self.places[k + 1].p
            r = self.take_output(&o)
            if r == -1:
                return -1
            if r < 0:
                self.malformed += 1
        return 0 if <uint32_t>found == n_outputs else -2

    cdef bint take_stats(self, int64_t engine, Cursor *rest) noexcept nogil:
        """Scheduler stats and the time, behind the outputs. True if Python must look at `rest` too."""
        cdef Cursor c = rest[0]
        cdef EngineCounters *counters
        cdef bint found = False
        if mp_peek(&c) == MP_MAP:
            counters = self.counters.of(engine)
            found = scheduler_stats_read(&c, &counters.stats, counters.histograms) != 0
            counters.stats.at = self.now
        elif c.p < c.end and not mp_nil(&c):
            return True
        if found:                           # the cursor may stand anywhere
            c = rest[0]
            if mp_skip(&c, 1) < 0:
                return True
        if c.p < c.end and mp_float(&c, &self.made_at) < 0:
            return True
        return found or (c.p < c.end and not mp_nil(&c))      # a reply to a utility call
