"""OpenAI's client for Node.js: whole answers, streams, its stream helper, responses, errors, pings."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.mock import MockEngine
from tests.support.paths import CACHE
from tests.support.server import Server
from tools.setup.npm_client import client_folder

SCRIPT = Path(__file__).with_name("client.mjs")
pytestmark = [
    pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed"),
    pytest.mark.skipif(not client_folder(CACHE).is_dir(), reason="the package is not in the cache: `make test` fetches it"),
]


@pytest.fixture(scope="module", params=["usual", "pings"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With pings, tokens are slow, so that comments stand between them."""
    flags = ("--sse-keep-alive-interval", "0.05") if request.param == "pings" else ()
    step_ms = "200" if request.param == "pings" else "0"
    folder = tmp_path_factory.mktemp("node")
    mock = MockEngine(folder, "--tokens", "echo", "--step-ms", step_ms)
    with Server(folder, "--served-model-name", "m", *flags, mock=mock) as server:
        yield server.wait_ready()


def test_every_way_of_asking(server: Server) -> None:
    environment = {**os.environ, "OPENAI_PACKAGE": str(client_folder(CACHE))}
    command = ["node", str(SCRIPT), f"http://127.0.0.1:{server.port}/v1"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    text, finish, tokens = found["whole"]
    assert (len(text) > 0, finish, tokens) == (True, "length", 12)
    assert found["streamed"] == found["whole"]
    assert found["helper"] == [text, "length"]
    assert found["completion"] == "The capital of France"
    assert found["logprobs"] == 12
    assert found["response"] == text
    assert found["models"] == ["m"]
    assert found["error"] == ["BadRequestError", 400, "temperature"]
