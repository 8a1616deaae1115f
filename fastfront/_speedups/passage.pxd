"""Text that goes from a choice to its client without its sink's Python.

Between two things that a sink must see - a tool call's marker, the end of reasoning - most text is only copied into one kind of event.
A Passage says what that event looks like, and which Triggers end it: a piece of text that holds one, or ends in what may become
one, goes to the sink. No state is kept between pieces, so that a sink sees each piece that it gets as the engine made it.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t
from fastfront._speedups.buffers cimport Buf


cdef enum:
    MOST_TRIGGERS = 6               # of a passage


cdef struct TriggerSet:             # immutable; shared by any number of threads
    unsigned char starts[256]       # by byte: 0: begins none, 1: is one, 2: begins some
    bint spaces                     # text that ends in white space is one
    uint32_t n
    uint32_t *length                # bytes of each
    char *strings                   # one after another


cpdef enum Field:                   # what stands between the literal parts of an event
    FIELD_NONE = 0
    FIELD_TEXT = 1                  # inside a JSON string
    FIELD_IDS = 2                   # JSON digits, without brackets
    FIELD_LOGPROBS = 3              # a chat's, as an object or null
    FIELD_USAGE = 4                 # of the choice so far, as an object
    FIELD_NUMBER = 5                # `number`, then one more


cdef struct PassageC:
    TriggerSet *sets[MOST_TRIGGERS]
    uint32_t n_sets
    bint silent                     # none of it goes to the client
    bint says_all                   # pieces without text have events too, if they have ids or logprobs
    bint keeps_text, keeps_ids
    Buf literals
    uint32_t n_parts
    uint32_t *ends                  # where each part's literal ends
    unsigned char *fields           # what stands behind it
    int64_t number
    Buf text, ids                   # kept for the sink


cdef struct Passing:                # what is new of a choice
    const char *text
    size_t n
    const Buf *ids
    const Buf *logprobs
    uint64_t prompt_tokens
    uint64_t completion_tokens


cdef class Triggers:
    cdef TriggerSet c


cdef class Passage:                 # one choice's; belongs to its lane's thread
    cdef PassageC c
    cdef tuple triggers             # keeps `sets` alive


# Whether a piece may pass.
cdef bint passage_takes(const PassageC *p, const Passing *piece) noexcept nogil
# Passes it: appends its event, if it has one. 0, or -1: memory.
cdef int passage_put(Buf *out, PassageC *p, const Passing *piece) noexcept nogil
