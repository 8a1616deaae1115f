# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False, cdivision=True
"""Counting answered HTTP requests. Bounds as prometheus-fastapi-instrumentator has them, which vLLM uses."""
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free

from fastfront._speedups.histograms cimport Histogram, histogram_init, histogram_read, observe

METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "OTHER")

cdef double COARSE[3]
COARSE[:] = [.1, .5, 1]
cdef double FINE[21]
FINE[:] = [.01, .025, .05, .075, .1, .25, .5, .75, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 7.5, 10, 30, 60]


cdef class HttpCounts:
    def __cinit__(self, int handlers):
        cdef int k, m
        if handlers <= 0:
            raise ValueError("no handlers")
        self.handlers = <HandlerCounts *>calloc(handlers, sizeof(HandlerCounts))
        if self.handlers == NULL:
            raise MemoryError
        self.n_handlers = handlers
        histogram_init(&self.seconds, FINE, 21)
        for k in range(handlers):
            for m in range(8):
                histogram_init(&self.handlers[k].seconds[m], COARSE, 3)

    def __dealloc__(self):
        free(self.handlers)

    cdef void count(self, int handler, int method, int status, double seconds, int64_t request_bytes, int64_t response_bytes
                    ) noexcept nogil:
        cdef HandlerCounts *h
        cdef int kind = status // 100 - 1
        if not 0 <= handler < self.n_handlers or not 0 <= method < 8:
            return
        h = &self.handlers[handler]
        with self.lock:
            h.requests[method][min(max(kind, 0), 4)] += 1
            h.request_bytes += request_bytes
            h.response_bytes += response_bytes
            observe(&h.seconds[method], seconds)
            observe(&self.seconds, seconds)

    def add(self, int handler, int method, int status, double seconds, int64_t request_bytes, int64_t response_bytes):
        with nogil:
            self.count(handler, method, status, seconds, request_bytes, response_bytes)

    cdef int check(self, int handler, int method) except -1:
        if not 0 <= handler < self.n_handlers or not 0 <= method < 8:
            raise IndexError(f"no handler {handler} or no method {method}")
        return 0

    def requests(self, int handler, int method):
        """Counts by status class, 1xx to 5xx."""
        cdef int k
        self.check(handler, method)
        return [self.handlers[handler].requests[method][k] for k in range(5)]

    def durations(self, int handler, int method):
        """(upper bounds, counts per bucket with one more above all bounds, sum) in seconds."""
        cdef Histogram copy
        self.check(handler, method)
        with nogil, self.lock:
            copy = self.handlers[handler].seconds[method]
        return histogram_read(&copy)

    def all_durations(self):
        """The same for all requests, with finer bounds."""
        cdef Histogram copy
        with nogil, self.lock:
            copy = self.seconds
        return histogram_read(&copy)

    def sizes(self, int handler):
        """(bytes of requests, bytes of answers)."""
        self.check(handler, 0)
        return self.handlers[handler].request_bytes, self.handlers[handler].response_bytes
