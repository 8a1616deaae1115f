"""One HTTP request for generation (Call) and its choices, as plain data that the lane reads without the GIL.

A request thread builds a Call; from `Pump.attach` on the lane thread owns it, until `call_release` frees its native memory.
The pump's table holds one reference to the Call per live choice.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from fastfront._speedups.buffers cimport Buf
from fastfront._speedups.detokenizer cimport Detok
from fastfront._speedups.http_connection cimport Conn
from fastfront._speedups.logprobs cimport CompletionLogprobs, Context
from fastfront._speedups.passage cimport PassageC
from fastfront._speedups.prepared cimport PreparedCall
from fastfront._speedups.stop_matcher cimport StopSet, StopState
from fastfront._speedups.vocabulary cimport Vocabulary


cdef struct Choice:
    CallC *call
    uint32_t slot               # place in the lane's table, valid while attached
    uint32_t generation         # of that slot; both are in the wire id
    uint32_t index              # choice index in the answer
    uint16_t engine             # engine index the request went to
    bint attached               # in the lane's table
    bint prefilling             # attached, and no token of it has come
    bint finished               # no more text will be added
    bint sent_first             # its first event is out
    bint cut                    # tokens behind a stop string were dropped: the engine must be told to stop
    int32_t finish              # Finish
    uint8_t reason              # StopReason
    uint32_t stop_index
    int64_t stop_token
    uint32_t prompt_tokens
    uint32_t completion_tokens
    uint32_t min_tokens
    uint32_t max_tokens
    double queued_at            # by the engine's clock (monotonic s), as the next three; 0: not told
    double scheduled_at         # the first time
    double first_at             # when its first token was made; 0 before
    double first_here_at        # when its first token was taken, by the frontend's clock; 0 before
    double token_at             # when its newest was
    double known_at             # of a call with metrics: token_at, known before the answer is encoded
    uint32_t cached_tokens      # of the prompt
    uint32_t created_tokens     # of the prompt, written to the cache
    uint32_t preemptions
    uint32_t told_tokens        # completion tokens up to its newest event
    uint32_t siblings_ended     # in the first choice of a prompt: how many of the prompt's have ended,
    uint32_t longest            # and the most tokens one of them had
    Detok detok
    StopState stop
    PassageC *passage           # how its text goes past the sink; NULL: it does not. Alive in the Call's `passages`
    size_t soft                 # bytes at the end of text that are kept back: their token ends inside a character, or broken
    Buf text                    # streaming: text not sent yet (held back); else: the whole text
    Buf ids                     # return_token_ids: JSON digits of ids not sent yet ("1,2"); else the whole answer's
    Buf echo                    # UTF-8 text sent before the first generated text
    Buf prompt_ids              # JSON array of the prompt's ids, or empty for null
    Buf logprobs                # chat: entries not sent yet (else the whole answer's), without brackets
    CompletionLogprobs lists    # completion: the same
    Buf prompt_logprobs         # JSON array, or empty for null
    Context context             # tokens before the next one, for logprob entries
    int64_t first_prompt_id
    Buf add                     # ADD message without the request id; freed once sent
    Buf wire_id
    Buf drafts                  # what its engine told of its drafts, as JSON; empty: nothing


cdef struct CallC:
    void *owner                 # the Call (not counted)
    bint chat
    bint stream
    bint has_sink               # Python makes the answer's bytes, from the pieces of text the pump gives it
    bint include_usage
    bint continuous_usage
    bint return_ids
    bint prompt_details         # usage says how much of the prompt was cached
    bint metrics                # the answer ends with times; of calls with one choice
    bint include_stop
    bint hide_output
    bint wants_logprobs
    bint echo_logprobs          # completion: the prompt's tokens come first in its logprobs
    bint tokens_as_ids          # logprob entries show "token_id:N"
    uint32_t interval           # tokens of a choice per event, but for its first and its last
    int32_t top                 # alternatives per logprob entry, -1: all that the engine sent
    int32_t prompt_top          # the same for prompt logprobs; meaningful if they come
    bint started                # something of the answer has been produced: no status line can be sent any more
    bint entered                # a table has taken it (and holds a reference until it is over)
    bint ended                  # the answer is complete, failed or given up
    bint given_up               # no answer, or none to its end
    uint32_t n_choices
    uint32_t remaining          # choices that are not finished
    uint32_t tokenless          # choices in the table of which no token has come
    uint64_t prompt_tokens      # of all prompts
    uint64_t completion_tokens  # of all finished choices
    Buf head                    # answer up to the choices: `data: {"id":...,"choices":[` or without `data: `
    Buf role                    # JSON-escaped
    Buf fingerprint             # JSON-escaped; empty: none
    Buf echo_content            # chat echo, UTF-8
    uint32_t n                  # choices per prompt
    double arrived_at           # when the request came (monotonic s), set by attach
    double ready_at             # when it was ready for its lane
    double sent_at              # when something was last written to the client, or the call attached (monotonic s)
    Conn *conn                  # where an open stream of the native server goes, else NULL
    uint64_t serial             # of its request there
    StopSet *stops              # NULL without stop strings
    Choice *choices             # n_choices


cdef class Call:
    cdef CallC c
    cdef readonly Vocabulary vocabulary
    cdef readonly object protocol       # takes the answer, until that is complete
    cdef object transport               # made by the lane at the first event; dropping it ends the response
    cdef object send                    # transport.send_bytes, where middleware is in between
    cdef readonly object sink           # fastfront.streams.sink.Sink, or None
    cdef list passages                  # of fastfront._speedups.passage.Passage or None, by choice; None without a sink
    cdef readonly list headers          # further response headers, or None
    cdef public object on_end           # called once by the lane, with the Call, when it is over (any way)
    cdef public object again            # makes the call anew for other engines (fastfront.streams.dispatcher); None: cannot
    cdef readonly str external_id
    cdef readonly str adapter           # the LoRA adapter that it is for, or None
    cdef readonly double arrival_time   # unix seconds
    cdef int build(
        self, PreparedCall prepared, Vocabulary vocabulary, object protocol, list engines, int client_index, str fingerprint,
        double arrival_time, object on_end, list headers) except -1
    cdef public bint disconnected       # set by any thread; the lane gives the call up when it sees it


# Frees the native memory of a call that is in no table. Lane thread (or the builder, if it was never attached).
cdef void call_release(CallC *c) noexcept
