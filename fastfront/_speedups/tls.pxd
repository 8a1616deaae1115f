"""The server's side of TLS by OpenSSL 3, without I/O: what a client sends goes in, what is to be sent to it comes out.

A `tls` is one connection's; one thread uses it at a time.
"""
from libc.stddef cimport size_t
from fastfront._speedups.buffers cimport Buf


cdef class TlsContext:
    cdef void *handle                   # SSL_CTX

    cdef int trust(self, bytes path) except -1


cdef void *tls_new(void *context) noexcept nogil        # NULL: memory
cdef void tls_free(void *tls) noexcept nogil            # may be NULL
# Takes n bytes from the client, and appends to `plain` what they say. 0; 1: it says nothing more; -1: this is no TLS, or its
# certificate will not do, or memory is out. Afterwards, as after the functions below, there may be something to send.
cdef int tls_open(void *tls, const char *sealed, size_t n, Buf *plain) noexcept nogil
# What the client is to be told: 0, or -1.
cdef int tls_seal(void *tls, const char *plain, size_t n) noexcept nogil
cdef void tls_goodbye(void *tls) noexcept nogil         # nothing more will be said
# Takes up to n bytes of what is to be sent; how many, 0: no more.
cdef size_t tls_take(void *tls, char *to, size_t n) noexcept nogil
