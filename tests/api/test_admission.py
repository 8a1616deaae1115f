"""--max-num-queued-reqs, --max-num-queued-tokens, --custom-histogram-buckets."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.api.conftest import serve
from tests.support.http1 import post
from tests.support.metrics import metric
from tests.support.mock import scripted
from tests.support.server import CHAT, COMPLETIONS, HELLO, Server
from tests.support.tokens import Pieces
from tests.support.waiting import wait_for

OTHERS: list[tuple[str, dict[str, object]]] = [
    (CHAT, {"messages": HELLO, "stream": True}),
    ("/v1/messages", {"model": "smollm2", "messages": HELLO, "max_tokens": 5}),
    ("/v1/responses", {"input": "hello"}),
    ("/v1/chat/completions/batch", {"messages": [HELLO, HELLO]}),
    ("/invocations", {"prompt": "hello"}),
]


@pytest.fixture(scope="module")
def bounded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    buckets = '{"request_tokens": [3, 100000], "iteration_tokens": [7]}'
    flags = ("--max-num-queued-reqs", "3", "--max-num-queued-tokens", "50", "--custom-histogram-buckets", buckets)
    yield from serve(tmp_path_factory, "bounded", *flags)


def rejected(server: Server, reason: str) -> float:
    return metric(server, "vllm:admission_rejections_total", reason=reason)


def refused(server: Server, **fields: object) -> str:
    response = server.completion(fields)
    assert (response.status_code, response.headers["retry-after"]) == (429, "1")
    error = response.json()["error"]
    assert (error["type"], error["code"]) == ("RateLimitError", 429)
    message: str = error["message"]
    return message


def test_requests_beyond_the_bound_get_429_until_there_is_room(bounded: Server, pieces: Pieces) -> None:
    assert bounded.mock is not None
    a = pieces.byte_level("a")
    before, since = rejected(bounded, "max_num_queued_reqs"), bounded.mock.mark()
    connections = [bounded.connect() for _ in range(2)]
    for connection in connections:
        connection.send(post(COMPLETIONS, {"prompt": [5], "stream": True, **scripted(a)}))
        connection.response_head()
    assert "--max-num-queued-reqs 3" in refused(bounded, prompt=[5], n=2)
    assert bounded.completion(scripted(a, then="stop"), prompt=[5]).status_code == 200
    wait_for(lambda: metric(bounded, "fastfront:engine_in_flight") == 2, "room for the third")
    third = bounded.connect()
    third.send(post(COMPLETIONS, {"prompt": [5], "stream": True, **scripted(a)}))
    third.response_head()
    refused(bounded, prompt="words that need not be looked at", temperature=-1)
    for path, body in OTHERS:
        response = bounded.post(path, body)
        assert (path, response.status_code, response.headers.get("retry-after")) == (path, 429, "1")
    assert bounded.get("/health").status_code == 200
    assert rejected(bounded, "max_num_queued_reqs") - before == 2 + len(OTHERS)
    for connection in (*connections, third):
        connection.close()
    bounded.mock.wait_aborts([add["id"] for add in bounded.mock.adds(since)][:2], since)
    wait_for(lambda: bounded.completion(scripted(a, then="stop"), prompt=[5], n=3).status_code == 200, "room")


def test_prompts_wait_only_until_their_first_token(bounded: Server, pieces: Pieces) -> None:
    assert bounded.mock is not None
    a = pieces.byte_level("a")
    bounded.mock.wait_idle()
    wait_for(lambda: metric(bounded, "fastfront:engine_in_flight") == 0, "no request in flight")
    before, since = rejected(bounded, "max_num_queued_tokens"), bounded.mock.mark()
    bounded.mock.pause()
    connection = bounded.connect()
    connection.send(post(COMPLETIONS, {"prompt": [5] * 45, "stream": True, **scripted(a)}))
    bounded.mock.wait_adds(1, since)
    assert "--max-num-queued-tokens 50" in refused(bounded, prompt=[5] * 6)
    bounded.mock.resume()
    connection.response_head()
    assert bounded.completion(scripted(a, then="stop"), prompt=[5] * 50).status_code == 200
    assert rejected(bounded, "max_num_queued_tokens") - before == 1
    connection.close()
    bounded.mock.wait_idle()


def test_buckets_of_ones_own(bounded: Server) -> None:
    """On this server, which has them; they are not cut at the longest sequence."""
    page = bounded.get("/metrics").text

    def edges(name: str) -> list[str]:
        return re.findall(rf'{name}_bucket{{.*le="([^"]*)"', page)

    assert edges("vllm:request_prompt_tokens") == edges("vllm:request_params_max_tokens") == ["3.0", "100000.0", "+Inf"]
    assert edges("vllm:iteration_tokens_total") == ["7.0", "+Inf"]
    assert len(edges("vllm:request_params_n")) == 6
