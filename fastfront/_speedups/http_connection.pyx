# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False
"""Accepting, writing and closing; see the .pxd for who may do what."""
from libc.errno cimport EAGAIN, ECONNABORTED, EINTR, EPROTO, errno
from libc.stdint cimport uint16_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset, strlen
from posix.unistd cimport close

from fastfront._speedups.buffers cimport Buf, buf_free, buf_init, buf_put, buf_reserve
from fastfront._speedups.clocks cimport monotonic_coarse
from fastfront._speedups.epoll cimport (
    EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLLET, EPOLLIN, EPOLLOUT, EPOLLRDHUP, KEY_LISTEN, KEY_QUIT, epoll_create1,
    epoll_ctl, epoll_event,
)
from fastfront._speedups.http_message cimport message_free, message_init, message_next
from fastfront._speedups.tls cimport tls_free, tls_goodbye, tls_new, tls_open, tls_seal, tls_take


cdef extern from "<pthread.h>" nogil:
    int pthread_mutex_init(pthread_mutex_t *, void *)
    int pthread_mutex_destroy(pthread_mutex_t *)
    int pthread_mutex_lock(pthread_mutex_t *)
    int pthread_mutex_trylock(pthread_mutex_t *)
    int pthread_mutex_unlock(pthread_mutex_t *)


cdef extern from *:
    """
    #define _FASTFRONT_SOCKETS
    #include <arpa/inet.h>
    #include <netinet/in.h>
    #include <netinet/tcp.h>
    #include <sys/eventfd.h>
    #include <sys/socket.h>
    """


cdef extern from "<sys/eventfd.h>" nogil:
    int eventfd(unsigned, int)
    int EFD_CLOEXEC, EFD_NONBLOCK


cdef extern from "<sys/socket.h>" nogil:
    cdef struct sockaddr:
        unsigned short sa_family
    cdef struct sockaddr_storage:
        unsigned short ss_family
    cdef struct linger:
        int l_onoff
        int l_linger
    ctypedef unsigned socklen_t
    int accept4(int, sockaddr *, socklen_t *, int)
    ssize_t send(int, const void *, size_t, int)
    ssize_t recv(int, void *, size_t, int)
    int shutdown(int, int)
    int setsockopt(int, int, int, const void *, socklen_t)
    int SOCK_NONBLOCK, SOCK_CLOEXEC, MSG_NOSIGNAL, MSG_DONTWAIT, MSG_PEEK, SHUT_RD, SHUT_WR, SHUT_RDWR, AF_INET, AF_INET6
    int SOL_SOCKET, SO_KEEPALIVE, SO_LINGER


cdef extern from "<netinet/in.h>" nogil:
    int IPPROTO_TCP
    cdef struct in6_addr:
        pass
    cdef struct in_addr:
        pass
    cdef struct sockaddr_in:
        uint16_t sin_port
        in_addr sin_addr
    cdef struct sockaddr_in6:
        uint16_t sin6_port
        in6_addr sin6_addr
    uint16_t ntohs(uint16_t)


cdef extern from "<netinet/tcp.h>" nogil:
    int TCP_NODELAY


cdef extern from "<arpa/inet.h>" nogil:
    const char *inet_ntop(int, const void *, char *, socklen_t)


cdef enum:
    SMALL = 4096                # pieces up to this size are framed on the stack
    KEPT_BYTES = 65536          # a buffer larger than this is given back when its request is over
    RECORD_BYTES = 16384 + 512  # more than a TLS record has
    UNREAD_BYTES = 1 << 18      # of answers that the client has not read: beyond, its next request waits


cdef double LINGER_S = 10.0             # how long a client may go on sending what nobody wants any more


# ---- the listener ------------------------------------------------------------------------------------------------------


cdef int listener_init(Listener *l, int listen_fd, uint32_t limit, double keep_alive_s, double stall_s) noexcept nogil:
    cdef epoll_event e
    memset(l, 0, sizeof(Listener))
    pthread_mutex_init(&l.lock, NULL)
    l.listen_fd = listen_fd
    l.limit = limit
    l.keep_alive_s = keep_alive_s
    l.stall_s = stall_s
    l.sweep_at = monotonic_coarse() + 1
    l.table = <Conn **>calloc(limit, sizeof(void *))
    l.free_places = <uint32_t *>calloc(limit, sizeof(uint32_t))
    l.epoll_fd = epoll_create1(EPOLL_CLOEXEC)
    l.quit_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
    if l.table == NULL or l.free_places == NULL or l.epoll_fd < 0 or l.quit_fd < 0:
        return -1
    e.events = EPOLLIN
    e.data.u64 = KEY_QUIT
    if epoll_ctl(l.epoll_fd, EPOLL_CTL_ADD, l.quit_fd, &e) < 0:
        return -1
    return watch_listener(l, EPOLL_CTL_ADD)


cdef int watch_listener(Listener *l, int operation) noexcept nogil:
    """Events for clients that wait; a change of what is watched already looks again, and an event comes at once."""
    cdef epoll_event e
    e.events = EPOLLIN | EPOLLET
    e.data.u64 = KEY_LISTEN
    return epoll_ctl(l.epoll_fd, operation, l.listen_fd, &e)


cdef int watch_connection(Conn *c, int operation) noexcept nogil:
    """The same for a connection."""
    cdef epoll_event e
    e.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET
    e.data.u64 = <uint64_t>c.generation << 32 | c.index
    return epoll_ctl(c.listener.epoll_fd, operation, c.fd, &e)


cdef void accept_again(Listener *l) noexcept nogil:
    """Goes on accepting if that has stopped and there is room. Under the listener's lock."""
    if l.full and l.open < l.limit and not l.stopping:
        l.full = False
        watch_listener(l, EPOLL_CTL_MOD)


cdef void listener_free(Listener *l) noexcept nogil:
    """No thread uses it any more."""
    cdef uint32_t k
    cdef Conn *c
    for k in range(l.n_used):
        c = l.table[k]
        if c.fd >= 0:
            close(c.fd)
            tls_free(c.tls)
        buf_free(&c.out)
        buf_free(&c.head)
        buf_free(&c.rest)
        message_free(&c.message)
        pthread_mutex_destroy(&c.lock)
        free(c)
    l.n_used = 0
    free(l.table)
    free(l.free_places)
    l.table = NULL
    l.free_places = NULL
    if l.epoll_fd >= 0:
        close(l.epoll_fd)
    if l.quit_fd >= 0:
        close(l.quit_fd)
    l.epoll_fd = -1
    l.quit_fd = -1


cdef Conn *take_place(Listener *l) noexcept nogil:
    """A Conn for a new connection, NULL without memory. Under the listener's lock; there is room."""
    cdef Conn *c
    if l.n_free:
        l.n_free -= 1
        c = l.table[l.free_places[l.n_free]]
    else:
        c = <Conn *>calloc(1, sizeof(Conn))
        if c == NULL:
            return NULL
        pthread_mutex_init(&c.lock, NULL)
        c.listener = l
        c.index = l.n_used
        c.fd = -1
        message_init(&c.message)
        l.table[l.n_used] = c
        l.n_used += 1
    l.open += 1
    return c


cdef void leave_place(Conn *c) noexcept nogil:
    """A Conn without a connection is there for the next one. Under the listener's lock."""
    cdef Listener *l = c.listener
    l.free_places[l.n_free] = c.index
    l.n_free += 1
    l.open -= 1


cdef int listener_accept(Listener *l) noexcept nogil:
    cdef sockaddr_storage address
    cdef socklen_t size
    cdef Conn *c
    cdef int fd, error, one = 1
    cdef void *tls
    while True:
        pthread_mutex_lock(&l.lock)     # the place comes first: other threads accept too
        c = NULL if l.open >= l.limit or l.stopping else take_place(l)
        l.full = c == NULL              # the next connection that closes, or the next sweep, tries again
        pthread_mutex_unlock(&l.lock)
        if c == NULL:
            return 0
        size = sizeof(address)
        fd = accept4(l.listen_fd, <sockaddr *>&address, &size, SOCK_NONBLOCK | SOCK_CLOEXEC)
        if fd < 0:
            error = errno
            pthread_mutex_lock(&l.lock)
            leave_place(c)
            if error == EAGAIN:
                accept_again(l)         # others may have seen no room
            else:
                l.full = True           # no descriptor or memory, or what befell one client: others may wait
            pthread_mutex_unlock(&l.lock)
            if error == EINTR or error == ECONNABORTED or error == EPROTO:
                continue
            return 0
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one))
        if address.ss_family == AF_INET or address.ss_family == AF_INET6:
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one))
        pthread_mutex_lock(&l.lock)
        tls = tls_new(l.tls_context) if l.tls_context != NULL else NULL
        pthread_mutex_unlock(&l.lock)
        pthread_mutex_lock(&c.lock)
        c.tls = tls
        name_peer(c, &address)
        message_free(&c.message)
        message_init(&c.message)
        c.fd = fd
        c.serial += 1
        c.reading = False
        c.missed = False
        c.complete = False
        c.answered = False
        c.begun = False
        c.half = False
        c.gone = False
        c.closing = False
        c.lingering = False
        c.last = False
        c.active_at = monotonic_coarse()
        if (l.tls_context != NULL and tls == NULL) or watch_connection(c, EPOLL_CTL_ADD) < 0:
            conn_close(c)
        pthread_mutex_unlock(&c.lock)


cdef void name_peer(Conn *c, sockaddr_storage *address) noexcept nogil:
    cdef char text[48]
    cdef sockaddr_in *v4 = <sockaddr_in *>address
    cdef sockaddr_in6 *v6 = <sockaddr_in6 *>address
    c.peer[0] = 0
    if address.ss_family == AF_INET:
        if inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text)) != NULL:
            snprintf(c.peer, sizeof(c.peer), b"%s:%d", text, <int>ntohs(v4.sin_port))
    elif address.ss_family == AF_INET6:
        if inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text)) != NULL:
            snprintf(c.peer, sizeof(c.peer), b"%s:%d", text, <int>ntohs(v6.sin6_port))


cdef Conn *listener_find(Listener *l, uint64_t key) noexcept nogil:
    cdef Conn *c = l.table[<uint32_t>key]
    pthread_mutex_lock(&c.lock)
    if c.fd < 0 or c.generation != <uint32_t>(key >> 32):
        pthread_mutex_unlock(&c.lock)
        return NULL
    return c


cdef bint input_waits(const Conn *c) noexcept nogil:
    """Whether something has come that nobody has looked at. Not while there is a reader."""
    cdef char first
    return c.rest.len or recv(c.fd, &first, 1, MSG_PEEK | MSG_DONTWAIT) > 0


cdef void listener_sweep(Listener *l, bint all_idle) noexcept nogil:
    cdef uint32_t k, n
    cdef Conn *c
    cdef double idle_s, now = monotonic_coarse()
    pthread_mutex_lock(&l.lock)
    n = l.n_used
    accept_again(l)
    pthread_mutex_unlock(&l.lock)
    for k in range(n):
        c = l.table[k]
        if pthread_mutex_trylock(&c.lock) != 0:
            continue                    # at work
        if c.fd >= 0 and not c.reading and not (c.complete and not c.answered):
            idle_s = now - c.active_at
            if c.lingering:
                if idle_s > LINGER_S:
                    conn_close(c)
            elif c.closing:
                if idle_s > l.stall_s:
                    conn_close(c)       # the client does not read its answer
            elif c.message.head_complete:
                if c.answered:
                    if idle_s > l.stall_s:
                        conn_close(c)   # the rest of the body does not come
                elif idle_s > l.stall_s and c.request != NULL and not c.gone:
                    c.gone = True
                    shutdown(c.fd, SHUT_RDWR)   # an event follows, and the reader tells who waits for the body
            elif c.out.len != c.out_at:
                if idle_s > l.stall_s:
                    conn_close(c)
            elif c.message.begun:
                if idle_s > l.keep_alive_s:
                    conn_close(c)
            elif all_idle or idle_s > l.keep_alive_s:
                if input_waits(c):      # it is not idle: threads are busy, or no event has told of it
                    watch_connection(c, EPOLL_CTL_MOD)
                else:
                    conn_close(c)
        pthread_mutex_unlock(&c.lock)


# ---- one connection ------------------------------------------------------------------------------------------------------


cdef void conn_lock(Conn *c) noexcept nogil:
    pthread_mutex_lock(&c.lock)


cdef void conn_unlock(Conn *c) noexcept nogil:
    pthread_mutex_unlock(&c.lock)


cdef void conn_close(Conn *c) noexcept nogil:
    """The socket is closed and the place is free. Nobody reads, and no object waits."""
    cdef Listener *l = c.listener
    if c.tls != NULL:
        if c.out.len == c.out_at:
            say_goodbye(c)
        tls_free(c.tls)
        c.tls = NULL
    close(c.fd)                         # epoll forgets it
    c.fd = -1
    c.generation += 1
    c.serial += 1
    c.out_at = 0
    buf_free(&c.out)
    buf_free(&c.head)
    buf_free(&c.rest)
    message_free(&c.message)
    pthread_mutex_lock(&l.lock)
    leave_place(c)
    accept_again(l)
    pthread_mutex_unlock(&l.lock)


cdef void conn_linger(Conn *c) noexcept nogil:
    """Says that nothing more comes, and drops what the client still sends: closing at once would reset the connection, and the
    client might never see its answer."""
    c.closing = True
    if c.tls != NULL and c.out.len == c.out_at:
        say_goodbye(c)
    if c.out.len == c.out_at:
        shutdown(c.fd, SHUT_WR)
        c.lingering = True
        c.active_at = monotonic_coarse()


cdef void conn_put(Conn *c, const char *data, size_t n) noexcept nogil:
    """Writes, or keeps what the kernel does not take. A failure shows as `gone`."""
    if c.tls == NULL:
        put_raw(c, data, n)
    elif not c.gone:
        if tls_seal(c.tls, data, n) < 0:
            c.gone = True
        put_sealed(c)


cdef void put_sealed(Conn *c) noexcept nogil:
    """Writes what TLS has to send."""
    cdef char record[RECORD_BYTES]
    cdef size_t n
    while True:
        n = tls_take(c.tls, record, RECORD_BYTES)
        if n == 0:
            return
        put_raw(c, record, n)


cdef void say_goodbye(Conn *c) noexcept nogil:
    """So that the client knows that nothing has been cut off. Again does nothing."""
    if not c.gone:
        tls_goodbye(c.tls)
        put_sealed(c)


cdef int conn_open(Conn *c, const char *sealed, size_t n, Buf *plain) noexcept nogil:
    cdef int r
    cdef size_t kept
    pthread_mutex_lock(&c.lock)
    r = tls_open(c.tls, sealed, n, plain)
    kept = c.out.len - c.out_at
    put_sealed(c)                       # the handshake's next part, or why it fails
    if conn_unread(c) and c.out.len - c.out_at > kept:
        r = -1                          # asks for ever new keys and reads none
    pthread_mutex_unlock(&c.lock)
    return r


cdef void put_raw(Conn *c, const char *data, size_t n) noexcept nogil:
    cdef ssize_t r = 0
    if c.gone:
        return
    if c.out.len == c.out_at:
        while True:
            r = send(c.fd, data, n, MSG_NOSIGNAL | MSG_DONTWAIT)
            if r >= 0 or errno != EINTR:
                break
        if r == <ssize_t>n:
            return
        if r < 0:
            if errno != EAGAIN:
                c.gone = True
                return
            r = 0
        c.out.len = 0
        c.out_at = 0
    if buf_put(&c.out, data + r, n - r) < 0:
        c.gone = True


cdef void conn_flush(Conn *c) noexcept nogil:
    """The kernel takes more again."""
    cdef ssize_t r
    while c.out_at < c.out.len and not c.gone:
        r = send(c.fd, c.out.data + c.out_at, c.out.len - c.out_at, MSG_NOSIGNAL | MSG_DONTWAIT)
        if r < 0:
            if errno == EINTR:
                continue
            if errno != EAGAIN:
                c.gone = True
            break
        c.out_at += r
        c.active_at = monotonic_coarse()
    if c.out_at == c.out.len or c.gone:
        c.out.len = 0
        c.out_at = 0
        if c.out.cap > KEPT_BYTES:
            buf_free(&c.out)
        if c.closing and not c.reading and c.complete and c.answered:
            conn_finish(c)
            return
        if c.closing and not c.lingering:
            conn_linger(c)
    if c.missed and not c.reading and not c.complete:
        read_held(c)


cdef bint conn_unread(const Conn *c) noexcept nogil:
    return c.out.len - c.out_at > UNREAD_BYTES and not c.gone


cdef void read_held(Conn *c) noexcept nogil:
    """Goes on reading a connection whose input was held back, as soon as its answers have been read."""
    c.missed = conn_unread(c)
    if not c.missed:
        watch_connection(c, EPOLL_CTL_MOD)


cdef PyObject *conn_next(Conn *c) noexcept nogil:
    cdef PyObject *watcher = c.watcher
    c.watcher = NULL
    c.serial += 1
    if c.last or c.gone or c.listener.stopping or (c.half and not input_waits(c)):
        conn_finish(c)
        return watcher
    c.complete = False
    c.answered = False
    c.begun = False
    message_next(&c.message)
    if c.missed or c.rest.len:
        read_held(c)
    return watcher


cdef void conn_finish(Conn *c) noexcept nogil:
    if not c.gone and input_waits(c):   # closing now would reset the connection, and the client might never see its answer
        buf_free(&c.rest)
        c.complete = False
        conn_linger(c)
        read_held(c)
    elif c.gone or c.out.len == c.out_at:
        conn_close(c)
    else:
        c.closing = True


cdef PyObject *answered(Conn *c) noexcept nogil:
    """The answer is complete."""
    cdef PyObject *watcher
    c.answered = True
    c.active_at = monotonic_coarse()
    if c.complete:
        return conn_next(c)
    watcher = c.watcher                 # the rest of the body is read and dropped first
    c.watcher = NULL
    if c.message.expects and c.request == NULL:
        c.last = True                   # it may send its body or not: only a new connection is certain
        conn_linger(c)
    return watcher


cdef int conn_begin(Conn *c, uint64_t serial, const char *head, size_t n, bint framed) noexcept nogil:
    cdef int r = -1
    pthread_mutex_lock(&c.lock)
    if c.serial == serial and not c.answered:
        c.begun = True
        c.framed = framed
        c.head.len = 0
        r = buf_put(&c.head, head, n)
    pthread_mutex_unlock(&c.lock)
    return r


cdef int conn_send(Conn *c, uint64_t serial, const char *data, size_t n, Piece piece, PyObject **drop) noexcept nogil:
    cdef char small[SMALL]
    cdef char *to = small
    cdef size_t need, at = 0
    cdef bint whole
    cdef Buf big                        # what is to be encrypted and does not fit into `small`
    cdef Buf *out = &c.out
    drop[0] = NULL
    pthread_mutex_lock(&c.lock)
    if c.serial != serial or c.answered:
        pthread_mutex_unlock(&c.lock)
        return -1
    need = c.head.len + n + 32
    whole = need <= SMALL and (c.out.len == c.out_at or c.tls != NULL)
    if c.tls != NULL:
        buf_init(&big)
        out = &big
    if not whole:
        if buf_reserve(out, need) < 0:
            c.gone = True
        else:
            to = out.data + out.len
    if not c.gone:
        if c.head.len:
            memcpy(to, c.head.data, c.head.len)
            at = c.head.len
            buf_free(&c.head)
        if c.framed:
            if n:
                at += put_hex(to + at, n)
                memcpy(to + at, data, n)
                at += n
                to[at] = c'\r'
                to[at + 1] = c'\n'
                at += 2
            if piece == PIECE_LAST:
                memcpy(to + at, b"0\r\n\r\n", 5)
                at += 5
        else:
            memcpy(to + at, data, n)
            at += n
        if whole or c.tls != NULL:
            if at:
                conn_put(c, to, at)
        else:
            c.out.len += at
            conn_flush(c)
    if c.tls != NULL and not whole:
        buf_free(&big)
    if piece == PIECE_LAST:
        drop[0] = answered(c)
    elif c.gone:
        pthread_mutex_unlock(&c.lock)
        return -1
    pthread_mutex_unlock(&c.lock)
    return 0


cdef inline size_t put_hex(char *to, size_t n) noexcept nogil:
    """A chunk's size line."""
    cdef char digits[16]
    cdef int k = 0, d
    cdef size_t at = 0
    while n:
        d = n & 15
        digits[k] = <char>(48 + d if d < 10 else 87 + d)
        n >>= 4
        k += 1
    while k:
        k -= 1
        to[at] = digits[k]
        at += 1
    to[at] = c'\r'
    to[at + 1] = c'\n'
    return at + 2


cdef int conn_answer(Conn *c, uint64_t serial, const char *data, size_t n, PyObject **drop) noexcept nogil:
    drop[0] = NULL
    pthread_mutex_lock(&c.lock)
    if c.serial != serial or c.answered or c.begun:
        pthread_mutex_unlock(&c.lock)
        return -1
    conn_put(c, data, n)
    drop[0] = answered(c)
    pthread_mutex_unlock(&c.lock)
    return 0


cdef void conn_abandon(Conn *c, uint64_t serial, PyObject **drop) noexcept nogil:
    cdef const char *failure = b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    cdef linger reset
    reset.l_onoff = 1
    reset.l_linger = 0
    drop[0] = NULL
    pthread_mutex_lock(&c.lock)
    if c.serial == serial and not c.answered:
        c.last = True
        if c.begun and not c.head.len and not c.gone:   # some of it has left: its end would look like that of the whole
            c.gone = True
            if not c.framed:            # then it ends as the connection does, which is to be reset
                setsockopt(c.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset))
            shutdown(c.fd, SHUT_RDWR if c.framed else SHUT_RD)
        elif not c.half:
            conn_put(c, failure, strlen(failure))
        drop[0] = answered(c)
    pthread_mutex_unlock(&c.lock)
