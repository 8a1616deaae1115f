# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False
"""Requests as Python sees them, and their answers."""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeLatin1
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy, strcmp, strlen
from libc.time cimport gmtime_r, time, time_t, tm

from fastfront._speedups.buffers cimport Buf, buf_byte, buf_free, buf_init, buf_int, buf_put, buf_reserve
from fastfront._speedups.http_connection cimport (
    PIECE_LAST, PIECE_MORE, Conn, conn_abandon, conn_answer, conn_begin, conn_lock, conn_send, conn_unlock,
)
from fastfront._speedups.http_message cimport Field

import http
import re
from urllib.parse import unquote


cdef extern from "Python.h":
    object PyUnicode_FromStringAndSize(const char *, Py_ssize_t)


cdef enum:
    HEAD_BYTES = 512            # of most answers, at most


AUTHORITY = re.compile("[^/?#]*").match
PHRASES = {status.value: status.phrase.encode() for status in http.HTTPStatus}


cdef int put(Buf *b, const char *text) except -1:
    if buf_put(b, text, strlen(text)) < 0:
        raise MemoryError
    return 0


cdef extern from "Python.h":
    int PyUnicode_IS_COMPACT_ASCII(object)
    const uint8_t *PyUnicode_1BYTE_DATA(object)
    Py_ssize_t PyUnicode_GET_LENGTH(object)


cdef int put_value(Buf *b, str text) except -1:
    """A header's name or value; control characters, which could end the line, are left out."""
    cdef bytes raw = b""
    cdef const uint8_t *p
    cdef Py_ssize_t k, n
    if PyUnicode_IS_COMPACT_ASCII(text):
        p, n = PyUnicode_1BYTE_DATA(text), PyUnicode_GET_LENGTH(text)
    else:
        raw = text.encode("latin-1", "replace")
        p, n = <const uint8_t *>PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw)
    if buf_reserve(b, n) < 0:
        raise MemoryError
    for k in range(n):
        if p[k] < 32 or p[k] == 127:
            break
    else:
        memcpy(b.data + b.len, p, n)
        b.len += n
        return 0
    for k in range(n):
        if p[k] >= 32 and p[k] != 127 or p[k] == c'\t':
            b.data[b.len] = <char>p[k]
            b.len += 1
    return 0


cdef const char *DAYS = b"SunMonTueWedThuFriSat"
cdef const char *MONTHS = b"JanFebMarAprMayJunJulAugSepOctNovDec"


cdef inline void put_digits(char *to, int value) noexcept nogil:
    to[0] = <char>(c'0' + value // 10 % 10)
    to[1] = <char>(c'0' + value % 10)


cdef int put_date(Buf *b) except -1:
    """RFC 9110's form, whatever the locale."""
    cdef char text[38]
    cdef time_t now = time(NULL)
    cdef tm parts
    gmtime_r(&now, &parts)
    memcpy(text, b"date: ..., .. ... .... ..:..:.. GMT\r\n", 37)
    memcpy(text + 6, DAYS + 3 * parts.tm_wday, 3)
    put_digits(text + 11, parts.tm_mday)
    memcpy(text + 14, MONTHS + 3 * parts.tm_mon, 3)
    put_digits(text + 18, (parts.tm_year + 1900) // 100)
    put_digits(text + 20, parts.tm_year + 1900)
    put_digits(text + 23, parts.tm_hour)
    put_digits(text + 26, parts.tm_min)
    put_digits(text + 29, parts.tm_sec)
    if buf_put(b, text, 37) < 0:
        raise MemoryError
    return 0


@cython.no_gc_clear         # the end of what is garbage, too, has to reach the connection
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

    def unread(self) -> int:
        """Bytes that wait because the client does not read."""
        cdef Conn *c = self.conn
        conn_lock(c)
        n = c.out.len - c.out_at if c.serial == self.serial else 0
        conn_unlock(c)
        return n

    def __dealloc__(self):
        cdef PyObject *drop
        if self.server is not None:
            conn_abandon(self.conn, self.serial, &drop)
            Py_XDECREF(drop)


@cython.final
@cython.no_gc_clear
cdef class HttpRequest:
    """One request: what was asked, and how to answer. Handed from thread to thread whole; answered once, by any."""

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
            _, colon, rest = target.partition("://")
            if colon:
                rest = rest[len(AUTHORITY(rest)[0]):]
                target = rest if rest.startswith("/") else "/" + rest
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

    cpdef object get(self, str name):
        """The first header of a lower-case name."""
        cdef Py_ssize_t size
        cdef const char *p = PyUnicode_AsUTF8AndSize(name, &size)
        cdef uint32_t k
        cdef Field *f
        for k in range(self.n_fields):
            f = &self.fields[k]
            if f.name_len == size and memcmp(self.head.data + f.name, p, size) == 0:
                return PyUnicode_DecodeLatin1(self.head.data + f.value, f.value_len, NULL)
        return None

    def headers(self) -> list:
        """All of them as they came, (name, value) in bytes; names are in lower case."""
        cdef list found = []
        cdef uint32_t k
        cdef Field *f
        for k in range(self.n_fields):
            f = &self.fields[k]
            found.append((PyBytes_FromStringAndSize(self.head.data + f.name, f.name_len),
                          PyBytes_FromStringAndSize(self.head.data + f.value, f.value_len)))
        return found

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

    cpdef object body_at_once(self, int64_t limit):
        """The body, if all of it is here and it has no more than `limit` bytes; None otherwise. It is given once."""
        if not self.body_complete or <int64_t>self.body.len > limit:
            return None
        body = PyBytes_FromStringAndSize(self.body.data, self.body.len) if self.body.len else b""
        buf_free(&self.body)
        return body

    def drop_body(self) -> None:
        """The body is dropped anyway unless it is asked for."""

    cpdef bint watch(self, object gone) except -1:
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

    cdef bint expecting(self) noexcept:
        """Whether the client waits to be asked for its body."""
        return (not self.body_complete and self.done is None and self.conn.serial == self.serial
                and self.conn.message.expects)

    # ---- the answer ------------------------------------------------------------------------------------------------

    cdef int put_head(self, Buf *b, int status, list headers, int64_t length, bint chunked) except -1:
        if buf_reserve(b, HEAD_BYTES + max(length, 0)) < 0:         # most of them: without growing on the way
            raise MemoryError
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
        if not self.keep_alive or self.conn.listener.stopping or self.expecting():
            put(b, b"connection: close\r\n")
        elif self.http_version == "1.0":
            put(b, b"connection: keep-alive\r\n")
        put_date(b)
        return put(b, b"\r\n")

    def response_bytes(self, int status, list headers not None, bytes body not None) -> None:
        """The whole answer."""
        cdef Buf b
        cdef PyObject *drop = NULL
        cdef bint bodiless = status == 204 or status == 304
        buf_init(&b)
        try:
            self.put_head(&b, status, headers, -1 if bodiless else PyBytes_GET_SIZE(body), False)
            if not bodiless and not self.is_head and buf_put(&b, PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body)) < 0:
                raise MemoryError
            with nogil:
                conn_answer(self.conn, self.serial, b.data, b.len, &drop)
        finally:
            buf_free(&b)
        Py_XDECREF(drop)

    def abandon(self) -> None:
        """No answer will come, or no more of it. Waiting for the object's end would not do: it may be freed much later than it is
        dropped."""
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
