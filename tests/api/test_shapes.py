"""Answers have the keys, in the order, that clients of vLLM know."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from tests.support.mock import MockEngine, scripted
from tests.support.server import COMPLETIONS, Server
from tests.support.sse import deltas, finishes, joined
from tests.support.tokens import Pieces

CHAT_BODY = [
    "id", "object", "created", "model", "choices", "service_tier", "system_fingerprint", "usage", "prompt_logprobs",
    "prompt_token_ids", "prompt_text", "kv_transfer_params", "ec_transfer_params", "metrics",
]  # fmt: skip
CHAT_CHOICE = ["index", "message", "logprobs", "finish_reason", "stop_reason", "token_ids", "routed_experts"]
MESSAGE = ["role", "content", "refusal", "annotations", "audio", "function_call", "reasoning"]
COMPLETION_BODY = [
    "id", "object", "created", "model", "choices", "service_tier", "system_fingerprint", "usage",
    "kv_transfer_params", "ec_transfer_params", "metrics",
]  # fmt: skip
COMPLETION_CHOICE = [
    "index", "text", "logprobs", "finish_reason", "stop_reason", "token_ids", "prompt_logprobs", "prompt_token_ids",
    "routed_experts",
]  # fmt: skip
USAGE = ["prompt_tokens", "total_tokens", "completion_tokens", "prompt_tokens_details", "completion_tokens_details"]
CHUNK = ["id", "object", "created", "model", "choices"]
COMPLETION_CHUNK_CHOICE = [
    "index", "text", "logprobs", "finish_reason", "stop_reason", "prompt_token_ids", "token_ids"
]  # fmt: skip


@pytest.fixture
def three(pieces: Pieces) -> dict[str, Any]:
    """Makes the engine answer `one two three`, then EOS."""
    return scripted(*pieces.many("one", " two", " three"), pieces.named("<|im_end|>"))


def test_chat_body(server: Server, three: dict[str, Any]) -> None:
    response = server.chat(three)
    body = response.json()
    assert response.headers["content-type"] == "application/json"
    assert list(body) == CHAT_BODY
    assert body["object"] == "chat.completion"
    assert body["model"] == "smollm2"
    assert re.fullmatch(r"chatcmpl-[0-9a-f]{16}", body["id"])
    assert abs(body["created"] - time.time()) < 60
    (choice,) = body["choices"]
    assert list(choice) == CHAT_CHOICE
    assert list(choice["message"]) == MESSAGE
    assert choice["message"]["role"] == "assistant"
    assert choice["message"]["content"] == "one two three"
    assert (choice["index"], choice["finish_reason"], choice["stop_reason"]) == (0, "stop", None)
    assert list(body["usage"]) == USAGE
    assert body["usage"]["completion_tokens"] == 4
    assert body["usage"]["total_tokens"] == body["usage"]["prompt_tokens"] + 4
    left = {name: body[name] for name in CHAT_BODY if body[name] is None}
    assert list(left) == [
        "service_tier", "prompt_logprobs", "prompt_token_ids", "prompt_text", "kv_transfer_params",
        "ec_transfer_params", "metrics",
    ]  # fmt: skip


def test_completion_body(server: Server, three: dict[str, Any]) -> None:
    body = server.completion(three).json()
    assert list(body) == COMPLETION_BODY
    assert body["object"] == "text_completion"
    assert re.fullmatch(r"cmpl-[0-9a-f]{16}", body["id"])
    (choice,) = body["choices"]
    assert list(choice) == COMPLETION_CHOICE
    assert choice == {
        "index": 0, "text": "one two three", "logprobs": None, "finish_reason": "stop", "stop_reason": None,
        "token_ids": None, "prompt_logprobs": None, "prompt_token_ids": None, "routed_experts": None,
    }  # fmt: skip
    assert body["usage"] == {
        "prompt_tokens": 1, "total_tokens": 5, "completion_tokens": 4, "prompt_tokens_details": None,
        "completion_tokens_details": None,
    }  # fmt: skip


def test_chat_stream(server: Server, three: dict[str, Any]) -> None:
    chunks = server.chat_stream(three)
    role, *contents, last = chunks
    assert list(role) == [*CHUNK, "prompt_token_ids", "prompt_text"]
    assert role["choices"] == [
        {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
    ]
    assert list(role["choices"][0]) == ["index", "delta", "logprobs", "finish_reason"]
    assert [list(chunk) for chunk in contents] == [CHUNK] * 3
    for chunk, text in zip(contents, ("one", " two", " three"), strict=True):
        (choice,) = chunk["choices"]
        assert list(choice) == ["index", "delta", "logprobs", "finish_reason", "token_ids"]
        assert choice == {
            "index": 0, "delta": {"content": text}, "logprobs": None, "finish_reason": None, "token_ids": None,
        }  # fmt: skip
    assert list(last) == [*CHUNK, "system_fingerprint"]
    assert list(last["choices"][0]) == ["index", "delta", "logprobs", "finish_reason", "stop_reason", "token_ids"]
    assert last["choices"] == [
        {"index": 0, "delta": {"content": ""}, "logprobs": None, "finish_reason": "stop", "stop_reason": None, "token_ids": None}
    ]
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}


def test_completion_stream(server: Server, three: dict[str, Any]) -> None:
    chunks = server.completion_stream(three)
    assert [list(chunk) for chunk in chunks] == [CHUNK] * 3 + [[*CHUNK, "system_fingerprint"]]
    for chunk in chunks:
        assert list(chunk["choices"][0]) == COMPLETION_CHUNK_CHOICE
    assert deltas(chunks) == ["one", " two", " three", ""]
    assert finishes(chunks) == [("stop", None)]
    assert {chunk["object"] for chunk in chunks} == {"text_completion"}


def test_one_event_for_each_token(server: Server, pieces: Pieces) -> None:
    """However fast the engine is, tokens that came one by one leave one by one."""
    ids = [pieces.byte_level("a")] * 200
    chunks = server.completion_stream(scripted(*ids, then="length"), max_tokens=200)
    assert deltas(chunks) == ["a"] * 200


def test_tokens_that_the_engine_sends_together_share_an_event(server: Server, pieces: Pieces) -> None:
    ids = pieces.many("one", " two", " three")
    chunks = server.completion_stream(scripted(ids, ids, then="stop"))
    assert deltas(chunks) == ["one two three", "one two three", ""]


@pytest.mark.parametrize("kind", ["chat", "completion"])
def test_the_fingerprint_is_the_same_in_all_answers(server: Server, three: dict[str, Any], kind: str) -> None:
    ask, stream = (server.chat, server.chat_stream) if kind == "chat" else (server.completion, server.completion_stream)
    body = ask(three).json()
    assert re.fullmatch(r"fastfront-\S+-[0-9a-f]{8}", body["system_fingerprint"])
    found = [chunk["system_fingerprint"] for chunk in stream(three) if "system_fingerprint" in chunk]
    assert found == [body["system_fingerprint"]]
    usage = {"stream_options": {"include_usage": True}}
    with_usage = stream(three, usage)
    assert [k for k, chunk in enumerate(with_usage) if "system_fingerprint" in chunk] == [len(with_usage) - 1]


@pytest.mark.parametrize("prompt", [{"prompt": "hello"}, {"prompt": [28120]}, {"prompt": ["hello"]}, {"prompt": [[28120]]}])
def test_all_forms_of_a_prompt(server: Server, mock: MockEngine, three: dict[str, Any], prompt: dict[str, Any]) -> None:
    since = mock.mark()
    response = server.post(COMPLETIONS, {**prompt, **three})
    assert response.json()["choices"][0]["text"] == "one two three"
    assert [add["prompt"] for add in mock.adds(since)] == [[28120]]


def test_c17_finish_reason_is_always_there_and_the_role_comes_once(server: Server, pieces: Pieces) -> None:
    ids = pieces.many("a", "b", "c")
    chunks = server.chat_stream(scripted(*ids, then="length"), n=3, max_tokens=3)
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1
    for index in range(3):
        own = [choice for chunk in chunks for choice in chunk["choices"] if choice["index"] == index]
        assert [choice["delta"].get("role") for choice in own] == ["assistant"] + [None] * (len(own) - 1)
        assert [choice["finish_reason"] for choice in own] == [None] * (len(own) - 1) + ["length"]
        assert joined(chunks, index) == "abc"


def test_role_chunks_of_all_choices_come_first(server: Server, pieces: Pieces) -> None:
    chunks = server.chat_stream(scripted(pieces.byte_level("a"), then="length"), n=4, max_tokens=2)
    roles = [chunk["choices"][0]["index"] for chunk in chunks if "role" in chunk["choices"][0]["delta"]]
    assert roles == [0, 1, 2, 3]
    assert all("role" in chunk["choices"][0]["delta"] for chunk in chunks[:4])


def test_each_chunk_has_one_choice(server: Server, pieces: Pieces) -> None:
    chunks = server.chat_stream(scripted(*pieces.many("a", "b"), then="stop"), n=3)
    assert {len(chunk["choices"]) for chunk in chunks} == {1}


@pytest.mark.parametrize("stream", [False, True])
def test_text_leaves_as_json(server: Server, pieces: Pieces, stream: bool) -> None:
    """Everything JSON must escape, and everything it need not."""
    text = 'quote " backslash \\ newline \n tab \t nul \0 bell \x07 del \x7f é 👋 \u2028 </script>'
    ids = [pieces.byte_level(bytes([byte])) for byte in text.encode()]
    response = server.completion(scripted(*ids, then="stop"), stream=stream, max_tokens=len(ids) + 1)
    assert response.status_code == 200
    assert "👋".encode() in response.content
    assert b"\\u00e9" not in response.content
    if stream:
        from_stream = server.completion_stream(scripted(*ids, then="stop"), max_tokens=len(ids) + 1)
        assert joined(from_stream) == text
    else:
        assert response.json()["choices"][0]["text"] == text


def test_the_engine_gets_the_client_label_and_a_unique_id(server: Server, mock: MockEngine, three: dict[str, Any]) -> None:
    since = mock.mark()
    assert server.chat(three, request_id="mine").json()["id"] == "chatcmpl-mine"
    assert server.post(COMPLETIONS, {"prompt": "hello", **three}, x_request_id="theirs").json()["id"] != "cmpl-theirs"
    assert server.post(COMPLETIONS, {"prompt": "hello", **three}, **{"x-request-id": "theirs"}).json()["id"] == "cmpl-theirs"
    first, _, third = mock.adds(since)
    assert first["fields"][16] == "chatcmpl-mine"
    assert first["id"] != "chatcmpl-mine"
    assert first["id"].startswith("chatcmpl-mine-")
    assert third["fields"][16] == "cmpl-theirs"
