"""Counters agree with what was served, gauges with what is going on."""

from __future__ import annotations

from tests.support.clients import at_once
from tests.support.http1 import post
from tests.support.metrics import finished, gauges, metric
from tests.support.mock import MockEngine, scripted
from tests.support.server import COMPLETIONS, Server
from tests.support.tokens import Pieces
from tests.support.waiting import wait_for


def test_c67_every_request_adds_one_to_one_reason(server: Server, mock: MockEngine, pieces: Pieces) -> None:
    a = pieces.byte_level("a")
    since = mock.mark()
    before, prompt, generated = (
        finished(server),
        metric(server, "vllm:prompt_tokens_total"),
        metric(server, "vllm:generation_tokens_total"),
    )
    for k in range(10):
        server.completion(scripted(a, a, then="stop"), prompt=[5] * (k + 1), stream=k % 2 == 0)
    for k in range(5):
        server.completion(scripted(a, then="loop"), prompt=[5], max_tokens=3, stream=k % 2 == 0)
    for k in range(5):
        with server.connect() as connection:
            connection.send(post(COMPLETIONS, {"prompt": [5, 6], "stream": k % 2 == 0, **scripted(a)}))
            if k % 2 == 0:
                connection.response_head()
            mock.wait_adds(16 + k, since)
    mock.wait_aborts([add["id"] for add in mock.adds(since)[15:]], since)
    wanted = {"stop": 10, "length": 5, "abort": 5, "error": 0, "repetition": 0}

    def counted() -> bool:
        return {reason: count - before[reason] for reason, count in finished(server).items()} == wanted

    wait_for(counted, f"counts {wanted}, not {finished(server)} after {before}")
    prompts = sum(len(add["prompt"]) for add in mock.adds(since))
    assert metric(server, "vllm:prompt_tokens_total") - prompt == prompts == 55 + 5 + 10
    assert metric(server, "vllm:generation_tokens_total") - generated >= 20 + 15 + 3


def test_refused_requests_are_not_counted(server: Server) -> None:
    before = finished(server), metric(server, "vllm:prompt_tokens_total")
    assert server.completion(temperature=5).status_code == 400
    assert (finished(server), metric(server, "vllm:prompt_tokens_total")) == before


def test_c68_gauges_show_the_present(server: Server, mock: MockEngine, pieces: Pieces) -> None:
    a = pieces.byte_level("a")
    since = mock.mark()
    connections = [server.connect() for _ in range(100)]
    request = post(COMPLETIONS, {"prompt": [5], "stream": True, **scripted(a)})

    def begin(k: int) -> None:
        connections[k].send(request)
        connections[k].response_head()

    at_once(begin, range(100))
    wait_for(lambda: gauges(server)[0] == 100, "100 running requests")
    for connection in connections:
        connection.close()
    wait_for(lambda: gauges(server) == (0, 0, 0), "gauges at 0 without another request")
    mock.wait_aborts([add["id"] for add in mock.adds(since)], since)
    assert len(mock.aborted(since)) == 100
