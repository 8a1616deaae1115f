"""Combinations of options, each right on its own elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.http1 import post
from tests.support.mock import MockEngine, named, rule, scripted
from tests.support.server import CHAT, COMPLETIONS, HELLO, Server
from tests.support.sse import chunks, deltas, finishes, joined
from tests.support.tokens import Pieces

BOTH = pytest.mark.parametrize("stream", [False, True], ids=["body", "stream"])


def outcome(server: Server, stream: bool, *fields: Any, **more: Any) -> tuple[str, str, Any]:
    """(text, finish_reason, stop_reason) of a completion."""
    if stream:
        found = server.completion_stream(*fields, **more)
        return joined(found), *finishes(found)[0]
    response = server.completion(*fields, **more)
    assert response.status_code == 200, response.text
    choice = response.json()["choices"][0]
    return choice["text"], choice["finish_reason"], choice["stop_reason"]


# ---- stop strings with other things


@BOTH
def test_a_stop_string_in_split_characters(server: Server, pieces: Pieces, stream: bool) -> None:
    ids = pieces.many("a", b"\xf0\x9f", b"\x91", b"\x8b", "b")
    assert outcome(server, stream, scripted(*ids, then="loop"), stop=["👋"], max_tokens=99) == ("a", "stop", "👋")


@BOTH
def test_characters_that_begin_like_a_stop_string(server: Server, pieces: Pieces, stream: bool) -> None:
    """The first bytes of another character are no part of a stop string once the character is whole."""
    ids = pieces.many("a", b"\xf0\x9f", b"\x91", b"\x8c", "b")
    assert outcome(server, stream, scripted(*ids, then="stop"), stop=["👋", "👍"]) == ("a👌b", "stop", None)


@BOTH
def test_the_echoed_prompt_is_not_searched(server: Server, pieces: Pieces, stream: bool) -> None:
    ids = pieces.many("D", "x")
    found = outcome(server, stream, scripted(*ids, then="stop"), prompt="an END, an EN", echo=True, stop=["END"])
    assert found == ("an END, an ENDx", "stop", None)


@BOTH
def test_a_stop_string_that_begins_before_min_tokens(server: Server, pieces: Pieces, stream: bool) -> None:
    ids = pieces.many("a", "b", "c", "d")
    assert outcome(server, stream, scripted(*ids), stop=["bc"], min_tokens=2, max_tokens=9) == ("a", "stop", "bc")


@BOTH
def test_hidden_tokens_do_not_match(server: Server, pieces: Pieces, stream: bool) -> None:
    """A special token's text is no text while it is hidden, and text when it is shown."""
    ids = [*pieces.many("a"), pieces.named("<|im_start|>"), *pieces.many("b")]
    stop = ["im_start"]
    assert outcome(server, stream, scripted(*ids, then="stop"), stop=stop) == ("ab", "stop", None)
    shown = outcome(server, stream, scripted(*ids, then="stop"), stop=stop, skip_special_tokens=False)
    assert shown == ("a<|", "stop", "im_start")


@BOTH
def test_stop_string_and_stop_token_at_once(server: Server, pieces: Pieces, stream: bool) -> None:
    """The text of the token that ended the output is not looked at."""
    a, b = pieces.many("a", "b")
    assert outcome(server, stream, scripted(a, b), stop=["b"], stop_token_ids=[b]) == ("a", "stop", b)


@BOTH
def test_a_stop_string_that_is_all_of_the_answer(server: Server, pieces: Pieces, stream: bool) -> None:
    assert outcome(server, stream, scripted(pieces.byte_level("END")), stop=["END"]) == ("", "stop", "END")


@BOTH
def test_overlapping_beginnings(server: Server, pieces: Pieces, stream: bool) -> None:
    ids = pieces.many("a", "a", "b", "a", "a", "a", "b", "c")
    assert outcome(server, stream, scripted(*ids), stop=["aabc"], max_tokens=99) == ("aaba", "stop", "aabc")


def test_include_stop_str_in_output_holds_nothing_back(server: Server, pieces: Pieces) -> None:
    ids = pieces.many("a", "E", "N", "D", "x")
    found = server.completion_stream(scripted(*ids, then="loop"), stop=["END"], include_stop_str_in_output=True)
    assert deltas(found) == ["a", "E", "N", "D"]


def test_stop_strings_of_each_choice_for_itself(server: Server, mock: MockEngine, pieces: Pieces) -> None:
    e, n, d = pieces.many("E", "N", "D")
    mock.use({"when": {"child": 0}, **rule(e, n, then="stop")}, {"when": {"child": 1}, **rule(d, d, then="stop")})
    found = server.completion_stream(n=2, stop=["END"])
    assert (joined(found, 0), joined(found, 1)) == ("EN", "DD")


# ---- echo with other things


def test_echo_with_max_tokens_0_counts_the_hidden_token(server: Server, mock: MockEngine) -> None:
    since = mock.mark()
    body = server.completion(prompt="abc def", echo=True, max_tokens=0).json()
    assert body["usage"]["completion_tokens"] == 1
    assert body["choices"][0]["finish_reason"] in ("length", "stop")
    assert mock.adds(since)[0]["params"]["max_tokens"] == 1
    found = server.completion_stream(prompt="abc def", echo=True, max_tokens=0, stream_options={"include_usage": True})
    assert joined(found) == "abc def"
    assert found[-1]["usage"]["completion_tokens"] == 1


def test_echo_with_return_token_ids_sends_ids_instead_of_text(server: Server, pieces: Pieces) -> None:
    a, b = pieces.many("a", "b")
    fields = {"prompt": [28120, 905], "echo": True, "return_token_ids": True}
    choice = server.completion(scripted(a, b, then="stop"), fields).json()["choices"][0]
    assert (choice["text"], choice["prompt_token_ids"], choice["token_ids"]) == ("ab", [28120, 905], [a, b])
    found = server.completion_stream(scripted(a, b, then="stop"), fields)
    assert deltas(found) == ["a", "b", ""]
    assert found[0]["choices"][0]["prompt_token_ids"] == [28120, 905]


def test_a_streamed_echo_names_the_prompt_ids_once(server: Server, pieces: Pieces) -> None:
    found = server.completion_stream(scripted(*pieces.many("a", "b"), then="stop"), prompt=[28120, 905], echo=True)
    assert [chunk["choices"][0]["prompt_token_ids"] for chunk in found] == [[28120, 905], None, None]


# ---- ends


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_an_answer_of_one_token_is_one_write(server: Server, mock: MockEngine, pieces: Pieces, path: str) -> None:
    """Head, role, token, finish, usage and [DONE] leave together."""
    mock.use({"when": {"name": "one"}, **rule({"tokens": [pieces.byte_level("a")], "finish": "length"})})
    what: dict[str, Any] = {"messages": HELLO} if path == CHAT else {"prompt": "hello"}
    since = mock.mark()
    mock.pause()
    try:
        with server.connect() as connection:
            connection.send(post(path, {**what, "stream": True, "stream_options": {"include_usage": True}, **named("one")}))
            mock.wait_adds(1, since)
            mock.step()
            response = connection.response()
    finally:
        mock.resume()
    assert len(response.pieces) == 1
    found = chunks(response.body)
    assert joined(found) == "a"
    assert finishes(found) == [("length", None)]
    assert found[-1]["usage"]["completion_tokens"] == 1


def test_ids_that_are_no_tokens_are_returned_as_they_came(server: Server, pieces: Pieces) -> None:
    a = pieces.byte_level("a")
    body = server.completion(scripted(a, -1, 2**40, a, then="stop"), return_token_ids=True).json()
    assert body["choices"][0]["token_ids"] == [a, -1, 2**40, a]
    assert body["usage"]["completion_tokens"] == 4


@BOTH
def test_a_stop_reason_of_the_engine_is_passed_on(server: Server, pieces: Pieces, stream: bool) -> None:
    """An end token beside the tokenizer's own has its id as the reason."""
    script = scripted(pieces.byte_level("a"), {"tokens": [0], "finish": "stop", "stop_reason": 0})
    assert outcome(server, stream, script) == ("a", "stop", 0)


@BOTH
def test_long_answers(server: Server, pieces: Pieces, stream: bool) -> None:
    ids = pieces.encode("The quick brown fox jumps over the lazy dog. " * 180)[:1900]
    assert outcome(server, stream, scripted(*ids, then="stop"), max_tokens=2000)[0] == pieces.decode(ids)


@BOTH
def test_many_choices(server: Server, pieces: Pieces, stream: bool) -> None:
    script = scripted(*pieces.many("a", "b"), then="stop")
    if stream:
        found = server.completion_stream(script, n=300)
        assert [joined(found, index) for index in range(300)] == ["ab"] * 300
        return
    body = server.completion(script, n=300).json()
    assert [(choice["index"], choice["text"]) for choice in body["choices"]] == [(index, "ab") for index in range(300)]


def test_many_prompts(server: Server, pieces: Pieces) -> None:
    prompts = [[300 + k] for k in range(200)]
    found = server.completion_stream(prompt=prompts, max_tokens=3, return_token_ids=True)
    for k in range(200):
        own = [choice for chunk in found for choice in chunk["choices"] if choice["index"] == k]
        assert own[0]["prompt_token_ids"] == [300 + k]
        assert own[0]["token_ids"] == [300 + k]
    assert server.completion(prompt=[[5]] * 1025).status_code == 400
