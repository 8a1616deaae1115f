"""Development routes with the engine behind them: pausing, sleeping, and what running requests see of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.metrics import metric
from tests.support.server import Server, chunks
from tests.support.sse import joined
from tests.support.waiting import wait_for

pytestmark = pytest.mark.slow
LONG: dict[str, Any] = {"prompt": "Once upon a time", "temperature": 0, "max_tokens": 120}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, cache_folder: Path) -> Iterator[Server]:
    assert (cache_folder / "models" / "smollm2").is_dir(), "run `make setup`"
    flags = ("--max-model-len", "512", "--num-gpu-blocks-override", "64")
    folder = tmp_path_factory.mktemp("development")
    with Server(folder, *flags, model="smollm2", env={"VLLM_SERVER_DEV_MODE": "1"}) as server:
        server.wait_ready(timeout_s=300)
        yield server


@pytest.fixture(scope="module")
def text(server: Server) -> str:
    """The long answer when nothing interferes."""
    answer: str = server.completion(LONG).json()["choices"][0]["text"]
    return answer


class Background:
    """A streamed request that is read on a thread of its own."""

    def __init__(self, server: Server, tokens: int = LONG["max_tokens"]) -> None:
        self.body = b""
        self.began = threading.Event()
        self._server = server
        self._asked = {**LONG, "stream": True, "max_tokens": tokens}
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        with self._server.client.stream("POST", "/v1/completions", json=self._asked) as response:
            assert response.status_code == 200
            for piece in response.iter_raw():
                self.body += piece
                if self.body.count(b"data: ") > 3:
                    self.began.set()

    def end(self) -> tuple[str, str]:
        """Text and finish reason."""
        self._thread.join(120)
        found = chunks(self.body)
        return joined(found), next(c["finish_reason"] for chunk in found for c in chunk["choices"] if c["finish_reason"])


def call(server: Server, method: str, path: str) -> Any:
    response = server.client.request(method, path, timeout=120)
    assert response.status_code == 200, response.text
    return response.json() if response.content else None


@pytest.mark.parametrize(("mode", "finish"), [("keep", "length"), ("wait", "length"), ("abort", "abort")])
def test_pause_and_resume(server: Server, text: str, mode: str, finish: str) -> None:
    stream = Background(server, 480) if mode == "abort" else Background(server)
    assert stream.began.wait(60)
    assert call(server, "POST", f"/pause?mode={mode}&clear_cache=true") == {"status": "paused"}
    assert call(server, "GET", "/is_paused") == {"is_paused": True}
    seen = metric(server, "vllm:generation_tokens_total")
    queued = Background(server)
    assert not queued.began.wait(1)
    if mode == "keep":
        assert metric(server, "vllm:generation_tokens_total") == seen
    else:
        assert stream.end()[1] == finish
    assert call(server, "POST", "/resume") == {"status": "resumed"}
    assert call(server, "GET", "/is_paused") == {"is_paused": False}
    assert queued.end() == (text, "length")
    if mode != "abort":
        assert stream.end() == (text, finish)


@pytest.mark.parametrize("level", [1, 2])
def test_sleep_and_wake_up(server: Server, text: str, level: int) -> None:
    assert call(server, "GET", "/is_sleeping") == {"is_sleeping": False}
    stream = Background(server)
    assert stream.began.wait(60)
    call(server, "POST", f"/sleep?level={level}&mode=keep")
    assert call(server, "GET", "/is_sleeping") == {"is_sleeping": True}
    call(server, "POST", "/wake_up?tags=weights")
    assert call(server, "GET", "/is_sleeping") == {"is_sleeping": True}
    call(server, "POST", "/wake_up?tags=kv_cache")
    assert call(server, "GET", "/is_sleeping") == {"is_sleeping": False}
    assert stream.end() == (text, "length")
    assert server.completion(LONG).json()["choices"][0]["text"] == text


def test_the_prefix_cache_can_be_emptied(server: Server) -> None:
    def hits() -> float:
        line = next(x for x in server.get("/metrics").text.splitlines() if x.startswith("vllm:prefix_cache_hits_total{"))
        return float(line.rpartition(" ")[2])

    prompt = {"prompt": "one two three four " * 20, "max_tokens": 1}
    server.completion(prompt)
    before = hits()
    call(server, "POST", "/reset_prefix_cache")
    server.completion(prompt)
    assert hits() == before
    server.completion(prompt)
    wait_for(lambda: hits() > before, "a hit")
