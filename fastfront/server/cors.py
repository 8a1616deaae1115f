"""Cross-origin requests of browsers, answered as Starlette's middleware does (vLLM's flags --allowed-origins and so on)."""

from __future__ import annotations

from fastfront.config import ServeConfig
from fastfront.server.exchange import Exchange, Headers

SAFE_HEADERS = ("Accept", "Accept-Language", "Content-Language", "Content-Type")
ALL_METHODS = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY")
MAX_AGE_S = 600
_ASKS = ("Origin", "Access-Control-Request-Method", "Access-Control-Request-Headers", "Access-Control-Request-Private-Network")


class Cors:
    """What is allowed, from the flags. Immutable. Without origins nothing is."""

    def __init__(self, origins: tuple[str, ...], methods: tuple[str, ...], headers: tuple[str, ...], credentials: bool) -> None:
        self._origins = frozenset(origins)
        self._any_origin = "*" in origins
        self._methods = ALL_METHODS if "*" in methods else methods
        self._any_header = "*" in headers
        self._headers = sorted({*SAFE_HEADERS, *headers} - {"*"})
        self._known_headers = {name.lower() for name in self._headers}
        self._credentials = credentials

    @property
    def opens(self) -> bool:
        """Whether there are pages that may read answers."""
        return bool(self._origins)

    def answer_headers(self, origin: str) -> Headers | None:
        """Headers that let a page of `origin` read the answer; None if it may not."""
        if not (self._any_origin or origin in self._origins):
            return None
        if self._any_origin and not self._credentials:
            return [("access-control-allow-origin", "*")]
        headers = [("access-control-allow-origin", origin), ("vary", "Origin")]
        return [*headers, ("access-control-allow-credentials", "true")] if self._credentials else headers

    def preflight(self, exchange: Exchange) -> bool:
        """Answers the question a browser asks before the request itself: 200, or 400 saying what is not allowed.

        False if the request is none: nothing is answered then.
        """
        origin, method = exchange.header("origin"), exchange.header("access-control-request-method")
        if exchange.method != "OPTIONS" or origin is None or method is None:
            return False
        asked = [name.strip() for name in (exchange.header("access-control-request-headers") or "").split(",") if name.strip()]
        refused = [] if self.answer_headers(origin) is not None else ["origin"]
        if method not in self._methods:
            refused.append("method")
        if not self._any_header and any(name.lower() not in self._known_headers for name in asked):
            refused.append("headers")
        if exchange.header("access-control-request-private-network") is not None:
            refused.append("private-network")
        headers = [
            ("vary", ", ".join(_ASKS)),
            ("access-control-allow-methods", ", ".join(self._methods)),
            ("access-control-max-age", str(MAX_AGE_S)),
            ("access-control-allow-headers", ", ".join(asked if self._any_header and asked else self._headers)),
        ]
        text = f"Disallowed CORS {', '.join(refused)}" if refused else "OK"
        exchange.reply(text.encode(), "text/plain; charset=utf-8", 400 if refused else 200, headers)
        return True


def cors_of(config: ServeConfig) -> Cors:
    return Cors(config.allowed_origins, config.allowed_methods, config.allowed_headers, config.allow_credentials)
