"""The engines' load as a header of answers, for load balancers that read ORCA's headers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from fastfront.server.exchange import Headers
from fastfront.server.relay import Relay

ASKED_WITH = "endpoint-load-metrics-format"
HEADER = "endpoint-load-metrics"


class Load(NamedTuple):
    """Requests that wait in engines, and the fullest engine's share of its KV cache, 0 to 1."""

    num_requests_waiting: float
    kv_cache_usage_perc: float


def load_header(form: str, load: Load) -> tuple[str, str] | None:
    """The header in the form that was asked for, text or json; None for another."""
    match form.strip().lower():
        case "text":
            return HEADER, "TEXT " + ", ".join(f"named_metrics.{name}={value}" for name, value in load._asdict().items())
        case "json":
            return HEADER, "JSON " + json.dumps({"named_metrics": load._asdict()})
    return None


class LoadRelay(Relay):
    """Adds the load, as of then, to a whole answer that is no error."""

    __slots__ = ("_form", "_load")

    def __init__(self, protocol: Any, form: str, load: Callable[[], Load]) -> None:
        super().__init__(protocol)
        self._form = form
        self._load = load

    def answering(self, status: int, whole: bool) -> None:
        pass

    def response_bytes(self, status: int, headers: Headers, body: bytes) -> None:
        header = load_header(self._form, self._load()) if status == 200 else None
        self._protocol.response_bytes(status, headers if header is None else [*headers, header], body)
