# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False
"""An HTTP/1.1 server whose threads share one epoll: whichever is free takes the next request, whatever connection it came on, and
goes with it all the way to the lane. Answers are written by whoever has them, without a thread in between."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from cpython.unicode cimport PyUnicode_DecodeLatin1
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, strcmp, strlen
from libc.time cimport gmtime_r, strftime, time, time_t, tm

from fastfront._speedups.buffers cimport Buf, buf_byte, buf_free, buf_init, buf_int, buf_put
from fastfront._speedups.http_connection cimport (
    PIECE_LAST, PIECE_MORE, Conn, Listener, conn_abandon, conn_answer, conn_begin, conn_close, conn_flush, conn_linger, conn_lock,
    conn_next, conn_put, conn_send, conn_unlock, listener_accept, listener_find, listener_free, listener_init, listener_sweep,
    monotonic_coarse,
)
from fastfront._speedups.http_message cimport (
    MESSAGE_BAD, MESSAGE_COMPLETE, MESSAGE_LARGE_HEAD, MESSAGE_MEMORY, MESSAGE_MORE, Field, Message, MessageState, message_feed, message_method,
)

import http
import logging
from urllib.parse import unquote


cdef extern from "Python.h":
    object PyUnicode_FromStringAndSize(const char *, Py_ssize_t)


cdef extern from "<sys/epoll.h>" nogil:
    ctypedef union epoll_data:
        uint64_t u64
    cdef struct epoll_event:
        uint32_t events
        epoll_data data
    int epoll_wait(int, epoll_event *, int, int)
    unsigned EPOLLIN, EPOLLOUT, EPOLLRDHUP, EPOLLHUP, EPOLLERR


cdef extern from "<sys/eventfd.h>" nogil:
    int eventfd_write(int, uint64_t)


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
    bint more                   # BEGIN: the body is not complete, and the connection is still being read
    uint64_t serial


cdef uint64_t KEY_LISTEN = 0xFFFFFFFFFFFFFFFFULL
cdef uint64_t KEY_QUIT = 0xFFFFFFFFFFFFFFFEULL
cdef const char *BAD_REQUEST = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 30\r\nconnection: close\r\n\r\n"
    b"Invalid HTTP request received.")
cdef const char *LARGE_HEAD = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
cdef const char *CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
log = logging.getLogger("fastfront.http")
PHRASES = {status.value: status.phrase.encode() for status in http.HTTPStatus}


cdef int put(Buf *b, const char *text) except -1:
    if buf_put(b, text, strlen(text)) < 0:
        raise MemoryError
    return 0


cdef int put_value(Buf *b, str text) except -1:
    """A header's name or value; control characters, which could end the line, are left out."""
    cdef bytes raw = text.encode("latin-1", "replace")
    cdef const char *p = PyBytes_AS_STRING(raw)
    cdef Py_ssize_t k, n = PyBytes_GET_SIZE(raw)
    for k in range(n):
        if (<uint8_t>p[k] >= 32 and p[k] != 127 or p[k] == c'\t') and buf_byte(b, p[k]) < 0:
            raise MemoryError
    return 0


cdef int put_date(Buf *b) except -1:
    cdef char text[64]
    cdef time_t now = time(NULL)
    cdef tm parts
    cdef size_t n
    gmtime_r(&now, &parts)
    n = strftime(text, sizeof(text), b"date: %a, %d %b %Y %H:%M:%S GMT\r\n", &parts)
    if buf_put(b, text, n) < 0:
        raise MemoryError
    return 0


cdef class HttpStream:
    def send_bytes(self, bytes data not None) -> bool:
        """Sends a piece of the answer. False: the client has gone."""
        cdef PyObject *drop
        cdef int r
        cdef const char *p = PyBytes_AS_STRING(data)
        cdef size_t n = PyBytes_GET_SIZE(data)
        if n == 0:
            return True
        with nogil:
            r = conn_send(self.conn, self.serial, p, n, PIECE_MORE, &drop)
        Py_XDECREF(drop)
        return r == 0

    def end(self) -> None:
        """The answer is complete. Does nothing the second time."""
        cdef PyObject *drop
        with nogil:
            conn_send(self.conn, self.serial, b"", 0, PIECE_LAST, &drop)
        Py_XDECREF(drop)

    def __dealloc__(self):
        cdef PyObject *drop
        if self.server is not None:
            conn_send(self.conn, self.serial, b"", 0, PIECE_LAST, &drop)
            Py_XDECREF(drop)


cdef class HttpRequest:
    """One request: what was asked, and how to answer. Handed from thread to thread whole; answered once, by any."""
    cdef Conn *conn
    cdef uint64_t serial
    cdef HttpServer server
    cdef Buf head
    cdef Field *fields
    cdef uint32_t n_fields
    cdef Buf body
    cdef bint body_complete, keep_alive, is_head
    cdef int64_t limit
    cdef object done
    cdef readonly str method
    cdef readonly str path              # percent-decoded, without the query
    cdef readonly str query_string
    cdef readonly str http_version
    cdef readonly str client            # "address:port", "" for a Unix socket

    def __cinit__(self):
        buf_init(&self.head)
        buf_init(&self.body)

    def __dealloc__(self):
        cdef PyObject *drop
        if self.server is not None:
            conn_abandon(self.conn, self.serial, &drop)
            Py_XDECREF(drop)
        buf_free(&self.head)
        buf_free(&self.body)
        free(self.fields)

    cdef int take(self, uint32_t target_len, const char *method, int minor) except -1:
        cdef str target = PyUnicode_DecodeLatin1(self.head.data, target_len, NULL) if target_len else "/"
        if target[0] != "/":                    # the form that proxies are asked in
            scheme, colon, rest = target.partition("://")
            if colon:
                target = "/" + rest.partition("/")[2]
        path, _, self.query_string = target.partition("?")
        if "#" in path:
            path = path.partition("#")[0]
        self.path = unquote(path, errors="replace") if "%" in path else path
        self.method = "POST" if strcmp(method, b"POST") == 0 else method.decode()
        self.http_version = "1.1" if minor else "1.0"
        self.client = PyUnicode_FromStringAndSize(self.conn.peer, strlen(self.conn.peer))
        self.is_head = self.method == "HEAD"
        return 0

    # ---- the question ----------------------------------------------------------------------------------------------

    def get(self, str name not None):
        """The first header of a lower-case name."""
        cdef bytes raw = name.encode("latin-1", "replace")
        cdef const char *p = PyBytes_AS_STRING(raw)
        cdef uint32_t k, n = <uint32_t>PyBytes_GET_SIZE(raw)
        cdef Field *f
        for k in range(self.n_fields):
            f = &self.fields[k]
            if f.name_len == n and memcmp(self.head.data + f.name, p, n) == 0:
                return PyUnicode_DecodeLatin1(self.head.data + f.value, f.value_len, NULL)
        return None

    def read_body(self, int64_t limit, object done not None) -> None:
        """Calls `done(body, False)` once the body is here, `done(None, True)` if it is larger than `limit` bytes, `done(None,
        False)` if the client leaves before its end; right away if that is known."""
        if self.body_complete:
            body = PyBytes_FromStringAndSize(self.body.data, self.body.len) if self.body.len else b""
            buf_free(&self.body)
            if len(body) > limit:
                done(None, True)
            else:
                done(body, False)
            return
        self.limit = limit
        self.done = done

    def drop_body(self) -> None:
        """The body is dropped anyway unless it is asked for."""

    def watch(self, object gone not None) -> bool:
        """`gone()` is called, by any thread, if the client leaves before the answer is complete. True: it has left already."""
        cdef Conn *c = self.conn
        cdef PyObject *old
        cdef bint left
        Py_INCREF(gone)
        conn_lock(c)
        left = c.serial != self.serial or c.half or c.gone or c.answered
        old = <PyObject *>gone
        if not left:
            old = c.watcher
            c.watcher = <PyObject *>gone
        conn_unlock(c)
        Py_XDECREF(old)
        return left

    # ---- the answer ------------------------------------------------------------------------------------------------

    cdef int put_head(self, Buf *b, int status, list headers, int64_t length, bint chunked) except -1:
        put(b, b"HTTP/1.1 " if self.http_version == "1.1" else b"HTTP/1.0 ")
        if buf_int(b, status) < 0:
            raise MemoryError
        put(b, b" ")
        phrase = PHRASES[status] if status in PHRASES else b"Unknown"
        put(b, phrase)
        put(b, b"\r\n")
        for name, value in headers:
            put_value(b, name)
            put(b, b": ")
            put_value(b, value)
            put(b, b"\r\n")
        if length >= 0:
            put(b, b"content-length: ")
            if buf_int(b, length) < 0:
                raise MemoryError
            put(b, b"\r\n")
        if chunked:
            put(b, b"transfer-encoding: chunked\r\n")
        if not self.keep_alive or self.conn.listener.stopping or (self.server.expecting(self) and not self.body_complete):
            put(b, b"connection: close\r\n")
        elif self.http_version == "1.0":
            put(b, b"connection: keep-alive\r\n")
        put_date(b)
        return put(b, b"\r\n")

    def response_bytes(self, int status, list headers not None, bytes body not None) -> None:
        """The whole answer."""
        cdef Buf b
        cdef PyObject *drop = NULL
        buf_init(&b)
        try:
            self.put_head(&b, status, headers, PyBytes_GET_SIZE(body) if status != 204 and status != 304 else -1, False)
            if not self.is_head and buf_put(&b, PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body)) < 0:
                raise MemoryError
            with nogil:
                conn_answer(self.conn, self.serial, b.data, b.len, &drop)
        finally:
            buf_free(&b)
        Py_XDECREF(drop)

    def abandon(self) -> None:
        """No answer will come. Waiting for the object's end would not do: it may be freed much later than it is dropped."""
        cdef PyObject *drop
        with nogil:
            conn_abandon(self.conn, self.serial, &drop)
        Py_XDECREF(drop)

    def response_empty(self, int status, list headers not None) -> None:
        self.response_bytes(status, headers, b"")

    def response_stream(self, int status, list headers not None) -> HttpStream:
        """Begins an answer that comes in pieces; its head leaves with the first one."""
        cdef Buf b
        cdef HttpStream stream
        cdef bint framed = self.http_version == "1.1"
        if not framed:
            self.keep_alive = False
            conn_lock(self.conn)
            if self.conn.serial == self.serial:
                self.conn.last = True
            conn_unlock(self.conn)
        buf_init(&b)
        try:
            self.put_head(&b, status, headers, -1, framed)
            conn_begin(self.conn, self.serial, b.data, b.len, framed)
        finally:
            buf_free(&b)
        stream = HttpStream.__new__(HttpStream)
        stream.conn = self.conn
        stream.serial = self.serial
        stream.server = self.server
        return stream


cdef class HttpServer:
    """`intake(request)` is called on the threads that are in `run`; it must not block for long. Takes over `listen_fd`, which listens."""
    cdef Listener listener
    cdef object intake
    cdef bint made

    def __init__(self, int listen_fd, object intake not None, uint32_t max_connections, double keep_alive_s):
        if self.made:
            raise RuntimeError("an HttpServer is made once")
        if listener_init(&self.listener, listen_fd, max(1, max_connections), keep_alive_s) < 0:
            raise OSError(errno, "the server's epoll cannot be made")
        self.made = True
        self.intake = intake

    def __dealloc__(self):
        if self.made:
            listener_free(&self.listener)

    @property
    def open(self) -> int:
        """How many connections there are."""
        return self.listener.open

    def close_idle(self) -> None:
        """From now on no connection is taken, and each is closed when it has been answered; those without a request at once."""
        with nogil:
            conn_stop(&self.listener)

    def quit(self) -> None:
        """Ends `run`, in all threads."""
        eventfd_write(self.listener.quit_fd, 1)

    cdef bint expecting(self, HttpRequest request) noexcept:
        return request.conn.serial == request.serial and request.conn.message.expects and request.done is None

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
                    request.body = c.message.body
                    buf_init(&c.message.body)
                    request.body_complete = True
                    request.read_body(request.limit, done)
            except Exception:
                log.exception("a request could not be taken in")
            if step.more:               # too large: what follows is dropped
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
    step.conn = c
    while True:
        rest = c.rest
        buf_init(&c.rest)
        if rest.len:
            data = rest.data
            n = rest.len
        else:
            r = recv(c.fd, buffer, RECV_BYTES, MSG_DONTWAIT)
            if r < 0 and errno == EINTR:
                continue
            if r < 0 and errno == EAGAIN:
                if stop_reading(c):
                    return
                continue
            if r <= 0:
                end_of_input(c, step)
                return
            data = buffer
            n = r
            if n == RECV_BYTES:                     # there may be more, of which no event will tell
                full = True
        if not c.message.begun or c.message.head_complete:
            c.active_at = monotonic_coarse()        # a head has to be here in time as a whole
        if c.lingering or c.closing:
            c.message.dropped += n
            buf_free(&rest)
            if c.message.dropped > DROPPED_BYTES:
                end_of_input(c, step)
                return
            continue
        state = message_feed(&c.message, data, n, &used)
        if state == MESSAGE_COMPLETE and used < n and buf_put(&c.rest, data + used, n - used) < 0:
            state = MESSAGE_MEMORY
        buf_free(&rest)
        if state == MESSAGE_MORE or state == MESSAGE_COMPLETE:
            if take_in(c, state == MESSAGE_COMPLETE, full, step):
                return
        else:
            refuse(c, state, step)
            if step.action != NOTHING:
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
            message_is_here(c, full)
        else:
            c.message.discard = True
            buf_free(&c.message.body)
        return True
    if c.message.dropped > DROPPED_BYTES and not complete:
        end_of_input(c, step)
        return True
    if complete:
        message_is_here(c, full)
    return complete


cdef void refuse(Conn *c, MessageState state, Step *step) noexcept nogil:
    """What came is no HTTP, or too much of it: says so unless an answer is on its way, and waits for the client to leave."""
    conn_lock(c)
    c.last = True
    if not c.answered and c.request == NULL and not c.message.discard:
        if state == MESSAGE_LARGE_HEAD:
            conn_put(c, LARGE_HEAD, strlen(LARGE_HEAD))
        elif state == MESSAGE_BAD:
            conn_put(c, BAD_REQUEST, strlen(BAD_REQUEST))
        c.answered = True
        c.serial += 1
        c.message.discard = True
        conn_linger(c)
        conn_unlock(c)
        return
    conn_unlock(c)
    end_of_input(c, step)


cdef void end_of_input(Conn *c, Step *step) noexcept nogil:
    """The client has closed, or is to be closed on. The calling thread is the reader and stops being it."""
    conn_lock(c)
    c.half = True
    if c.request != NULL:                           # somebody waits for the rest of a body
        step.action = CUT
        step.object = c.request
        step.more = False
        c.request = NULL
    elif c.message.head_complete and not c.answered:    # being answered while its body is dropped
        if c.watcher != NULL:
            step.action = GONE
            step.object = c.watcher
            c.watcher = NULL
    else:
        c.reading = False
        conn_close(c)
        conn_unlock(c)
        return
    c.complete = True                               # so that the end of the answer, or of the request, closes
    c.last = True
    c.reading = False
    conn_unlock(c)
