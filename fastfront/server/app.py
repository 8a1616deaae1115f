"""Routes, and the way of a request from the server's thread to its handler."""

from __future__ import annotations

import logging
import queue
import re
import threading
import uuid
from collections.abc import Callable

import setproctitle

from fastfront._speedups.intake import Intake, Route
from fastfront.config import KeyScope
from fastfront.errors import ApiError, EngineDeadError, http_error
from fastfront.openai.keys import needs_key
from fastfront.server.cors import Cors
from fastfront.server.exchange import Exchange, Headers, Request, announced
from fastfront.server.watch import Watch

log = logging.getLogger("fastfront.server")
INLINE_BODY_BYTES = 64 * 1024  # larger bodies go to the request threads: they must not hold up the server's

Handler = Callable[[Exchange], object]


class RequestThreads:
    """R threads fed by one queue, for requests with large bodies."""

    def __init__(self, count: int) -> None:
        self._queue: queue.SimpleQueue[tuple[Callable[[Exchange, Handler], None], Exchange, Handler]] = queue.SimpleQueue()
        for k in range(count):
            threading.Thread(target=self._run, args=(f"request-{k}",), name=f"request-{k}", daemon=True).start()

    def put(self, run: Callable[[Exchange, Handler], None], exchange: Exchange, handler: Handler) -> None:
        self._queue.put((run, exchange, handler))

    def waiting(self) -> int:
        """Requests that no thread has taken yet."""
        return self._queue.qsize()

    def _run(self, name: str) -> None:
        setproctitle.setthreadtitle(name)
        while True:
            run, exchange, handler = self._queue.get()
            try:
                run(exchange, handler)
            except Exception:
                log.exception("a request could not be answered")
                exchange.protocol.abandon()
            del run, exchange, handler


class App(Intake):
    """What the server calls. Shared by all its threads; immutable once serving. What is here is for unusual requests."""

    def __init__(
        self,
        routes: dict[str, dict[str, Route]],
        *,
        api_keys: tuple[str, ...],
        key_scope: KeyScope,
        root_path: str,
        max_body_bytes: int,
        request_threads: int,
        cors: Cors,
        request_id_headers: bool = False,
        watch: Watch | None = None,
    ) -> None:
        self._cors = cors
        self._request_id_headers = request_id_headers
        prefixes = ("", root_path.rstrip("/")) if root_path else ("",)
        known = {
            path: {name: Route(route.handler, route.reads_body, guarded=bool(api_keys) and needs_key(path, key_scope))
                   for name, route in methods.items()}
            for path, methods in routes.items()
        }  # fmt: skip
        self._routes = {prefix + path: methods for prefix in prefixes for path, methods in known.items()}
        self._patterns = [
            (re.compile(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path))), methods)
            for path, methods in self._routes.items()
            if "{" in path
        ]
        self._max_body = max_body_bytes
        self._threads = RequestThreads(request_threads)
        adds_headers = cors.opens or request_id_headers
        keys = [key.encode("utf-8", "surrogateescape") for key in api_keys]
        super().__init__(self._routes, watch, keys, min(max_body_bytes, INLINE_BODY_BYTES), adds_headers)

    def waiting(self) -> int:
        """Requests with large bodies that no thread has taken yet."""
        return self._threads.waiting()

    def wants_body(self, request: Request) -> bool:
        """Whether the body of a request, as it stands, is to be read: it has a key, or the route is one that needs none."""
        exchange = Exchange(request)
        if self.trusts(exchange):
            return True
        methods = self._routes[exchange.path] if exchange.path in self._routes else self._matching(exchange.path)
        route = methods[exchange.method] if methods is not None and exchange.method in methods else None
        return route is not None and route.reads_body and not route.guarded

    def _route(self, exchange: Exchange) -> Route | None:
        """The route of a request whose path is not in the table, or whose method is not; None: it is answered."""
        path, method = exchange.path, exchange.method
        methods = self._routes[path] if path in self._routes else self._matching(path)
        if methods is not None and method in methods:
            return methods[method]
        if not self._cors.preflight(exchange):
            if methods is None:
                self._no_route(exchange, path)
            else:
                exchange.json(http_error(405, "Method Not Allowed").body(), 405, [("allow", ", ".join(methods))])
        exchange.request.drop_body()
        return None

    def _no_key(self, exchange: Exchange) -> None:
        exchange.json(b'{"error":"Unauthorized"}', 401, [("www-authenticate", "Bearer")])
        exchange.request.drop_body()

    def _await_body(self, exchange: Exchange, route: Route) -> None:
        """Handles a request whose body is not here yet, or not small, once it is."""
        length = exchange.header("content-length")
        request = exchange.request
        if length is None and exchange.header("transfer-encoding") is None:
            self.run(exchange, route.handler)
        elif length is None or announced(length) <= self._max_body:
            request.read_body(self._max_body, lambda body, too_large: self._got_body(exchange, route, body, too_large))
        else:
            self._refuse(exchange, self._too_large())
            request.drop_body()

    def _got_body(self, exchange: Exchange, route: Route, body: bytes | None, too_large: bool) -> None:
        if too_large:
            self._refuse(exchange, self._too_large())
        elif body is not None:
            exchange.body = body
            if len(body) > INLINE_BODY_BYTES:
                self._threads.put(self.run, exchange, route.handler)
            else:
                self.run(exchange, route.handler)
        else:
            exchange.protocol.abandon()  # the client has left

    def _failed(self, exchange: Exchange, error: Exception) -> None:
        """Answers what a handler has raised, while it is being handled."""
        if isinstance(error, ApiError):
            self._refuse(exchange, error)
        elif isinstance(error, EngineDeadError):
            self._refuse(exchange, ApiError(str(error), status=503, kind="ServiceUnavailableError"))
        else:
            log.exception("%s %r failed", exchange.method, exchange.path)
            self._refuse(exchange, ApiError("Internal server error", status=500, kind="InternalServerError"))

    def _refuse(self, exchange: Exchange, error: ApiError) -> None:
        exchange.json(error.body(), error.status, error.headers)

    def _too_large(self) -> ApiError:
        return http_error(413, f"The request body is larger than {self._max_body} bytes (--max-body-bytes).")

    def _add_headers(self, exchange: Exchange) -> bool:
        """Headers that every answer gets. True if the request was a browser's preflight, which is answered here."""
        extra: Headers = []
        if self._request_id_headers:
            extra.append(("x-request-id", exchange.header("x-request-id") or uuid.uuid4().hex))
        origin = exchange.header("origin")
        if origin is not None:
            extra += self._cors.answer_headers(origin) or []
        exchange.extra_headers = extra or None
        return self._cors.preflight(exchange)

    def _matching(self, path: str) -> dict[str, Route] | None:
        """The route with `{names}` that a path is one of."""
        return next((methods for pattern, methods in self._patterns if pattern.fullmatch(path)), None)

    def _no_route(self, exchange: Exchange, path: str) -> None:
        bare = path.rstrip("/")
        if bare != path and bare in self._routes:
            exchange.empty(307, [("location", bare)])
        else:
            exchange.json(http_error(404, f"Not Found: {path[:200]}").body(), 404)
