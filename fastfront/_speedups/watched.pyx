# cython: language_level=3, freethreading_compatible=True
"""Counting how a request was answered, at little cost: every request has one of these."""
from libc.stdint cimport int64_t

from fastfront._speedups.clocks cimport monotonic
from fastfront._speedups.http_counts cimport HttpCounts

cdef enum:
    CLIENT_GONE = 499
    MAX_DIGITS = 16


cdef class Watched:
    """Stands in for what answers a request and notices how it does. Streams, and requests that nobody answered, end with `ended`.

    `length` is the request's content-length header. `tell(self)` is called once it is over.
    """

    def __init__(self, object protocol, HttpCounts counts, int handler, int method, str length, object tell):
        self.protocol = protocol
        self.counts = counts
        self.handler = handler
        self.method = method
        self.tell = tell
        self.status = CLIENT_GONE
        if length is not None and length.isascii() and length.isdigit() and len(length) < MAX_DIGITS:
            self.request_bytes = int(length)
        self.began = monotonic()

    cdef int over(self) except -1:
        if self.done:
            return 0
        self.done = True
        self.seconds = monotonic() - self.began
        if self.counts is not None and self.handler >= 0:
            self.counts.count(self.handler, self.method, self.status, self.seconds, self.request_bytes, self.answer_bytes)
        if self.tell is not None:
            self.tell(self)
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

    def ended(self, _call):
        """The lane is done with the request."""
        self.over()
