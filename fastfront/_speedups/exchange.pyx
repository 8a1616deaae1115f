# cython: language_level=3, freethreading_compatible=True
"""One request and its answer, as a route handler sees it."""
from fastfront._speedups.clocks cimport unix_time
from fastfront._speedups.http_request cimport HttpRequest

JSON_HEADERS = [("content-type", "application/json")]


cdef class Exchange:
    """Owned by the thread that handles it; handed over whole to a request thread or a lane.

    `protocol` is what answers go to: the request, or something that looks on. `extra_headers` go out with whatever answer the
    request gets. `on_end` is called with a generation's call when it is over, on the lane's thread.
    """

    def __init__(self, object request not None):
        self.request = request
        self.protocol = request
        if type(request) is HttpRequest:
            self.native = <HttpRequest>request
            self.method = self.native.method
            self.path = self.native.path
        else:
            self.method = request.method
            self.path = request.path
        self.arrival_time = unix_time()
        self.body = b""

    cpdef object header(self, str name):
        return self.request.get(name) if self.native is None else self.native.get(name)

    def json(self, bytes body not None, int status=200, list headers=None) -> None:
        self.answer(body, status, JSON_HEADERS + headers if headers else JSON_HEADERS)

    def reply(self, bytes body not None, str content_type not None, int status=200, list headers=None) -> None:
        self.answer(body, status, [("content-type", content_type), *(headers or ())])

    def empty(self, int status, list headers=None) -> None:
        self.protocol.response_empty(status, (headers or []) + (self.extra_headers or []))

    cdef int answer(self, bytes body, int status, list headers) except -1:
        self.protocol.response_bytes(status, headers + self.extra_headers if self.extra_headers else headers, body)
        return 0
