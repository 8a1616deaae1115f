"""What every engine has to do: counted by any thread, under one short lock that runs no Python."""
cimport cython
from libc.stdint cimport int64_t


cdef struct EngineLoad:
    int64_t in_flight           # requests
    int64_t waiting             # of them, as the engine says
    double kv_usage             # of its KV cache, 0 to 1
    bint alive


cdef class EngineLoads:
    cdef cython.pymutex lock
    cdef EngineLoad *engines            # by rank; those before the first are never alive
    cdef int first, stop                # ranks
    cdef int next                       # where ties begin to be looked for

    cdef double load_of(self, int engine) noexcept nogil
    cdef int least(self) noexcept nogil
    cdef int take(self, int known) noexcept nogil
    cdef list chosen(self, int count, object rank, int known)
    cdef int give_back(self, list engines) except -1
    cdef int checked(self, int engine) except -1
