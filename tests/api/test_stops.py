"""What ends an answer, and what of its last tokens is shown."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.mock import MockEngine, scripted
from tests.support.server import Server
from tests.support.sse import deltas, finishes, joined
from tests.support.tokens import Pieces

BOTH = pytest.mark.parametrize("stream", [False, True], ids=["body", "stream"])


def answer(server: Server, stream: bool, *fields: Any, **more: Any) -> tuple[str, str, Any, int]:
    """(text, finish_reason, stop_reason, completion tokens) of a completion."""
    if not stream:
        response = server.completion(*fields, **more)
        assert response.status_code == 200, response.text
        body = response.json()
        (choice,) = body["choices"]
        return choice["text"], choice["finish_reason"], choice["stop_reason"], body["usage"]["completion_tokens"]
    chunks = server.completion_stream(*fields, stream_options={"include_usage": True}, **more)
    ((finish, reason),) = finishes(chunks)
    return joined(chunks), finish, reason, chunks[-1]["usage"]["completion_tokens"]


@BOTH
def test_c01_no_part_of_a_stop_string_is_sent(server: Server, mock: MockEngine, pieces: Pieces, stream: bool) -> None:
    ids = pieces.many("The", " quick", " br", "own", " fox", " runs")
    since = mock.mark()
    found = answer(server, stream, scripted(*ids, ids[-1], then="loop"), stop=["own fox"], max_tokens=500)
    assert found == ("The quick br", "stop", "own fox", 5)
    (add,) = mock.wait_adds(1, since)
    mock.wait_aborts([add["id"]], since)
    assert mock.aborted(since) == [add["id"]]


def test_c01_no_delta_holds_a_part_of_it(server: Server, pieces: Pieces) -> None:
    ids = pieces.many("The", " quick", " br", "own", " fox", " runs")
    chunks = server.completion_stream(scripted(*ids), stop=["own fox"])
    assert deltas(chunks) == ["The", " quick", " br", "", ""]


@BOTH
def test_c01_a_tail_that_cannot_become_one_is_released(server: Server, pieces: Pieces, stream: bool) -> None:
    ids = pieces.many("The", " quick", " br", "own", " quick")
    assert answer(server, stream, scripted(*ids, finish="length"), stop=["own fox"])[:3] == (
        "The quick brown quick", "length", None,
    )  # fmt: skip


@BOTH
def test_a_held_tail_is_released_at_the_end(server: Server, pieces: Pieces, stream: bool) -> None:
    ids = pieces.many("The", " br", "own")
    assert answer(server, stream, scripted(*ids, finish="length"), stop=["own fox"])[0] == "The brown"


@BOTH
@pytest.mark.parametrize(
    ("words", "stop", "text", "reason"),
    [
        (("hello",), ["lo", "ell"], "h", "ell"),
        (("The", " user", " is", " a"), ["a", "is"], "The user ", "is"),
        (("The", " user", " is", " a"), ["is", "a"], "The user ", "is"),
        (("hello",), ["llo", "lo"], "he", "llo"),
        (("hello",), ["lo", "llo"], "hel", "lo"),
    ],
)
def test_c02_the_stop_that_completes_first_wins(
    server: Server, pieces: Pieces, stream: bool, words: tuple[str, ...], stop: list[str], text: str, reason: str
) -> None:
    found = answer(server, stream, scripted(*pieces.many(*words), then="loop"), stop=stop, max_tokens=99)
    assert found[:3] == (text, "stop", reason)


@BOTH
def test_c02_tokens_of_one_step(server: Server, pieces: Pieces, stream: bool) -> None:
    """All tokens of a step at once: the earliest completion still wins, and later tokens are not counted."""
    found = answer(server, stream, scripted(pieces.many("The", " user", " is", " a"), then="loop"), stop=["a", "is"])
    assert found == ("The user ", "stop", "is", 3)


@BOTH
def test_include_stop_str_in_output(server: Server, pieces: Pieces, stream: bool) -> None:
    ids = pieces.many("The", " br", "own", " foxes")[:3]
    found = answer(server, stream, scripted(*ids, then="loop"), stop=["row"], include_stop_str_in_output=True)
    assert found[:3] == ("The brow", "stop", "row")


@BOTH
@pytest.mark.parametrize(("min_tokens", "count"), [(0, 2), (1, 2), (2, 4), (3, 4)])
def test_min_tokens_puts_stop_strings_off(server: Server, pieces: Pieces, stream: bool, min_tokens: int, count: int) -> None:
    """A stop string that completes at or before the min_tokens-th token is no stop, then or later."""
    found = answer(
        server, stream, scripted(*pieces.many("a", "b"), then="loop"), stop=["b"], min_tokens=min_tokens, max_tokens=20
    )
    assert found == (("ab" * count)[: count - 1], "stop", "b", count)


def test_min_tokens_reaches_the_engine(server: Server, mock: MockEngine, pieces: Pieces) -> None:
    since = mock.mark()
    server.completion(scripted(pieces.byte_level("a"), then="stop"), min_tokens=3)
    assert mock.adds(since)[0]["params"]["min_tokens"] == 3


@BOTH
@pytest.mark.parametrize("include", [False, True])
def test_stop_token_ids(server: Server, pieces: Pieces, stream: bool, include: bool) -> None:
    """The token is counted and named; its text is shown only with include_stop_str_in_output."""
    a, b, c = pieces.many("a", "b", "c")
    found = answer(server, stream, scripted(a, b, c, then="loop"), stop_token_ids=[b, b], include_stop_str_in_output=include)
    assert found == ("ab" if include else "a", "stop", b, 2)


@BOTH
def test_eos(server: Server, pieces: Pieces, stream: bool) -> None:
    found = answer(server, stream, scripted(pieces.byte_level("a"), pieces.named("<|im_end|>"), then="loop"))
    assert found == ("a", "stop", None, 2)


@BOTH
def test_ignore_eos(server: Server, mock: MockEngine, pieces: Pieces, stream: bool) -> None:
    since = mock.mark()
    ids = [pieces.byte_level("a"), pieces.named("<|im_end|>"), pieces.byte_level("b")]
    found = answer(server, stream, scripted(*ids, then="length"), ignore_eos=True, max_tokens=3)
    assert found == ("ab", "length", None, 3)
    params = mock.adds(since)[0]["params"]
    assert "_eos_token_id" not in params
    assert not params.get("stop_token_ids")


@BOTH
def test_c16_length_when_the_limit_cut_it(server: Server, pieces: Pieces, stream: bool) -> None:
    found = answer(server, stream, scripted(pieces.byte_level("a"), then="loop"), max_tokens=3)
    assert found == ("aaa", "length", None, 3)


@BOTH
def test_c16_a_stop_string_on_the_last_token_is_a_stop(server: Server, pieces: Pieces, stream: bool) -> None:
    a, b, end = pieces.many("a", "b", "END")
    script = scripted(a, b, {"tokens": [end], "finish": "length"})
    assert answer(server, stream, script, stop=["END"], max_tokens=3) == ("ab", "stop", "END", 3)


@BOTH
def test_eos_on_the_last_token_is_a_stop(server: Server, pieces: Pieces, stream: bool) -> None:
    ids = [pieces.byte_level("a"), pieces.named("<|im_end|>")]
    assert answer(server, stream, scripted(*ids), max_tokens=2) == ("a", "stop", None, 2)


@BOTH
@pytest.mark.parametrize(
    ("finish", "reason", "shown"),
    [("abort", None, ("abort", None)), ("repetition", "repetition_detected", ("repetition", "repetition_detected"))],
)
def test_other_reasons_of_an_engine(
    server: Server, pieces: Pieces, stream: bool, finish: str, reason: str | None, shown: tuple[str, str | None]
) -> None:
    script = scripted(*pieces.many("a", "b"), finish=finish, stop_reason=reason)
    assert answer(server, stream, script) == ("ab", *shown, 2)


@BOTH
def test_a_finish_without_a_token(server: Server, pieces: Pieces, stream: bool) -> None:
    assert answer(server, stream, scripted(*pieces.many("a", "b"), then="stop")) == ("ab", "stop", None, 2)


@pytest.mark.parametrize(
    "stop",
    [[""], ["a", ""], "", ["a", "b", "c", "d", "e"], 5, [5]],
    ids=["empty", "one empty", "text", "five", "number", "numbers"],
)
def test_stop_strings_that_are_refused(server: Server, mock: MockEngine, stop: Any) -> None:
    since = mock.mark()
    response = server.completion(stop=stop)
    assert response.status_code == 400, response.text
    assert "stop" in response.json()["error"]["message"]
    assert not mock.adds(since)
