"""Stop strings over a stream of text: which completes first, and how much text is safe to send.

The matcher sees each byte once (one KMP automaton per stop string, built once per request). The stop that completes
earliest wins, ties by list order. `held` is the longest tail that can still become a stop string.
"""
from libc.stdint cimport int32_t, uint32_t


cdef struct StopSet:              # immutable after stops_new; owned by the request, may be shared by its streams
    uint32_t n                    # number of stop strings
    uint32_t *length              # bytes of each
    uint32_t *offset              # start of each in `text` and `fail`
    char *text
    uint32_t *fail                # KMP failure links


cdef struct StopState:            # one per stream, owned by its lane thread
    uint32_t *matched             # per stop string: bytes matched so far (n values, malloc'ed)
    uint32_t held                 # longest of them: bytes at the end of the text that must not be sent yet


cdef struct StopHit:
    int32_t index                 # which stop string, -1: none
    size_t end                    # offset just past the match in the text given to stops_feed


cdef StopSet *stops_new(list strings) except NULL       # str, non-empty; else ValueError / TypeError
cdef void stops_free(StopSet *s) noexcept nogil
cdef int stops_state_init(const StopSet *s, StopState *st) noexcept nogil      # 0 or -1 when memory is out
cdef void stops_state_free(StopState *st) noexcept nogil
# Feeds text that follows all text fed before. If `armed` is False matches are passed over (min_tokens), but partial matches
# are still tracked. Stops reading at the first completed match. After a call without a hit st.held is up to date.
cdef StopHit stops_feed(const StopSet *s, StopState *st, const char *text, size_t n, bint armed) noexcept nogil
