"""One EngineCoreOutput of the wire as plain data: checked, borrowed from its message, no state."""
from libc.stdint cimport int64_t, uint32_t
from fastfront._speedups.logprobs cimport Frames, LogprobRows
from fastfront._speedups.msgpack_raw cimport Cursor


cdef enum Finish:               # the wire's finish_reason values
    FINISH_NONE = -1
    FINISH_STOP = 0
    FINISH_LENGTH = 1
    FINISH_ABORT = 2
    FINISH_ERROR = 3
    FINISH_REPETITION = 4


cdef enum StopReason:           # what `stop_reason` of a choice shows
    REASON_NULL = 0
    REASON_TOKEN = 1            # a stop token's id
    REASON_STRING = 2           # a stop string (never from the wire: the frontend matches those)
    REASON_REPETITION = 3       # "repetition_detected"


cpdef enum ErrorCode:
    ERROR_INTERNAL = 0          # the engine finished the request with an error, or its output could not be read
    ERROR_VALIDATION = 1        # the engine refused the request as invalid
    ERROR_PAUSED = 2            # the engine is paused; the request may be tried again
    ERROR_ENGINE_DEAD = 3       # the engine has gone


cdef struct Output:
    const char *id              # the request's, not checked to be UTF-8
    uint32_t id_len
    Cursor ids                  # the new token ids, n_ids values, each whole but not checked to be integers
    uint32_t n_ids
    bint has_logprobs
    LogprobRows logprobs
    bint has_prompt_logprobs
    LogprobRows prompt_logprobs
    int finish                  # Finish
    int reason                  # StopReason
    int64_t stop_token          # of REASON_TOKEN
    int code                    # ErrorCode, with FINISH_ERROR
    const char *message         # of the error, NULL: none
    uint32_t message_len
    Cursor rest                 # elements behind stop_reason, n_rest of them; not checked
    uint32_t n_rest


cdef struct Progress:           # what an output tells of its request's way through the engine
    double queued_at            # engine's monotonic s; 0: not told
    double scheduled_at         # the first time that is told; 0: not told
    uint32_t preemptions
    bint has_prefill
    uint32_t computed           # prompt tokens: computed,
    uint32_t cached             # found somewhere,
    uint32_t local_cached       # in the engine's cache,
    uint32_t external_cached    # by a KV connector,
    uint32_t created            # written to the cache


# Reads an output whose bytes are exactly `c`'s. 0, or -1 if it is malformed; `id` is NULL if not even that could be read.
cdef int output_read(Cursor *c, const Frames *frames, Output *o) noexcept nogil
# Reads events and prefill stats. False if there are none, or they cannot be read (`p` is then all zeros).
cdef bint output_progress(const Output *o, Progress *p) noexcept nogil
