"""Bad requests are answered with 4xx naming what is wrong, and nothing of them reaches the engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.mock import MockEngine, scripted
from tests.support.server import CHAT, COMPLETIONS, HELLO, Server
from tests.support.tokens import Pieces

VOCABULARY = 49152


@pytest.fixture
def untouched(server: Server, mock: MockEngine) -> Iterator[None]:
    """The engine must not see a request, and the server must answer the next one."""
    since = mock.mark()
    yield
    assert not mock.adds(since)
    assert server.completion(max_tokens=1).status_code == 200


def error_of(response: httpx.Response, status: int = 400) -> dict[str, Any]:
    """The error object; everything about its form is checked."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert list(body) == ["error"]
    error: dict[str, Any] = body["error"]
    assert list(error) == ["message", "type", "param", "code"]
    assert error["code"] == status
    assert error["message"]
    return error


# ---- ids and numbers


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize(
    "prompt", [[-1], [VOCABULARY], [1099511627776], [], [[1], [-1]], [[1], [VOCABULARY]], [[]], "", None, [""]]
)
@pytest.mark.parametrize("stream", [False, True])
def test_c22_prompts_that_no_engine_may_see(server: Server, prompt: Any, stream: bool) -> None:
    error_of(server.post(COMPLETIONS, {"prompt": prompt, "stream": stream}))


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("prompt", [[1, "a"], ["a", 1], [[1], 2], [1.5], {"a": 1}, 5, [True, None]])
def test_prompts_of_mixed_kinds(server: Server, prompt: Any) -> None:
    assert error_of(server.post(COMPLETIONS, {"prompt": prompt}))["param"].startswith("body.prompt")


def test_c22_the_largest_id_is_served(server: Server, mock: MockEngine) -> None:
    since = mock.mark()
    assert server.post(COMPLETIONS, {"prompt": [VOCABULARY - 1], "max_tokens": 1}).status_code == 200
    assert mock.adds(since)[0]["prompt"] == [VOCABULARY - 1]


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"logit_bias": {"99999999": 5}}, "logit_bias"),
        ({"logit_bias": {"-1": 5}}, "logit_bias"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"logit_bias": {"5": "high"}}, "logit_bias"),
        ({"seed": 2**64}, "seed"),
        ({"seed": 2**63}, "seed"),
        ({"seed": -(2**63) - 1}, "seed"),
        ({"stop_token_ids": [VOCABULARY]}, "stop_token_ids"),
        ({"stop_token_ids": [-1]}, "stop_token_ids"),
        ({"allowed_token_ids": []}, "allowed_token_ids"),
        ({"allowed_token_ids": [VOCABULARY]}, "allowed_token_ids"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": 2.1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"min_p": 1.5}, "min_p"),
        ({"presence_penalty": 2.5}, "presence_penalty"),
        ({"frequency_penalty": -2.5}, "frequency_penalty"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"min_tokens": -1}, "min_tokens"),
        ({"min_tokens": 5, "max_tokens": 4}, "min_tokens"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"max_tokens": 5.5}, "max_tokens"),
        ({"stream": "perhaps"}, "stream"),
        ({"bad_words": [""]}, "bad_words"),
        ({"prompt_logprobs": 21}, "logprobs"),
    ],
)
@pytest.mark.parametrize("kind", ["chat", "completion"])
def test_c23_values_out_of_range_are_refused_by_name(server: Server, kind: str, fields: dict[str, Any], name: str) -> None:
    response = (server.chat if kind == "chat" else server.completion)(fields)
    assert name in error_of(response)["message"]


@pytest.mark.usefixtures("untouched")
def test_nan_and_infinity_are_no_json(server: Server) -> None:
    for text in (b"NaN", b"Infinity", b"-Infinity", b"1e999"):
        error_of(server.post(COMPLETIONS, b'{"prompt":"hello","temperature":' + text + b"}"))


def test_c23_values_the_engine_sees(server: Server, mock: MockEngine) -> None:
    since = mock.mark()
    fields: list[dict[str, Any]] = [
        {"logit_bias": {"5": -100}}, {"logit_bias": {"5": 1000, "6": -1000}}, {"seed": -1}, {"seed": 0}, {"seed": 2**63 - 1},
        {"temperature": 0.001}, {"temperature": 0, "top_p": 0.5},
    ]  # fmt: skip
    for field in fields:
        assert server.completion(field, max_tokens=1).status_code == 200, field
    params = [add["params"] for add in mock.adds(since)]
    biases = [{int(key): value for key, value in p["logit_bias"].items()} for p in params[:2]]
    assert biases == [{5: -100}, {5: 100, 6: -100}]
    assert [p.get("seed") for p in params[2:5]] == [None, 0, 2**63 - 1]
    assert params[5]["temperature"] == 0.01
    assert params[6]["temperature"] == 0


def test_bad_words_behind_a_space_too(server: Server, mock: MockEngine) -> None:
    since = mock.mark()
    bare, spaced = (server.post("/tokenize", {"prompt": word}).json()["tokens"] for word in ("rain", " rain"))
    assert len(bare) == len(spaced)
    assert bare != spaced
    assert server.completion({"bad_words": ["rain"]}, max_tokens=1).status_code == 200
    assert mock.adds(since)[0]["params"]["_bad_words_token_ids"] == [bare, spaced]


# ---- lengths (the server's limit is 2048)


@pytest.mark.usefixtures("untouched")
def test_c26_numbers_in_the_message_are_true(server: Server) -> None:
    message = error_of(server.post(COMPLETIONS, {"prompt": [5] * 8, "max_tokens": 2045}))["message"]
    assert all(number in message for number in ("2048", "2045", " 8 ", "2053")), message
    message = error_of(server.post(COMPLETIONS, {"prompt": [5] * 3000}))["message"]
    assert all(number in message for number in ("3000", "2048")), message
    assert " -" not in message
    message = error_of(server.post(COMPLETIONS, {"prompt": [5] * 2048}))["message"]
    assert "2048" in message
    assert " -" not in message
    message = error_of(server.completion(max_tokens=2049))["message"]
    assert "2048" in message
    assert "2049" in message


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("words", [2100, 20_000, 400_000])
def test_c26_long_texts(server: Server, words: int) -> None:
    """Also one that is far too long to be tokenized: refused by its length alone."""
    for response in (
        server.completion(prompt="word " * words),
        server.chat(messages=[{"role": "user", "content": "word " * words}]),
    ):
        message = error_of(response)["message"]
        assert "2048" in message
        assert " -" not in message


@pytest.mark.parametrize("kind", ["chat", "completion"])
def test_c26_what_is_left_is_used(server: Server, mock: MockEngine, kind: str) -> None:
    """Without max_tokens a chat gets what its prompt leaves; a completion's default is 16."""
    since = mock.mark()
    if kind == "chat":
        assert server.chat().status_code == 200
        add = mock.adds(since)[0]
        assert add["params"]["max_tokens"] == 2048 - len(add["prompt"])
    else:
        assert server.post(COMPLETIONS, {"prompt": [5] * 8}).status_code == 200
        assert server.post(COMPLETIONS, {"prompt": [5] * 8, "max_tokens": 2040}).status_code == 200
        assert [add["params"]["max_tokens"] for add in mock.adds(since)] == [16, 2040]


def test_max_completion_tokens_comes_before_max_tokens(server: Server, mock: MockEngine) -> None:
    since = mock.mark()
    server.chat(max_tokens=5, max_completion_tokens=7)
    server.chat(max_tokens=5)
    assert [add["params"]["max_tokens"] for add in mock.adds(since)] == [7, 5]


# ---- bodies


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize(
    "body",
    [
        rb'{"messages":[{"role":"user","content":"x \ud83d"}]}',
        rb'{"messages":[{"role":"user","content":"\ude00"}]}',
        rb'{"messages":[{"role":"user","content":"\ude00\ud83d"}]}',
        b'{"messages":[{"role":"user","content":"x \xff"}]}',
        b'{"messages":[{"role":"user","content":"\xed\xa0\xbd"}]}',
        b'{"messages":[{"role":"user","content":"x"',
        b'{"messages":[{"role":"user","content":"x"}]} trailing',
        b"[]",
        b"null",
        b'"text"',
        b"5",
        b"",
        b"   ",
        b"{}",
        b"[" * 100_000,
        b'{"messages":' + b"[" * 20_000 + b"]" * 20_000 + b"}",
        b'{"messages":[{"role":"user","content":"x"}],"max_tokens":' + b"9" * 5000 + b"}",
        b'{"messages":[]}',
        b'{"messages":"hello"}',
        b'{"messages":[5]}',
        b'{"messages":[{"content":"x"}]}',
        b'{"messages":[{"role":"user","content":5}]}',
        b'{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://x"}}]}]}',
    ],
    ids=lambda body: repr(body[:60]),
)
def test_c53_bodies_that_cannot_be_read(server: Server, body: bytes) -> None:
    response = server.post(CHAT, body)
    error_of(response)
    response.content.decode("utf-8")


def test_c53_a_paired_escape_is_a_character(server: Server, mock: MockEngine, pieces: Pieces) -> None:
    since = mock.mark()
    assert server.post(COMPLETIONS, rb'{"prompt":"x \ud83d\ude00","max_tokens":1}').status_code == 200
    assert mock.adds(since)[0]["prompt"] == pieces.encode("x 😀")


def test_a_byte_order_mark_is_skipped(server: Server) -> None:
    assert server.post(COMPLETIONS, b'\xef\xbb\xbf{"prompt":"hello","max_tokens":1}').status_code == 200


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("content_type", [None, "text/plain", "application/x-www-form-urlencoded", "application/jsonx", ""])
def test_c52_content_types_that_are_not_json(server: Server, content_type: str | None) -> None:
    headers = {} if content_type is None else {"content-type": content_type}
    for path in (CHAT, COMPLETIONS, "/tokenize", "/detokenize"):
        response = server.client.post(path, content=b'{"prompt":"hello"}', headers=headers)
        assert "application/json" in error_of(response)["message"]


@pytest.mark.parametrize("content_type", ["application/json; charset=utf-8", "Application/JSON", "application/json;x=1"])
def test_c52_content_types_that_are(server: Server, content_type: str) -> None:
    response = server.client.post(
        COMPLETIONS, content=b'{"prompt":"hello","max_tokens":1}', headers={"content-type": content_type}
    )
    assert response.status_code == 200


def test_c54_unknown_fields_are_ignored(server: Server, pieces: Pieces) -> None:
    messages = [{**HELLO[0], "id": "m1", "opts": {"a": 1}, "name": "me", "cache_control": {"type": "ephemeral"}}]
    extra = {"foo": 1, "user": "u", "store": True, "metadata": {"a": "b"}, "service_tier": "auto", "parallel_tool_calls": True}
    response = server.chat(scripted(pieces.byte_level("a"), then="stop"), extra, messages=messages)
    assert response.status_code == 200, response.text
    assert server.completion({"foo": 1, "best_of": 1, "user": "u"}, max_tokens=1).status_code == 200


@pytest.mark.usefixtures("untouched")
def test_c54_known_fields_of_a_wrong_type(server: Server) -> None:
    assert error_of(server.chat(temperature="hot"))["param"] == "body.temperature"
    assert error_of(server.chat(messages="hello"))["param"] == "body.messages"
    assert error_of(server.chat(stop_token_ids=["x"]))["param"] == "body.stop_token_ids.0"


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize(
    ("kind", "fields", "name"),
    [
        ("completion", {"suffix": "x"}, "suffix"),
        ("completion", {"best_of": 2}, "best_of"),
        ("completion", {"guided_regex": "a"}, "structured_outputs"),
        ("chat", {"thinking_token_budget": 5}, "thinking_token_budget"),
    ],
)
def test_fields_that_are_not_served_yet_are_refused_by_name(server: Server, kind: str, fields: dict[str, Any], name: str) -> None:
    assert name in error_of((server.chat if kind == "chat" else server.completion)(fields))["message"]


@pytest.mark.usefixtures("untouched")
def test_c55_an_unknown_model_is_named(server: Server) -> None:
    for ask in (server.chat, server.completion):
        error = error_of(ask(model="no-such-model"), 404)
        assert "no-such-model" in error["message"]
        assert error["param"] == "model"


def test_no_model_name_means_the_served_one(server: Server) -> None:
    for model in (None, "", "smollm2"):
        assert server.completion(model=model, max_tokens=1).json()["model"] == "smollm2"


@pytest.mark.usefixtures("untouched")
def test_errors_come_before_the_stream(server: Server) -> None:
    """Asked to stream, a bad request still gets its status."""
    error_of(server.chat(stream=True, temperature=5))
    error_of(server.chat(stream=True, n=0))
    error_of(server.chat(stream=True, model="x"), 404)
