# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False
"""The pump: takes engines' messages and drives their streams.

First a whole message is turned into events without the GIL (message_reader.pyx), each of which is then written to its connection.
One lane thread owns a Pump and everything attached to it.
"""
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport realloc
from libc.string cimport memcmp

from fastfront._speedups.buffers cimport Buf, buf_byte, buf_free, buf_init, buf_int, buf_put, buf_reserve
from fastfront._speedups.call cimport Call, CallC, Choice, call_release
from fastfront._speedups.clocks cimport monotonic, unix_time
from fastfront._speedups.counters cimport Counters
from fastfront._speedups.engine_sockets cimport EngineSockets, Peer
from fastfront._speedups.histograms cimport LANE_LAG, observe
from fastfront._speedups.http_connection cimport PIECE_LAST, PIECE_MORE, Conn, conn_send
from fastfront._speedups.http_request cimport HttpStream
from fastfront._speedups.message_reader cimport (
    EVENT_BODY, EVENT_FAIL, EVENT_LAST, EVENT_LAST_PIECE, EVENT_PIECE, EVENT_SEND, Event, MessageReader, Piece,
)
from fastfront._speedups.msgpack_raw cimport Cursor, mp_int, mpw_array, mpw_str
from fastfront._speedups.output cimport (
    ERROR_ENGINE_DEAD, ERROR_INTERNAL, FINISH_ABORT, FINISH_NONE, REASON_REPETITION, REASON_STRING, REASON_TOKEN,
)
from fastfront._speedups.passage cimport Passage
from fastfront._speedups.prefetch cimport prefetch
from fastfront._speedups.sse cimport has_metrics, put_metrics
from fastfront._speedups.stream_table cimport put_hex8
from fastfront._speedups.vocabulary cimport Vocabulary
from fastfront._speedups.zmtp cimport zmtp_frame, zmtp_release


cdef extern from "Python.h":
    PyObject *PyObject_CallOneArg(PyObject *callable, PyObject *arg) except NULL
    void Py_DecRef(PyObject *)


cdef struct Taken:              # an engine's message, decoded
    int result                  # 0, or -1: memory, -2: malformed, LEAVING
    int64_t engine
    Cursor rest                 # what follows the outputs
    bint looked_at              # Python is to see `rest`


cdef enum:
    LEAVING = 1
    SENTINEL_BYTES = 16
    ID_BYTES = 32               # what a wire id has around its request's, at most,
    HEAD_BYTES = 16             # and an ADD message before its wire id
    AHEAD = 3                   # events between asking for a connection and writing to it

cdef const char *SENTINEL = b"ENGINE_CORE_DEAD"
ANSWERED, MALFORMED, DEAD = range(3)        # what `Pump.run` has met
FINISH_NAMES = ("stop", "length", "abort", "error", "repetition")     # by Finish


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


cdef object rest_of(const Taken *t):
    """What Python is to see of a message, or None."""
    return PyBytes_FromStringAndSize(<const char *>t.rest.p, t.rest.end - t.rest.p) if t.looked_at else None


class EngineMessageError(ValueError):
    """A message of an engine does not follow the wire protocol."""


cdef class Pump(MessageReader):
    """Streams of one lane. `fail_body(code, message)` gives (status, headers, body) of a failed answer, `fail_event(code,
    message)` the last bytes of a failed stream; `sse_headers` and `json_headers` are lists of (name, value) pairs."""
    cdef object fail_body, fail_event, sse_headers, json_headers
    cdef int local_engines              # those with a lower index share this machine's clock
    cdef readonly uint64_t sends        # events written to connections, or handed to middleware
    cdef set adapted                    # calls for LoRA adapters that are not over
    cdef list gone                      # calls given up while a message's events are sent
    cdef readonly list errors           # exceptions of calls' Python; the lane logs and empties it

    def __init__(self, Vocabulary vocabulary not None, object fail_body, object fail_event, list sse_headers, list json_headers,
                 int engines=1, int local_engines=0, object buckets=None):
        self.counters = Counters(engines, buckets)
        self.local_engines = local_engines
        self.vocabulary = vocabulary
        self.fail_body = fail_body
        self.fail_event = fail_event
        self.sse_headers = sse_headers
        self.json_headers = json_headers
        self.adapted = set()
        self.gone = []
        self.errors = []

    def attach(self, Call call not None):
        """Takes the call into the table. Returns [(engine index, ADD payload)] for the wire, one per choice.

        Without memory for it the call is answered with an error, its engines are in `finished_engines`, and the list is empty.
        """
        cdef CallC *c = &call.c
        cdef uint32_t i
        cdef list adds = []
        if c.ended or c.choices == NULL:
            raise ValueError("the call has ended")
        Py_INCREF(call)
        c.entered = True
        c.sent_at = monotonic()
        c.arrived_at = c.sent_at - max(0.0, unix_time() - call.arrival_time)
        try:
            name = call.external_id.encode()
            self.reserve(c.n_choices)
            for i in range(c.n_choices):
                self.enter(&c.choices[i])
                adds.append((c.choices[i].engine, self.add_payload(&c.choices[i], name)))
        except MemoryError as error:
            self.errors.append(error)
            self.turn_away(call)
            return []
        if call.adapter is not None:
            self.adapted.add(call)
        self.counters.submitted(c)
        return adds

    cdef bytes add_payload(self, Choice *ch, bytes name):
        """The ADD message of a choice in the table, which gets its id of the wire."""
        cdef Buf message
        cdef int r = buf_reserve(&ch.wire_id, len(name) + ID_BYTES)
        if ch.call.n_choices > 1:
            r |= buf_int(&ch.wire_id, ch.index)
            r |= buf_byte(&ch.wire_id, c'_')
        r |= buf_put(&ch.wire_id, name, len(name))
        r |= buf_byte(&ch.wire_id, c'-')
        r |= put_hex8(&ch.wire_id, ch.slot)
        r |= put_hex8(&ch.wire_id, ch.generation)
        if r < 0:
            raise MemoryError
        buf_init(&message)
        try:
            r = buf_reserve(&message, ch.wire_id.len + ch.add.len + HEAD_BYTES)
            r |= mpw_array(&message, 22)    # one by one: C evaluates the operands of `|` in any order
            r |= mpw_str(&message, ch.wire_id.data, <uint32_t>ch.wire_id.len)
            if r < 0 or buf_put(&message, ch.add.data, ch.add.len) < 0:
                raise MemoryError
            buf_free(&ch.add)
            return PyBytes_FromStringAndSize(message.data, message.len)
        finally:
            buf_free(&message)

    cdef int turn_away(self, Call call) except -1:
        """A call that no engine has heard of is over: tells its client."""
        cdef uint32_t i
        call.c.ended = True
        call.c.remaining = 0
        for i in range(call.c.n_choices):
            if call.c.choices[i].attached:
                self.detach(&call.c.choices[i])
            else:
                self.finished_engines.append(call.c.choices[i].engine)
        self.settle_detached()
        self.fail_message.len = 0
        try:
            self.send_failure(call, ERROR_INTERNAL)
        except Exception as error:
            self.errors.append(error)
        return self.finish_call(call)

    @property
    def tokens(self) -> int:
        """Tokens taken from engines for live choices."""
        return self.counters.total_tokens

    @property
    def prompt_tokens(self) -> int:
        """Of all choices that were submitted."""
        return self.counters.total_prompt_tokens

    def adapters(self):
        """(adapters of which a request waits for its first token, adapters of which one has tokens): two sets of names. Any thread."""
        waiting, running = set(), set()
        for call in self.adapted.copy():
            if call.awaits_token:
                waiting.add(call.adapter)
            if call.has_token:
                running.add(call.adapter)
        return waiting, running

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

    # ---- messages ----------------------------------------------------------------------------------------------------

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
        t.result = self.take_message(data, size, &t.engine, &t.rest, &t.looked_at)
        self.counters.settle(t.engine, self.message_tokens, self.made_at or self.now, self.now)
        self.write_events()

    cdef void observe_lag(self, int64_t engine) noexcept nogil:
        if self.made_at > 0 and 0 <= engine < self.local_engines:
            observe(&self.counters.lane[<int>LANE_LAG], max(0.0, monotonic() - self.made_at))

    def feed(self, const unsigned char[::1] message not None, list aux=None):
        """Takes one EngineCoreOutputs message, with the frames `aux` that follow it, and answers its streams.

        Returns (engine index, rest): `rest` is None, or the bytes from scheduler_stats on when Python should look at them: a
        reply to a utility call, stats that tell of a changed load, what cannot be read. Raises
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
        return t.engine, rest_of(&t)

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
            if sockets.woken:                   # new requests do not wait for a backlog of messages
                return NULL
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
        rest = rest_of(&t)
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
            if i + AHEAD < self.n_events and self.events[i + AHEAD].call.conn != NULL:
                prefetch(self.events[i + AHEAD].call.conn, <size_t>&(<Conn *>NULL).message)
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
        ok = <object>result is not False
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
        elif call.transport is not None:
            call.transport.end()
        elif call.c.given_up:
            call.protocol.abandon()
        call.transport = None
        on_end = call.on_end
        call.on_end = None
        call.again = None
        if call.adapter is not None:
            self.adapted.discard(call)
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
            if call.c.prompt_details or has_metrics(&call.c):
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
        elif call.c.stream and p.finish == FINISH_NONE and not call.c.ended:
            passage = call.sink.passage(p.index)
            call.passages[p.index] = passage
            call.c.choices[p.index].passage = NULL if passage is None else &(<Passage?>passage).c
        return 0

    cdef int tell_measures(self, Call call) except -1:
        """Tells a sink what it asked for about the call that is over."""
        cdef Choice *ch = call.c.choices if call.c.stream else &call.c.choices[call.c.n_choices - 1]
        cdef Buf metrics
        cdef bytes told = b""
        if has_metrics(&call.c):
            buf_init(&metrics)
            if put_metrics(&metrics, &call.c, not call.c.stream) < 0:
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
