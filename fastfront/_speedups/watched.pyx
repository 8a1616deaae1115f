# cython: language_level=3, freethreading_compatible=True
"""Noticing how every request was answered, at little cost: for the access log and the http_* metrics."""
from libc.stdint cimport int64_t

from fastfront._speedups.clocks cimport monotonic
from fastfront._speedups.exchange cimport Exchange
from fastfront._speedups.http_counts cimport HttpCounts

cdef enum:
    CLIENT_GONE = 499
    MAX_DIGITS = 16
    MAX_PATH_CHARS = 2048


cdef class Line:
    """One line of the access log. Immutable."""

    def __init__(
        self, str client not None, str method not None, str path not None, str http_version not None, int status, double duration_s,
    ):
        self.client = client
        self.method = method
        self.path = path if len(path) <= MAX_PATH_CHARS else path[:MAX_PATH_CHARS] + "..."
        self.http_version = http_version
        self.status = status
        self.duration_s = duration_s


cdef class Watched:
    """Stands in for what answers a request and notices how it does. Streams, and requests that nobody answered, end with `ended`."""

    cdef int over(self) except -1:
        cdef double seconds
        if self.done:
            return 0
        self.done = True
        seconds = monotonic() - self.began
        if self.handler >= 0:
            self.counts.count(self.handler, self.method, self.status, seconds, self.request_bytes, self.answer_bytes)
        if self.add is not None:
            request = self.request
            self.add(Line(request.client or "-", request.method, request.path, request.http_version, self.status, seconds))
        return 0

    def response_bytes(self, int status, list headers, bytes body):
        self.protocol.response_bytes(status, headers, body)
        self.status = status
        self.answer_bytes = len(body)
        self.over()

    def response_empty(self, int status, list headers):
        self.protocol.response_empty(status, headers)
        self.status = status
        self.over()

    def response_stream(self, int status, list headers):
        transport = self.protocol.response_stream(status, headers)
        self.status = status
        return transport

    def abandon(self):
        self.protocol.abandon()
        self.over()

    def __call__(self, _call):
        """The lane is done with the request."""
        self.over()


cdef class Watch:
    """Sees every exchange before it is handled. Shared by all threads; immutable.

    `add(line)` gets a line of every answered request but those of the paths `skips`; None: nobody does. `places` are handlers' places in
    `counts` by path, `find(path)` tells that of other paths (-1: such a request is not counted); `methods` are methods' places in METHODS,
    of which `other` is that of all others.
    """

    def __init__(
        self, object add, frozenset skips not None, HttpCounts counts not None, dict places not None, object find not None,
        dict methods not None, int other,
    ):
        self.add = add
        self.skips = skips
        self.counts = counts
        self.places = places
        self.find = find
        self.methods = methods
        self.other = other

    def watch(self, Exchange exchange not None) -> None:
        """From here on the exchange's answer is noticed."""
        self.begin(exchange)

    cdef int begin(self, Exchange exchange) except -1:
        cdef Watched watched = Watched.__new__(Watched)
        cdef str path = exchange.path, length = exchange.header("content-length")
        watched.protocol = exchange.protocol
        watched.counts = self.counts
        watched.handler = self.places[path] if path in self.places else self.find(path)
        watched.method = self.methods[exchange.method] if exchange.method in self.methods else self.other
        watched.status = CLIENT_GONE
        if self.add is not None and path not in self.skips:
            watched.add = self.add
            watched.request = exchange.request
        if length is not None and len(length) < MAX_DIGITS and length.isascii() and length.isdigit():
            watched.request_bytes = int(length)
        watched.began = monotonic()
        exchange.protocol = watched
        exchange.on_end = watched
        return 0
