"""What flags make answers show: details of the prompt, times, token ids in logprobs, no fingerprint."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.api.conftest import serve
from tests.support.server import Server

CHAT = "/v1/chat/completions"
ASK: dict[str, Any] = {"messages": [{"role": "user", "content": "alpha beta"}], "max_tokens": 3}
TIMES = [
    "time_to_first_token_ms", "generation_time_ms", "queue_time_ms", "mean_itl_ms", "tokens_per_second",
    "speculative_decoding",
]  # fmt: skip
TOOLS = {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]}


@pytest.fixture(scope="module")
def talkative(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from serve(
        tmp_path_factory, "talkative", "--enable-prompt-tokens-details", "--enable-per-request-metrics",
        "--return-tokens-as-token-ids", "--fingerprint-mode", "none", "--enable-auto-tool-choice", "--tool-call-parser", "hermes",
    )  # fmt: skip


@pytest.mark.parametrize("more", [{}, TOOLS], ids=["native", "read"])
def test_chats(talkative: Server, more: dict[str, Any]) -> None:
    body = talkative.post(CHAT, ASK | more).json()
    assert body["usage"]["prompt_tokens_details"] == {"cached_tokens": 0, "created_cache_tokens": 0, "multimodal_tokens": None}
    assert list(body["metrics"]) == TIMES
    assert all(body["metrics"][name] >= 0 for name in TIMES[:-1])
    assert body["system_fingerprint"] is None
    *chunks, last = talkative.chat_stream(ASK, more, stream_options={"include_usage": True})
    assert last["usage"]["prompt_tokens_details"] == {"cached_tokens": 0, "created_cache_tokens": 0}
    assert list(last["metrics"]) == TIMES[:-1]
    assert not [chunk for chunk in (*chunks, last) if "system_fingerprint" in chunk]


def test_completions(talkative: Server) -> None:
    ask = {"prompt": "alpha beta", "max_tokens": 3, "logprobs": 0}
    body = talkative.post("/v1/completions", ask).json()
    details = {"cached_tokens": 0, "created_cache_tokens": None, "multimodal_tokens": None}
    assert body["usage"]["prompt_tokens_details"] == details
    assert list(body["metrics"]) == TIMES
    assert all(token.startswith("token_id:") for token in body["choices"][0]["logprobs"]["tokens"])
    own = talkative.post("/v1/completions", {**ask, "return_tokens_as_token_ids": False}).json()
    assert own["choices"][0]["logprobs"]["tokens"][0] == "alpha"
    several = talkative.post("/v1/completions", {**ask, "prompt": ["a", "b"]}).json()
    assert several["metrics"] is None
    assert several["usage"]["prompt_tokens_details"] == details


def test_the_other_apis(talkative: Server) -> None:
    message = talkative.post("/v1/messages", ASK | {"model": "smollm2"}).json()
    assert message["usage"] | {"input_tokens": 0} == {
        "input_tokens": 0, "output_tokens": 3, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
    }  # fmt: skip
    response = talkative.post("/v1/responses", {"input": "alpha", "max_output_tokens": 3}).json()
    assert response["usage"]["input_tokens_details"]["cached_tokens"] == 0
    batch = talkative.post(CHAT + "/batch", {"messages": [ASK["messages"]], "max_tokens": 3}).json()
    assert batch["usage"]["prompt_tokens_details"] is None
    assert batch["metrics"] is None
