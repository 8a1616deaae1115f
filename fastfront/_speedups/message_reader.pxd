"""From an engine's message to events: what each stream of it is to be sent, without the GIL."""
from cpython.object cimport PyObject
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from fastfront._speedups.buffers cimport Buf
from fastfront._speedups.call cimport CallC, Choice
from fastfront._speedups.counters cimport Counters
from fastfront._speedups.logprobs cimport Frames, LogprobRows
from fastfront._speedups.msgpack_raw cimport Cursor
from fastfront._speedups.stop_matcher cimport StopHit
from fastfront._speedups.stream_table cimport StreamTable
from fastfront._speedups.vocabulary cimport Vocabulary


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


cdef struct Place:              # where an output begins, and whose it is; NULL: nobody's that is here
    const unsigned char *p
    Choice *choice
    int64_t token               # its first, -1: none


cdef class MessageReader(StreamTable):      # owned by one lane thread
    cdef Vocabulary vocabulary
    cdef Event *events
    cdef size_t n_events, cap_events
    cdef Buf out                        # bytes of the events of the message at hand
    cdef Buf scratch                    # text of one token, for logprob entries
    cdef Frames frames                  # what follows the message at hand; borrowed
    cdef Buf fail_message               # of the newest EVENT_FAIL, UTF-8
    cdef int lost_engine                # of the newest fail_engine
    cdef double now                     # when the message at hand came (monotonic s)
    cdef double made_at                 # the same by its engine's clock; 0: it does not say
    cdef Place *places                  # of the outputs in it
    cdef size_t cap_places
    cdef uint64_t message_tokens        # new tokens of live choices in it
    cdef readonly Counters counters     # by engine; of the lane
    cdef readonly uint64_t overrun      # tokens dropped behind a stop string
    cdef readonly uint64_t malformed    # outputs that could not be read; their requests failed

    cdef int event(self, CallC *c, uint8_t kind, size_t at) noexcept nogil
    cdef bint is_lost(self, int engine) noexcept nogil
    cdef int fail(self, CallC *c, size_t code) noexcept nogil
    cdef int stop_at(self, CallC *c, Choice *ch, StopHit hit, size_t start) noexcept nogil
    cdef int take_logprobs(self, CallC *c, Choice *ch, const LogprobRows *rows, uint32_t row, int64_t id) noexcept nogil
    cdef int take_prompt_logprobs(self, CallC *c, Choice *ch, const LogprobRows *rows) noexcept nogil
    cdef int take_tokens(self, CallC *c, Choice *ch, Cursor *ids, uint32_t n, int finish, const LogprobRows *rows) noexcept nogil
    cdef void take_drafts(self, CallC *c, Choice *ch, Cursor *rest) noexcept nogil
    cdef int answer(self, CallC *c, Choice *ch) noexcept nogil
    cdef int pass_on(self, CallC *c, Choice *ch, size_t n) noexcept nogil
    cdef int keep_held(self, Choice *ch, size_t n, size_t held) noexcept nogil
    cdef int give_piece(self, CallC *c, Choice *ch) noexcept nogil
    cdef int take_output(self, Cursor *cursor) noexcept nogil
    cdef int find_outputs(self, Cursor *c, uint32_t n) noexcept nogil
    cdef int take_message(
        self, const unsigned char *data, size_t size, int64_t *engine, Cursor *rest, bint *looked_at) noexcept nogil
    cdef bint take_stats(self, int64_t engine, Cursor *rest) noexcept nogil
