# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False
"""An HTTP/1.1 server whose threads share one epoll: whichever is free takes the next request, whatever connection it came on, and
goes with it all the way to the lane. Answers are written by whoever has them, without a thread in between."""
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport strlen

from fastfront._speedups.buffers cimport Buf, buf_free, buf_init, buf_put
from fastfront._speedups.clocks cimport monotonic_coarse
from fastfront._speedups.epoll cimport (
    EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT, EPOLLRDHUP, KEY_LISTEN, KEY_QUIT, epoll_event, epoll_wait,
)
from fastfront._speedups.http_connection cimport (
    Conn, Listener, conn_abandon, conn_close, conn_finish, conn_flush, conn_linger, conn_lock, conn_next, conn_open, conn_put,
    conn_unlock, conn_unread, listener_accept, listener_find, listener_free, listener_init, listener_sweep, pthread_mutex_t,
)
from fastfront._speedups.http_message cimport (
    MESSAGE_BAD, MESSAGE_COMPLETE, MESSAGE_LARGE_HEAD, MESSAGE_MEMORY, MESSAGE_MORE, Message, MessageState, message_feed,
    message_method,
)
from fastfront._speedups.http_request cimport HttpRequest
from fastfront._speedups.tls cimport TlsContext

import logging


cdef extern from "<sys/eventfd.h>" nogil:
    int eventfd_write(int, uint64_t)


cdef extern from "<pthread.h>" nogil:
    int pthread_mutex_lock(pthread_mutex_t *)
    int pthread_mutex_unlock(pthread_mutex_t *)


cdef extern from "<sys/socket.h>" nogil:
    ssize_t recv(int, void *, size_t, int)
    int MSG_DONTWAIT


cdef enum:
    RECV_BYTES = 65536
    DROPPED_BYTES = 32 << 20    # of an unwanted body, until the connection is closed instead
    SWEEP_MS = 1000


cdef enum Action:               # what an event asks of Python
    NOTHING
    QUIT
    BEGIN                       # a request's head is here, and perhaps its body
    BODY                        # the body of a begun request is here, or is too large
    CUT                         # the client left inside its body
    GONE                        # the client left while its request is being answered


cdef struct Step:
    Conn *conn
    Action action
    PyObject *object            # GONE: the watcher; CUT and BODY: the request; owned
    Buf body                    # BODY: the body, if it is complete
    bint more                   # the body is not complete, and the connection is still being read
    uint64_t serial


cdef const char *BAD_REQUEST = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 30\r\nconnection: close\r\n\r\n"
    b"Invalid HTTP request received.")
cdef const char *LARGE_HEAD = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
cdef const char *CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
log = logging.getLogger("fastfront.http")


cdef class HttpServer:
    """`intake(request)` is called on the threads that are in `run`; it must not block for long. Takes over `listen_fd`, which listens.

    A connection is closed that idles for `keep_alive_s`, or on which a body or the reading of an answer makes no progress for
    `stall_s`, once nothing more is written to it.
    """
    cdef Listener listener
    cdef object intake
    cdef TlsContext tls
    cdef bint made

    def __init__(self, int listen_fd, object intake not None, uint32_t max_connections, double keep_alive_s,
                 double stall_s=120.0, TlsContext tls=None):
        if self.made:
            raise RuntimeError("an HttpServer is made once")
        if listener_init(&self.listener, listen_fd, max(1, max_connections), keep_alive_s, stall_s) < 0:
            raise OSError(errno, "the server's epoll cannot be made")
        self.made = True
        self.intake = intake
        if tls is not None:
            self.use_tls(tls)

    def __dealloc__(self):
        if self.made:
            listener_free(&self.listener)

    @property
    def open(self) -> int:
        """How many connections there are."""
        return self.listener.open

    def use_tls(self, TlsContext tls not None) -> None:
        """Connections from here on are encrypted so. One thread at a time."""
        cdef Listener *l = &self.listener
        with nogil:
            pthread_mutex_lock(&l.lock)
            l.tls_context = tls.handle
            pthread_mutex_unlock(&l.lock)
        self.tls = tls

    def close_idle(self) -> None:
        """From now on no connection is taken, and each is closed when it has been answered; those without a request at once."""
        with nogil:
            conn_stop(&self.listener)

    def quit(self) -> None:
        """Ends `run`, in all threads."""
        eventfd_write(self.listener.quit_fd, 1)

    def run(self) -> None:
        """Serves until `quit`. As many threads as shall handle requests at once."""
        cdef char *buffer = <char *>malloc(RECV_BYTES)
        cdef Step step
        if buffer == NULL:
            raise MemoryError
        try:
            while True:
                with nogil:
                    step.action = NOTHING
                    while step.action == NOTHING:
                        next_step(&self.listener, buffer, &step)
                while step.action != NOTHING:
                    if step.action == QUIT:
                        return
                    self.act(&step, buffer)
        finally:
            free(buffer)

    cdef int act(self, Step *step, char *buffer) except -1:
        """Calls the Python that a step asks for. Leaves the next step of the same connection, or NOTHING."""
        cdef PyObject *owned = step.object
        cdef HttpRequest request
        cdef Conn *c = step.conn
        cdef Action action = step.action
        step.object = NULL
        step.action = NOTHING
        if action == GONE:
            watcher = <object>owned
            Py_XDECREF(owned)
            try:
                watcher()
            except Exception:
                log.exception("a lost connection could not be noted")
            return 0
        if action == CUT or action == BODY:
            request = <HttpRequest>owned
            Py_XDECREF(owned)
            done = request.done
            request.done = None
            try:
                if action == CUT:
                    done(None, False)
                elif step.more:
                    done(None, True)
                else:
                    request.body = step.body
                    request.body_complete = True
                    request.read_body(request.limit, done)
            except Exception:
                log.exception("a request could not be taken in")
            if action == CUT:           # at the object's end would be too late: its own thread may sleep for long
                request.abandon()
            if step.more:               # too large, or malformed: what follows is dropped
                with nogil:
                    read_on(c, buffer, step)
            return 0
        try:
            request = self.request_of(step)
        except Exception:
            log.exception("a request could not be read")
            conn_abandon(c, step.serial, &owned)
            Py_XDECREF(owned)
            request = None
        if request is not None:
            try:
                self.intake(request)
            except Exception:
                log.exception("a request could not be taken in")
                request.response_bytes(500, [], b"")
        if step.more:
            self.wait_for_body(c, request)
            with nogil:
                read_on(c, buffer, step)
        return 0

    cdef HttpRequest request_of(self, Step *step):
        """The request whose head is here. With an incomplete body the connection is still this thread's to read."""
        cdef Conn *c = step.conn
        cdef Message *m = &c.message
        cdef HttpRequest request = HttpRequest.__new__(HttpRequest)
        request.conn = c
        request.serial = step.serial
        request.server = self
        request.head = m.head
        buf_init(&m.head)
        request.fields = m.fields
        request.n_fields = m.n_fields
        m.fields = NULL
        m.n_fields = 0
        m.cap_fields = 0
        request.keep_alive = m.keep_alive
        request.body_complete = not step.more
        if not step.more:
            request.body = m.body
            buf_init(&m.body)
        request.take(m.target_len, message_method(m), m.parser.http_minor)
        return request

    cdef int wait_for_body(self, Conn *c, HttpRequest request) except -1:
        """The head has been looked at: reads on for who asked for the body, or drops it."""
        if request is None or request.done is None:
            c.message.discard = True
            c.message.dropped += c.message.body.len
            buf_free(&c.message.body)
            return 0
        Py_INCREF(request)
        conn_lock(c)
        c.request = <PyObject *>request
        c.body_limit = <uint64_t>max(0, request.limit)
        if c.message.expects and not c.answered and c.message.body.len == 0:
            conn_put(c, CONTINUE, strlen(CONTINUE))
        conn_unlock(c)
        return 0


# ---- without the GIL -----------------------------------------------------------------------------------------------------


cdef void conn_stop(Listener *l) noexcept nogil:
    l.stopping = True
    listener_sweep(l, True)


cdef void next_step(Listener *l, char *buffer, Step *step) noexcept nogil:
    """Waits for an event and does what can be done without Python."""
    cdef epoll_event e
    cdef Conn *c
    cdef int n = epoll_wait(l.epoll_fd, &e, 1, SWEEP_MS)
    cdef double now
    if n <= 0 or l.sweep_at < monotonic_coarse():
        now = monotonic_coarse()
        if now >= l.sweep_at:
            l.sweep_at = now + SWEEP_MS * 1e-3      # two threads may sweep: that does no harm
            listener_sweep(l, l.stopping)
    if n <= 0:
        return
    if e.data.u64 == KEY_QUIT:
        step.action = QUIT
        return
    if e.data.u64 == KEY_LISTEN:
        listener_accept(l)
        return
    c = listener_find(l, e.data.u64)
    if c == NULL:
        return
    step.conn = c
    if e.events & EPOLLOUT and c.out_at < c.out.len:
        conn_flush(c)
        if c.fd < 0:
            conn_unlock(c)
            return
    if e.events & (EPOLLHUP | EPOLLERR):
        c.gone = True
    if e.events & EPOLLRDHUP:
        c.half = True
    if not e.events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR) and not c.rest.len:
        conn_unlock(c)
        return
    if c.reading:
        c.missed = True
        conn_unlock(c)
        return
    if c.complete:                                  # the next request waits until this one is answered
        c.missed = True
        if c.answered:                              # only the end of its answer is still to be written
            if c.gone:
                conn_close(c)
        elif (c.half or c.gone) and c.watcher != NULL:
            step.object = c.watcher
            c.watcher = NULL
            step.action = GONE
        conn_unlock(c)
        return
    if conn_unread(c) and not c.message.begun:
        c.missed = True
        conn_unlock(c)
        return
    c.reading = True
    conn_unlock(c)
    read_on(c, buffer, step)


cdef void read_on(Conn *c, char *buffer, Step *step) noexcept nogil:
    """Reads the connection until a request is here, or nothing more is. The calling thread is its reader."""
    cdef ssize_t r
    cdef size_t used
    cdef Buf rest
    cdef MessageState state
    cdef const char *data
    cdef size_t n
    cdef bint full = False
    cdef int ended
    step.conn = c
    while True:
        rest = c.rest
        buf_init(&c.rest)
        if rest.len:
            data = rest.data
            n = rest.len
            full = True                         # the read that brought it may have been
        else:
            r = recv(c.fd, buffer, RECV_BYTES, MSG_DONTWAIT)
            if r < 0 and errno == EINTR:
                continue
            if r < 0 and errno == EAGAIN:
                if stop_reading(c):
                    return
                continue
            if r <= 0:
                end_of_input(c, r < 0, step)
                return
            data = buffer
            n = r
            if n == RECV_BYTES:                     # there may be more, of which no event will tell
                full = True
            if c.tls != NULL and not c.lingering and not c.closing:
                ended = conn_open(c, data, n, &rest)
                data = rest.data
                n = rest.len
                if ended < 0:
                    buf_free(&rest)
                    if refuse(c, MESSAGE_MEMORY, step):
                        return
                    continue
                if n == 0:
                    buf_free(&rest)
                    if not c.message.begun:         # as for a head: what has begun has to be here in time as a whole
                        c.active_at = monotonic_coarse()
                        c.message.begun = True
                    if ended:
                        end_of_input(c, False, step)
                        return
                    continue
        if c.lingering or c.closing:
            c.message.dropped += n
            buf_free(&rest)
            if c.message.dropped > DROPPED_BYTES:
                end_of_input(c, True, step)
                return
            continue
        if not c.message.begun or c.message.head_complete:
            c.active_at = monotonic_coarse()        # a head has to be here in time as a whole
        state = message_feed(&c.message, data, n, &used)
        if state == MESSAGE_COMPLETE and used < n and buf_put(&c.rest, data + used, n - used) < 0:
            state = MESSAGE_MEMORY
        buf_free(&rest)
        if state == MESSAGE_MORE or state == MESSAGE_COMPLETE:
            if take_in(c, state == MESSAGE_COMPLETE, full, step):
                return
        else:
            if refuse(c, state, step):
                return


cdef bint stop_reading(Conn *c) noexcept nogil:
    """Nothing more is here. False: something has come meanwhile."""
    cdef bint missed
    conn_lock(c)
    missed = c.missed
    c.missed = False
    if not missed:
        c.reading = False
        if c.closing and not c.lingering:
            conn_linger(c)
    conn_unlock(c)
    return not missed


cdef void message_is_here(Conn *c, bint full) noexcept nogil:
    """The request is complete: from here on whoever answers it has the connection."""
    conn_lock(c)
    c.last = c.last or not c.message.keep_alive
    c.complete = True
    c.missed = c.missed or full
    c.reading = False
    if c.answered:                                  # an unwanted body is through; its watcher was released with the answer
        conn_next(c)
    conn_unlock(c)


cdef bint take_in(Conn *c, bint complete, bint full, Step *step) noexcept nogil:
    """Some of a message has come. True: stop reading, either for good or until Python has looked at it."""
    cdef bint first = not c.message.discard and c.request == NULL and not c.answered and c.message.head_complete
    step.serial = c.serial
    step.more = not complete
    if first:
        step.action = BEGIN
        if complete:
            message_is_here(c, full)
        elif not c.message.keep_alive:
            conn_lock(c)
            c.last = True
            conn_unlock(c)
        return True
    if c.request != NULL:
        if not complete and c.message.body.len <= c.body_limit:
            return False
        step.action = BODY
        step.object = c.request
        c.request = NULL
        if complete:
            step.body = c.message.body      # before the answer's end may make room for the next request
            buf_init(&c.message.body)
            message_is_here(c, full)
        else:
            c.message.discard = True
            buf_free(&c.message.body)
        return True
    if c.message.dropped > DROPPED_BYTES and not complete:
        end_of_input(c, False, step)
        return True
    if complete:
        message_is_here(c, full)
    return complete


cdef bint refuse(Conn *c, MessageState state, Step *step) noexcept nogil:
    """What came is no HTTP, or too much of it: says so unless an answer is on its way, and waits for the client to leave.

    True: stop reading, either for good or until Python has told who waits for the body.
    """
    cdef bint awaited
    conn_lock(c)
    c.last = True
    awaited = c.request != NULL and not c.begun and c.watcher == NULL
    if not c.answered and (awaited or c.request == NULL and not c.message.discard):
        if state == MESSAGE_LARGE_HEAD:
            conn_put(c, LARGE_HEAD, strlen(LARGE_HEAD))
        elif state == MESSAGE_BAD:
            conn_put(c, BAD_REQUEST, strlen(BAD_REQUEST))
        c.answered = True
        c.serial += 1
        c.message.discard = True
        conn_linger(c)
        if awaited:
            step.action = CUT
            step.object = c.request
            step.more = True
            c.request = NULL
        conn_unlock(c)
        return awaited
    conn_unlock(c)
    end_of_input(c, False, step)
    return True


cdef void end_of_input(Conn *c, bint gone, Step *step) noexcept nogil:
    """The client has closed, or is to be closed on; `gone`: it does not read either. The calling thread is the reader and stops
    being it."""
    cdef bint asked
    conn_lock(c)
    asked = c.message.head_complete and not c.answered
    c.half = True
    c.gone = c.gone or gone
    c.reading = False
    c.complete = True
    c.last = True
    if c.request != NULL:                           # somebody waits for the rest of a body
        step.action = CUT
        step.object = c.request
        step.more = False
        c.request = NULL
    elif asked and c.watcher != NULL:               # being answered while its body is dropped
        step.action = GONE
        step.object = c.watcher
        c.watcher = NULL
    if not asked:                                   # else the end of the answer, or of the request, closes
        c.answered = True
        conn_finish(c)
    conn_unlock(c)
