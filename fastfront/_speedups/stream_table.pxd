"""The streams of a lane by slot. Slot and generation are part of a request's id on the wire, so finding it hashes nothing."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint16_t, uint32_t
from fastfront._speedups.buffers cimport Buf
from fastfront._speedups.call cimport Choice


cdef class StreamTable:                 # owned by one lane thread
    cdef Choice **table                 # n_slots places; NULL: free
    cdef uint32_t *generations          # of every slot, counted up when it is freed
    cdef uint32_t *free_slots
    cdef uint32_t n_slots, n_free
    cdef Buf abort_ids                  # requests the engines must stop: uint16 engine, uint32 length, id; and so on
    cdef uint16_t *detached             # engine index of every choice detached since settle_detached
    cdef size_t n_detached, cap_detached
    cdef readonly uint32_t live         # choices in the table
    cdef readonly int64_t prefill_tokens        # prompt tokens of those that have no token yet
    cdef readonly list finished_engines # engine index of every choice that has left the table; the lane empties it

    cdef int grow(self) except -1
    cdef int reserve(self, uint32_t n) except -1                # room for n choices
    cdef void enter(self, Choice *ch) noexcept nogil            # after reserve: gives it a slot
    cdef void prefilled(self, Choice *ch) noexcept nogil        # its first token is here
    cdef void detach(self, Choice *ch) noexcept nogil           # takes it out, if it is in
    cdef Choice *find(self, const char *id, uint32_t n) noexcept nogil      # by wire id; NULL: none, or one of an earlier time
    cdef int abort(self, const Choice *ch) noexcept nogil       # notes that its engine must stop it. 0, or -1: memory
    cdef int settle_detached(self) except -1                    # moves `detached` to `finished_engines`


# Eight lower-case hex digits. 0, or -1 when memory is out.
cdef int put_hex8(Buf *b, uint32_t v) noexcept nogil
