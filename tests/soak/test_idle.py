"""Connections that are silent for longer than a test would wait: part of the long tests (FASTFRONT_SOAK_IDLE=1)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.http1 import post
from tests.support.mock import MockEngine
from tests.support.server import COMPLETIONS, Server

IDLE_S = (10, 75)


@pytest.mark.skipif("FASTFRONT_SOAK_IDLE" not in os.environ, reason="takes a minute and a half: set FASTFRONT_SOAK_IDLE=1")
def test_c48_a_connection_outlives_the_pools_of_clients(tmp_path: Path) -> None:
    with Server(tmp_path, mock=MockEngine(tmp_path)) as server:
        server.wait_ready()
        with server.connect() as connection:
            for idle_s in (*IDLE_S, 0):
                connection.send(post(COMPLETIONS, {"prompt": "hello", "max_tokens": 1}))
                assert connection.response().status == 200
                assert not idle_s or connection.silent(idle_s)
