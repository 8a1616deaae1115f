"""Bytes of tokens become characters, whole and only once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.mock import MockEngine, scripted
from tests.support.server import Server
from tests.support.sse import deltas, joined
from tests.support.tokens import Pieces

BOTH = pytest.mark.parametrize("stream", [False, True], ids=["body", "stream"])


def text_of(server: Server, stream: bool, *fields: Any, **more: Any) -> str:
    """The text of a completion."""
    if stream:
        return joined(server.completion_stream(*fields, **more))
    response = server.completion(*fields, **more)
    assert response.status_code == 200, response.text
    return str(response.json()["choices"][0]["text"])


@BOTH
def test_c04_a_character_is_sent_whole(server: Server, pieces: Pieces, stream: bool) -> None:
    ids = pieces.many(" hi", " ", b"\xf0\x9f", b"\x91", b"\x8b", "!")
    assert text_of(server, stream, scripted(*ids, then="stop")) == " hi 👋!"


def test_c04_no_delta_has_half_of_it(server: Server, pieces: Pieces) -> None:
    ids = pieces.many(" hi", " ", b"\xf0\x9f", b"\x91", b"\x8b", "!")
    chunks = server.completion_stream(scripted(*ids, then="stop"), stream_options={"include_usage": True})
    assert deltas(chunks) == [" hi", " ", "", "", "👋", "!", ""]
    assert chunks[-1]["usage"]["completion_tokens"] == 6


@BOTH
def test_an_unfinished_character_at_the_end_is_dropped(server: Server, pieces: Pieces, stream: bool) -> None:
    ids = pieces.many("a", b"\xf0", b"\x9f")
    assert text_of(server, stream, scripted(*ids, then="length")) == "a"


@BOTH
def test_c05_byte_fallback_pieces_are_bytes(llama: Server, llama_folder: Any, stream: bool) -> None:
    pieces = Pieces(llama_folder)
    names = ["▁", "<0xEC>", "<0x9E>", "<0xA0>", "▁", "<0xEA>", "<0xB9>", "<0xB0>", "▁", "수"]
    ids = [pieces.named(name) for name in names]
    text = text_of(llama, stream, scripted(*ids, then="stop"))
    assert text.endswith("잠 깰 수")
    assert "<0x" not in text


@BOTH
def test_c05_a_broken_run_is_a_replacement_character(llama: Server, llama_folder: Any, stream: bool) -> None:
    pieces = Pieces(llama_folder)
    text = text_of(llama, stream, scripted(pieces.named("<0xEA>"), pieces.named("A"), then="stop"))
    assert text.strip("\ufffd") == "A"
    assert text.startswith("\ufffd")


@BOTH
def test_c07_broken_bytes_stay_with_their_request(server: Server, pieces: Pieces, stream: bool) -> None:
    ids = pieces.many(b"\xe0", b"\xa4", "»", "x")
    text = text_of(server, stream, scripted(*ids, then="stop"))
    assert text.endswith("»x")
    assert set(text[:-2]) <= {"\ufffd"}


@BOTH
@pytest.mark.parametrize("token", [-1, 2**31, 2**40, 49152])
def test_c07_ids_that_are_no_tokens_stay_with_their_request(server: Server, pieces: Pieces, stream: bool, token: int) -> None:
    """The token decodes to nothing; other streams do not notice."""
    a, b = pieces.many("a", "b")
    assert text_of(server, stream, scripted(a, token, b, then="stop")) == "ab"


def test_c07_neighbours_finish_intact(server: Server, mock: MockEngine, pieces: Pieces) -> None:
    a, b = pieces.many("a", "b")
    rules = [{"when": {"child": child}, "tokens": [a, b] * 20, "then": "stop"} for child in range(10)]
    bad = {"when": {"child": 10}, "steps": [[-1], [2**40], {"tokens": [a], "finish": 77}], "then": "stop"}
    mock.use(*rules, bad)
    chunks = server.post("/v1/completions", {"prompt": ["hello"] * 10, "stream": True, "max_tokens": 99}).content
    assert chunks.count(b'"finish_reason":"stop"') == 10
    broken = server.completion(scripted(-1, {"tokens": [a], "finish": 77}))
    assert broken.status_code == 500
    assert text_of(server, True, scripted(a, b, then="stop")) == "ab"


@BOTH
def test_c08_prompt_text_is_not_part_of_the_answer(server: Server, pieces: Pieces, stream: bool) -> None:
    """A prompt that ends inside a character: the answer is the same in both modes and never repeats the prompt."""
    prompt = [*pieces.many("Hello", " world", " "), *pieces.many(b"\xe2", b"\x82")]
    ids = [*pieces.many(b"\xac"), *pieces.many(" ok")]
    text = text_of(server, stream, scripted(*ids, then="stop"), prompt=prompt)
    assert text in (" ok", "€ ok")
    other = text_of(server, not stream, scripted(*ids, then="stop"), prompt=prompt)
    assert text == other


@BOTH
def test_c10_a_leading_space_is_kept(llama: Server, llama_folder: Any, stream: bool) -> None:
    pieces = Pieces(llama_folder)
    ids = [pieces.named(name) for name in ("▁Da", "ener", "ys", "▁is", "▁queen")]
    assert text_of(llama, stream, scripted(*ids, then="stop"), prompt="We say:") == " Daenerys is queen"
    ids = [pieces.named(name) for name in ("▁is", "▁tall")]
    assert text_of(llama, stream, scripted(*ids, then="stop"), prompt="The tower") == " is tall"


@BOTH
@pytest.mark.parametrize(("skip", "text"), [(True, "Hi"), (False, "<|im_start|>Hi")])
def test_c11_special_tokens(server: Server, pieces: Pieces, stream: bool, skip: bool, text: str) -> None:
    """Hidden by default; the token that ends the answer always is."""
    ids = [pieces.named("<|im_start|>"), pieces.byte_level("Hi"), pieces.named("<|im_end|>")]
    assert text_of(server, stream, scripted(*ids), skip_special_tokens=skip) == text
    if skip:
        assert text_of(server, stream, scripted(*ids)) == text


def test_deltas_join_to_the_decoded_whole(server: Server, pieces: Pieces) -> None:
    text = "Ünïcödé 漢字 🏳️‍🌈 👩‍👩‍👧‍👦 naïve — “quoted” \u00a0 ﷽ \U0001f9d1\u200d\U0001f680"
    ids = pieces.encode(text)
    chunks = server.completion_stream(scripted(*ids, then="stop"), max_tokens=len(ids) + 1)
    assert joined(chunks) == pieces.decode(ids) == text
    assert not any("\ufffd" in delta for delta in deltas(chunks))


@BOTH
def test_an_empty_answer(server: Server, pieces: Pieces, stream: bool) -> None:
    assert text_of(server, stream, scripted(pieces.named("<|im_end|>"))) == ""
