"""ZMTP 3.1 without sockets: the bytes of one connection in, frames of whole messages out; and the other way round.

The side that listens, NULL security. Source: rfc.zeromq.org/spec/23 (ZMTP 3.0) and /37 (3.1). One thread owns a Zmtp at a time.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t

from fastfront._speedups.buffers cimport Buf


cdef enum ZmtpResult:
    ZMTP_MEMORY = -2
    ZMTP_BAD = -1           # the peer broke the protocol: `fault` says how
    ZMTP_MORE = 0           # no whole message yet
    ZMTP_MESSAGE = 1        # `frames` are a message


cdef struct Frame:
    size_t at               # behind Zmtp.begin
    size_t size


cdef struct Zmtp:
    int state
    bint router             # we are a ROUTER and the peer must be a DEALER; else PULL and PUSH
    Buf input
    size_t begin            # where the message at hand begins
    size_t scanned          # what lies before has been looked at
    bint whole              # a message is at hand: zmtp_next gives the same until zmtp_release
    Frame *frames
    size_t n_frames, cap_frames
    uint8_t identity[255]   # what the peer calls itself
    size_t identity_len
    Buf output              # to be written to the connection
    const char *fault


cdef int zmtp_init(Zmtp *z, bint router) noexcept nogil             # 0, or -1: memory. Puts the greeting into `output`
cdef void zmtp_free(Zmtp *z) noexcept nogil
cdef bint zmtp_is_open(const Zmtp *z) noexcept nogil                # the peer has said who it is
cdef char *zmtp_space(Zmtp *z, size_t *n) noexcept nogil            # where to read up to n bytes to; NULL: memory
cdef void zmtp_took(Zmtp *z, size_t n) noexcept nogil               # n bytes have been read there
cdef int zmtp_next(Zmtp *z) noexcept nogil                          # ZmtpResult; answers commands into `output`
cdef void zmtp_release(Zmtp *z) noexcept nogil                      # the message at hand is done with
cdef const unsigned char *zmtp_frame(const Zmtp *z, size_t k) noexcept nogil
cdef int zmtp_put(Zmtp *z, const char *p, size_t n, bint more) noexcept nogil   # a frame into `output`. 0, or -1: memory
cdef int zmtp_ping(Zmtp *z) noexcept nogil                          # asks whether the peer is there. 0, or -1: memory
