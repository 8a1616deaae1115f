# cython: language_level=3, freethreading_compatible=True
"""The C library's heap."""

cdef extern from *:
    """
    #if defined(__GLIBC__)
    #include <malloc.h>
    static int fastfront_trim(void) { return malloc_trim(0); }
    #else
    static int fastfront_trim(void) { return 0; }
    #endif
    """
    int fastfront_trim() nogil


def trim() -> bool:
    """Gives free memory back to the system, where the C library can. True if there was some.

    Reading a large tokenizer leaves more free memory than it keeps.
    """
    cdef int found
    with nogil:
        found = fastfront_trim()
    return found != 0
