"""Several choices, several prompts, echo and token ids."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.http1 import post
from tests.support.mock import MockEngine, named, rule, scripted
from tests.support.server import HELLO, Server
from tests.support.sse import chunks, deltas, finishes, joined
from tests.support.tokens import Pieces

BOTH = pytest.mark.parametrize("stream", [False, True], ids=["body", "stream"])
KINDS = pytest.mark.parametrize("kind", ["chat", "completion"])


def texts(server: Server, stream: bool, kind: str, *fields: Any, **more: Any) -> dict[int, str]:
    """Text of every choice by index."""
    if stream:
        chunks = (server.chat_stream if kind == "chat" else server.completion_stream)(*fields, **more)
        indexes = {choice["index"] for chunk in chunks for choice in chunk["choices"]}
        return {index: joined(chunks, index) for index in indexes}
    response = (server.chat if kind == "chat" else server.completion)(*fields, **more)
    assert response.status_code == 200, response.text
    choices = response.json()["choices"]
    found = {choice["index"]: choice["text"] if kind == "completion" else choice["message"]["content"] for choice in choices}
    assert list(found) == list(range(len(choices)))
    return found


@BOTH
@KINDS
def test_c28_every_choice_has_its_own_index_and_text(
    server: Server, mock: MockEngine, pieces: Pieces, stream: bool, kind: str
) -> None:
    a, b, zero, one = pieces.many("A", "B", "0", "1")
    mock.use(
        {"when": {"child": 0}, **rule([a, zero], [a, one], then="stop")},
        {"when": {"child": 1}, **rule([b, zero], {"tokens": [b, one], "wait_steps": 1}, then="stop")},
    )
    assert texts(server, stream, kind, n=2) == {0: "A0A1", 1: "B0B1"}


def test_c28_completion_tokens_are_the_sum(server: Server, mock: MockEngine, pieces: Pieces) -> None:
    a, b = pieces.many("A", "B")
    mock.use({"when": {"child": 0}, **rule(a, a, then="stop")}, {"when": {"child": 1}, **rule(b, b, then="stop")})
    usage = server.completion(n=2).json()["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (1, 4)


@BOTH
def test_index_is_prompt_index_times_n_plus_i(server: Server, mock: MockEngine, pieces: Pieces, stream: bool) -> None:
    a, b = pieces.many("a", "b")
    mock.use({"when": {"prompt": [5]}, **rule(a, then="stop")}, {"when": {"prompt": [6]}, **rule(b, then="stop")})
    assert texts(server, stream, "completion", prompt=[[5], [6]], n=2) == {0: "a", 1: "a", 2: "b", 3: "b"}


def test_each_choice_finishes_for_itself(server: Server, mock: MockEngine, pieces: Pieces) -> None:
    a = pieces.byte_level("a")
    mock.use({"when": {"child": 0}, **rule(a, then="stop")}, {"when": {"child": 1}, **rule(a, then="loop")})
    chunks = server.completion_stream(n=2, max_tokens=5)
    assert finishes(chunks, 0) == [("stop", None)]
    assert finishes(chunks, 1) == [("length", None)]


def test_children_get_seeds_of_their_own(server: Server, mock: MockEngine) -> None:
    since = mock.mark()
    server.completion(n=3, seed=7, temperature=1, max_tokens=1)
    assert [add["params"].get("seed") for add in mock.adds(since)] == [7, 8, 9]


def test_a_stop_string_in_one_choice_aborts_only_that(server: Server, mock: MockEngine, pieces: Pieces) -> None:
    a, b = pieces.many("a", "b")
    mock.use({"when": {"child": 0}, **rule(a, then="loop")}, {"when": {"child": 1}, **rule(b, then="loop")})
    since = mock.mark()
    chunks = server.completion_stream(n=2, max_tokens=30, stop=["bb"])
    assert finishes(chunks, 0) == [("length", None)]
    assert finishes(chunks, 1) == [("stop", "bb")]
    ids = [add["id"] for add in mock.adds(since)]
    mock.wait_aborts([ids[1]], since)
    assert mock.aborted(since) == [ids[1]]


def test_n_out_of_range(server: Server, mock: MockEngine) -> None:
    since = mock.mark()
    for n in (0, -1, 16385, "x"):
        response = server.chat(n=n)
        assert response.status_code == 400, n
        assert "n" in response.json()["error"]["message"]
    assert server.chat(n=2, temperature=0).status_code == 400
    assert not mock.adds(since)


# ---- echo


@BOTH
def test_c25_echo_with_max_tokens_0_is_just_the_prompt(server: Server, stream: bool) -> None:
    found = texts(server, stream, "completion", prompt="abc def", echo=True, max_tokens=0)
    assert found == {0: "abc def"}


def test_c25_max_tokens_0_or_less_without_echo(server: Server, mock: MockEngine) -> None:
    since = mock.mark()
    for fields in ({"max_tokens": 0}, {"max_tokens": -5}, {"max_tokens": -5, "echo": True}):
        response = server.completion(fields)
        assert response.status_code == 400, fields
        assert "max_tokens" in response.json()["error"]["message"]
    for fields in ({"max_tokens": 0}, {"max_completion_tokens": 0}, {"max_completion_tokens": -1}):
        assert server.chat(fields).status_code == 400, fields
    assert not mock.adds(since)


@BOTH
def test_c25_echo_sends_the_prompt_once_and_first(server: Server, pieces: Pieces, stream: bool) -> None:
    script = scripted(*pieces.many("a", "b"), then="stop")
    assert texts(server, stream, "completion", script, prompt="abc def", echo=True) == {0: "abc defab"}
    assert texts(server, stream, "completion", script, prompt=["x", "y"], echo=True, n=2) == {
        0: "xab", 1: "xab", 2: "yab", 3: "yab",
    }  # fmt: skip


def test_echo_of_token_ids_is_their_text(server: Server, pieces: Pieces) -> None:
    prompt = pieces.many("Hello", " world")
    body = server.completion(scripted(pieces.byte_level("!"), then="stop"), prompt=prompt, echo=True).json()
    assert body["choices"][0]["text"] == "Hello world!"


def test_first_chunk_of_an_echo_holds_prompt_and_first_token(server: Server, pieces: Pieces) -> None:
    chunks = server.completion_stream(scripted(*pieces.many("a", "b"), then="stop"), prompt="abc def", echo=True)
    assert deltas(chunks) == ["abc defa", "b", ""]


@BOTH
def test_chat_echo_goes_on_with_the_last_message(server: Server, pieces: Pieces, stream: bool) -> None:
    script = scripted(*pieces.many("a", "b"), then="stop")
    messages = [*HELLO, {"role": "assistant", "content": "So far: "}]
    assert texts(server, stream, "chat", script, messages=messages, echo=True) == {0: "So far: ab"}
    assert texts(server, stream, "chat", script, echo=True) == {0: "ab"}  # the last message is the user's


# ---- token ids


def test_return_token_ids_of_a_chat_stream(server: Server, mock: MockEngine, pieces: Pieces) -> None:
    since = mock.mark()
    a, b = pieces.many("a", "b")
    chunks = server.chat_stream(scripted([a, b], a, then="stop"), return_token_ids=True)
    assert chunks[0]["prompt_token_ids"] == mock.adds(since)[0]["prompt"]
    assert [chunk["choices"][0]["token_ids"] for chunk in chunks[1:]] == [[a, b], [a], []]
    assert not any("prompt_token_ids" in chunk for chunk in chunks[1:])


def test_return_token_ids_of_a_completion_stream(server: Server, pieces: Pieces) -> None:
    a, b = pieces.many("a", "b")
    chunks = server.completion_stream(scripted(a, b, then="stop"), prompt=[[5, 6], [7]], return_token_ids=True)
    for index, prompt in enumerate(([5, 6], [7])):
        own = [chunk["choices"][0] for chunk in chunks if chunk["choices"][0]["index"] == index]
        assert [choice["token_ids"] for choice in own] == [[a], [b], []]
        assert [choice["prompt_token_ids"] for choice in own] == [prompt, None, None]


def test_return_token_ids_of_bodies(server: Server, mock: MockEngine, pieces: Pieces) -> None:
    a, eos = pieces.byte_level("a"), pieces.named("<|im_end|>")
    choice = server.completion(scripted(a, eos), prompt=[5, 6], return_token_ids=True).json()["choices"][0]
    assert (choice["token_ids"], choice["prompt_token_ids"], choice["text"]) == ([a, eos], [5, 6], "a")
    since = mock.mark()
    body = server.chat(scripted(a, eos), return_token_ids=True).json()
    assert body["choices"][0]["token_ids"] == [a, eos]
    assert body["prompt_token_ids"] == mock.adds(since)[0]["prompt"]


def test_token_ids_behind_a_stop_string_are_dropped(server: Server, pieces: Pieces) -> None:
    a, b, c = pieces.many("a", "b", "c")
    body = server.completion(scripted([a, b, c], then="loop"), stop=["b"], return_token_ids=True).json()
    assert body["choices"][0]["token_ids"] == [a, b]
    assert body["usage"]["completion_tokens"] == 2


def test_n_choices_of_one_stream_interleave(server: Server, mock: MockEngine, pieces: Pieces) -> None:
    """A choice does not wait for another: with both in every step their chunks alternate."""
    a = pieces.byte_level("a")
    mock.use({"when": {"name": "pair"}, **rule(a, a, a, then="stop")})
    mock.pause()
    try:
        since = mock.mark()
        with server.connect() as connection:
            connection.send(post("/v1/completions", {"prompt": "hello", "n": 2, "stream": True, **named("pair")}))
            mock.wait_adds(2, since)
            mock.step(4)
            found = chunks(connection.response().body)
    finally:
        mock.resume()
    order = [chunk["choices"][0]["index"] for chunk in found]
    assert order == [0, 1] * 4
