"""None of many short requests is lost or hangs, and memory does not grow with them."""

from __future__ import annotations

import os
from pathlib import Path

from tests.soak.load import soak
from tests.support.mock import MockEngine
from tests.support.server import Server

REQUESTS = int(os.environ.get("FASTFRONT_SOAK_REQUESTS", "8000"))
CONNECTIONS = 64
GROWTH_MB = 8.0  # pools and caches that are still filling; a leak of 1 KB a request shows in a long run


def test_short_requests_from_64_connections(tmp_path: Path) -> None:
    """FASTFRONT_SOAK_REQUESTS sets the number of requests; `python -m tests.soak` prints the figures."""
    with Server(tmp_path, mock=MockEngine(tmp_path).quiet()) as server:
        server.wait_ready()
        figures = soak(server, REQUESTS, CONNECTIONS)
    assert figures.answered == figures.requests
    assert len(set(figures.descriptors)) == 1, figures
    assert figures.resident_mb[-1] - figures.resident_mb[0] < GROWTH_MB, figures
    assert "ERROR" not in server.log()
