"""The clocks, without Python."""
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec


cdef inline double unix_time() noexcept nogil:
    cdef timespec t
    clock_gettime(CLOCK_REALTIME, &t)
    return t.tv_sec + t.tv_nsec * 1e-9


cdef inline double monotonic() noexcept nogil:
    cdef timespec t
    clock_gettime(CLOCK_MONOTONIC, &t)
    return t.tv_sec + t.tv_nsec * 1e-9


cdef extern from "<time.h>" nogil:
    int CLOCK_MONOTONIC_COARSE


cdef inline double monotonic_coarse() noexcept nogil:
    """Some milliseconds behind at most, for a fraction of the cost."""
    cdef timespec t
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t)
    return t.tv_sec + t.tv_nsec * 1e-9
