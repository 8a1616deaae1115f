"""The sockets of a lane towards its engines: an input that they read requests from, and an output that they write to."""
from libc.stdint cimport uint64_t

from fastfront._speedups.zmtp cimport Zmtp


cdef struct Peer:               # one connection
    Zmtp zmtp
    int fd                      # -1: closed
    bint is_input
    int engine                  # input: whose it is; output: whose message was the newest; -1: unknown
    bint queued                 # in a list of those that may have messages
    bint closing                # the peer has closed it: it goes when its messages have been taken
    bint writing                # waits until it can be written to
    double heard_at, asked_at, since
    const char *reason          # why it was dropped
    Peer *next                  # in its list
    size_t place                # in EngineSockets.peers


cdef struct PeerList:
    Peer *first
    Peer *last


cdef class EngineSockets:       # one thread at a time; `wake` by any
    cdef int epoll_fd, input_fd, output_fd, wake_fd
    cdef Peer **peers
    cdef size_t n_peers, cap_peers
    cdef Peer **by_engine       # connected inputs
    cdef int engines
    cdef PeerList outputs, inputs, dropped
    cdef bint tcp, woken, unsent, deaf
    cdef double heartbeat_s, silence_s, now, beat_at, woke_at
    cdef readonly double busy_s         # time not spent waiting; others may read it

    cdef bint calls(self) noexcept nogil                # something is there for Python: wake, take_inputs, take_dropped
    cdef void wait_native(self, int timeout_ms) noexcept nogil
    cdef Peer *next_output(self) noexcept nogil         # one with a whole message, or NULL
    cdef void flush_native(self) noexcept nogil
    cdef void wake_owner(self) noexcept nogil           # `wake`

    cdef int watch(self, int fd, uint64_t key) noexcept nogil
    cdef void shut(self) noexcept nogil
    cdef void accept_all(self, bint is_input) noexcept nogil
    cdef void read(self, Peer *peer) noexcept nogil
    cdef bint parse(self, Peer *peer) noexcept nogil
    cdef int write(self, Peer *peer) noexcept nogil
    cdef void drop(self, Peer *peer, const char *reason) noexcept nogil
    cdef void join(self, Peer *peer) noexcept nogil
    cdef void beat(self) noexcept nogil
    cdef Peer *front(self, PeerList *queue) noexcept nogil
