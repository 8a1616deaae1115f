# cython: language_level=3, freethreading_compatible=True
"""The way of a request to its handler, and of usual requests for generation on to their lane."""
from libc.stdint cimport int64_t

from fastfront._speedups.exchange cimport Exchange
from fastfront._speedups.plain_body cimport PlainBodies
from fastfront._speedups.prepared cimport PreparedCall
from fastfront._speedups.quick_fields cimport Quick
from fastfront._speedups.submitter cimport Submitter
from fastfront._speedups.watched cimport Watch

from hmac import compare_digest

cdef str JSON = "application/json"


cdef class Route:
    """`reads_body`: the handler wants the request's body; `guarded`: it is served to those who have a key. Immutable."""

    def __init__(self, object handler not None, bint reads_body=False, bint guarded=False):
        self.handler = handler
        self.reads_body = reads_body
        self.guarded = guarded


cdef class Gate:
    """`is_open`: nothing speaks against serving requests. Read by every request, without a lock; `check()` of the subclass tells what
    does, by raising."""


cdef class Generation:
    """Handler of an API for generation. Shared by all request threads; immutable.

    Usual requests, of `bodies` that `quick` makes calls of, are submitted right away; `prepare(exchange)` makes all others ready, and
    raises what is wrong. `submit(prepared, exchange)` is for calls in steps, for those whose client sent the header `asked_with`, and
    for all if not `plain`.
    """

    def __init__(
        self, Gate gate not None, PlainBodies bodies not None, Quick quick, Submitter submitter not None, *, object prepare not None,
        object submit not None, bint plain, str asked_with not None,
    ):
        self.gate = gate
        self.bodies = bodies
        self.quick = quick
        self.submitter = submitter
        self.prepare = prepare
        self.submit = submit
        self.plain = plain
        self.asked_with = asked_with

    def __call__(self, Exchange exchange not None) -> None:
        self.answer(exchange)

    cdef int answer(self, Exchange exchange) except -1:
        cdef PreparedCall prepared = None
        cdef dict fields
        if not self.gate.is_open:
            self.gate.check()
        if self.quick is not None and exchange.header("content-type") == JSON:
            fields = self.bodies.read_body(exchange.body)
            if fields is not None:
                prepared = self.quick.make(fields, exchange)
        if prepared is None:
            prepared = self.prepare(exchange)
        if not self.plain or prepared.steps is not None or exchange.header(self.asked_with) is not None:
            self.submit(prepared, exchange)
            return 0
        return self.submitter.begin(
            prepared, exchange.request, exchange.protocol, exchange.arrival_time, exchange.extra_headers, exchange.on_end, False)


cdef class Intake:
    """What the server calls. Shared by all its threads; immutable once serving. What not all requests need is its subclass's:

    `_add_headers(exchange)` sees each request first if `adds_headers`; True: it is answered. `_no_route(exchange)` and `_no_key(exchange)`
    answer requests for what there is not, or is not for them; `_await_body(exchange, route)` sees to bodies that are not here yet or
    have more than `inline_bytes`; `_failed(exchange, error)` answers what a handler raised.
    """

    def __init__(self, dict routes not None, Watch watch, list keys not None, int64_t inline_bytes, bint adds_headers):
        self.routes = routes
        self.watch = watch
        self.keys = keys
        self.inline_bytes = inline_bytes
        self.adds_headers = adds_headers

    def intake(self, object request not None) -> None:
        """Takes a request in, on a thread of the server; returns when the request is handled, or its body is on its way."""
        cdef Exchange exchange = Exchange(request)
        cdef Route route = None
        cdef dict methods
        if self.watch is not None:
            self.watch.begin(exchange)
        if self.adds_headers and self._add_headers(exchange):
            return
        if exchange.path in self.routes:
            methods = self.routes[exchange.path]
            if exchange.method in methods:
                route = methods[exchange.method]
        if route is None:
            route = self._route(exchange)
            if route is None:
                return
        if route.guarded and not self.has_key(exchange):
            self._no_key(exchange)
            return
        if route.reads_body:
            body = request.body_at_once(self.inline_bytes) if exchange.native is None else exchange.native.body_at_once(self.inline_bytes)
            if body is None:
                self._await_body(exchange, route)
                return
            exchange.body = body
        self.handle(exchange, route.handler)

    def run(self, Exchange exchange not None, object handler not None) -> None:
        """Calls a handler; whatever it raises becomes an answer."""
        self.handle(exchange, handler)

    cdef int handle(self, Exchange exchange, object handler) except -1:
        try:
            if type(handler) is Generation:
                (<Generation>handler).answer(exchange)
            else:
                handler(exchange)
        except Exception as error:
            self._failed(exchange, error)
        return 0

    def trusts(self, Exchange exchange not None) -> bool:
        """Whether a request has a key, where there are keys."""
        return not self.keys or self.has_key(exchange)

    cdef bint has_key(self, Exchange exchange) except -1:
        """Whether a key came as a bearer token, or in the header that Anthropic's clients put it in."""
        cdef str given = exchange.header("authorization")
        cdef bytes token, key
        cdef bint found = False
        scheme, _, text = (given or "").partition(" ")
        if scheme.lower() != "bearer":
            text = exchange.header("x-api-key") or ""
        token = text.strip().encode("utf-8", "surrogatepass")
        for key in self.keys:
            found |= compare_digest(token, key)
        return found
