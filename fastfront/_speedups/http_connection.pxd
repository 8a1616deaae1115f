"""Client connections: what is read from them and written to them.

Any number of threads share one epoll. A Conn is read by one thread at a time (`reading`); answers are written by whoever has them,
mostly lanes, straight to the socket. Everything else of a Conn is under its lock, and no Python runs under it. A Conn's memory
is never given back, only used again: `generation` tells one socket from the next, `serial` one request from the next, and
whoever comes with an old one is told that the client has gone.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t, uint64_t
from cpython.object cimport PyObject
from fastfront._speedups.buffers cimport Buf
from fastfront._speedups.http_message cimport Message


cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass


cdef struct Conn:
    pthread_mutex_t lock
    Listener *listener
    uint32_t index              # place in the listener's table
    uint32_t generation         # of the socket
    uint64_t serial             # of the request at hand
    int fd                      # -1: no connection
    bint reading                # a thread is at the socket's receiving side; it alone touches `message` and `rest`
    bint missed                 # something came while that was so, or while an answer was awaited or unread
    bint complete               # the request at hand is here to its end
    bint answered               # its answer has been handed over, or none will be
    bint half                   # the client has closed its side, and may still read
    bint gone                   # nobody reads any more: the connection is broken
    bint closing                # to be closed once `out` is empty
    bint lingering              # told to the client (FIN); what it still sends is dropped
    bint begun                  # a stream's head has been handed over
    bint framed                 # the stream at hand is in chunks
    bint last                   # no request follows on this connection
    double active_at            # when something was last read, or an answer ended (monotonic s)
    size_t out_at               # bytes of `out` that are written
    Buf out                     # what the kernel has not taken yet
    Buf head                    # head of a stream, goes out with its first piece
    Buf rest                    # input behind the request at hand
    Message message
    void *tls                   # NULL without TLS; all but `message`, `rest` and `head` is ciphertext with it
    PyObject *watcher           # called when the client goes while its request is being answered
    PyObject *request           # what waits for the body
    uint64_t body_limit         # how large it may be
    char peer[64]


cdef struct Listener:
    pthread_mutex_t lock        # of what follows up to `open`; taken after a Conn's
    Conn **table                # `limit` places
    uint32_t limit, n_used, n_free
    uint32_t *free_places
    uint32_t open               # connections
    bint full                   # accepting waits for a place
    bint stopping               # answers end their connections
    void *tls_context           # of connections from here on; NULL: no TLS
    int epoll_fd
    int listen_fd
    int quit_fd                 # readable once the threads shall end
    double keep_alive_s
    double stall_s              # how long a body or an answer may make no progress
    double sweep_at


# How an answer goes on.
cdef enum Piece:
    PIECE_MORE
    PIECE_LAST


# -1: memory, or errno.
cdef int listener_init(Listener *l, int listen_fd, uint32_t limit, double keep_alive_s, double stall_s) noexcept nogil
cdef void listener_free(Listener *l) noexcept nogil
cdef int listener_accept(Listener *l) noexcept nogil                    # all that wait
cdef Conn *listener_find(Listener *l, uint64_t key) noexcept nogil      # locked, or NULL: of an earlier time
# Closes what idles too long, sends incompletely or lingers. `all_idle`: every connection without a request.
cdef void listener_sweep(Listener *l, bint all_idle) noexcept nogil

# Under the Conn's lock.
cdef void conn_flush(Conn *c) noexcept nogil
cdef bint conn_unread(const Conn *c) noexcept nogil     # the client has to read before it is given more answers
cdef void conn_linger(Conn *c) noexcept nogil
cdef void conn_close(Conn *c) noexcept nogil
cdef PyObject *conn_next(Conn *c) noexcept nogil        # request and answer are through; the result is to be released with the GIL
cdef void conn_finish(Conn *c) noexcept nogil           # the same without a next request: closes, once all is written
cdef void conn_put(Conn *c, const char *data, size_t n) noexcept nogil
# Decrypts n bytes that have been received, and appends what they say to `plain`. 0; 1: nothing more comes; -1: no TLS, or memory.
cdef int conn_open(Conn *c, const char *sealed, size_t n, Buf *plain) noexcept nogil      # takes the lock
cdef void conn_lock(Conn *c) noexcept nogil
cdef void conn_unlock(Conn *c) noexcept nogil

# For whoever answers; any thread. 0, or -1: the client has gone, or the request is answered (to conn_answer: or a stream is its
# answer). `drop` gets an object to be released with the GIL, or NULL.
cdef int conn_begin(Conn *c, uint64_t serial, const char *head, size_t n, bint framed) noexcept nogil
cdef int conn_send(Conn *c, uint64_t serial, const char *data, size_t n, Piece piece, PyObject **drop) noexcept nogil
cdef int conn_answer(Conn *c, uint64_t serial, const char *data, size_t n, PyObject **drop) noexcept nogil
# Nobody will answer the request any more, or go on doing so: a stream is cut off. Does nothing if it has been answered.
cdef void conn_abandon(Conn *c, uint64_t serial, PyObject **drop) noexcept nogil
