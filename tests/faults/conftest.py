"""Every test here has servers of its own: it breaks them."""

from __future__ import annotations

import os

import pytest

from tests.support.fixtures import pieces, start
from tests.support.server import Server

__all__ = ["pieces", "start"]


@pytest.fixture
def a(pieces: object) -> int:
    """Some token; its text is `a`."""
    return 81


def kill_engine(server: Server, number: int) -> None:
    """A signal to the server's only engine."""
    (engine,) = server.engine_pids()
    os.kill(engine, number)
