"""JSON escaping against the standard library, which escapes exactly the same characters."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfront._speedups.json_escape import escape


def reference(text: str) -> bytes:
    return json.dumps(text, ensure_ascii=False)[1:-1].encode()


@pytest.mark.parametrize("code", range(0x100))
def test_each_low_character_at_each_place_of_a_word(code: int) -> None:
    for before in range(10):
        for after in (0, 1, 7, 8, 9):
            text = "x" * before + chr(code) + "y" * after
            assert escape(text) == reference(text)


@pytest.mark.parametrize(
    "text", ["", "é" * 9, "日本語\n" * 5, "👋🏽\u2028\u2029\x7f", '"' * 100, "\\" * 33, "\x00" * 70]
)
def test_whole_texts(text: str) -> None:
    assert escape(text) == reference(text)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=200))
def test_any_text(text: str) -> None:
    assert escape(text) == reference(text)


@given(st.text('\\"\n\x00\x1f abcdefgé€👋', max_size=80))
def test_texts_full_of_escapes(text: str) -> None:
    assert escape(text) == reference(text)


def test_lone_surrogates_are_refused() -> None:
    with pytest.raises(UnicodeEncodeError):
        escape("a\ud83d")
