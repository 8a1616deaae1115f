"""One request and its answer (fastfront._speedups.exchange)."""
from fastfront._speedups.http_request cimport HttpRequest


cdef class Exchange:
    cdef readonly object request
    cdef HttpRequest native             # the request, if it is the native server's; else None
    cdef public object protocol
    cdef readonly str method
    cdef readonly str path
    cdef readonly double arrival_time   # unix seconds
    cdef public bytes body
    cdef public list extra_headers      # or None
    cdef public object on_end           # or None

    cpdef object header(self, str name)         # a request header by its lower-case name, or None
    cdef int answer(self, bytes body, int status, list headers) except -1


# The same of who gives headers: an Exchange, or a function.
cdef inline object header_of(object headers, str name):
    return (<Exchange>headers).header(name) if type(headers) is Exchange else headers(name)
