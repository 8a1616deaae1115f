"""Packed ids, and texts put together of what is known."""

from __future__ import annotations

import re
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastfront._speedups.token_ids import Marks, count_of, join_words, largest_of, pack, unpack

IDS = st.lists(st.integers(-(2**31), 2**31 - 1))
WORDS = ["", "a", "b", "ab", "\n", "ä", "日"]
MARKS = {"<|a|>": 1, "<|b|>": 2, "<x>": 3}


def marks_of(ids: dict[str, int]) -> Marks:
    return Marks(ids, re.compile("(" + "|".join(map(re.escape, ids)) + ")").split)


def letters(text: str) -> bytes:
    return pack([100 + ord(char) for char in text])


@given(IDS)
def test_packing(ids: list[int]) -> None:
    assert unpack(pack(ids)) == ids
    assert len(pack(ids)) == 4 * len(ids)
    assert count_of(pack(ids)) == len(ids)
    assert largest_of(pack(ids)) == max([-1, *ids])


@pytest.mark.parametrize("number", [2**31, -(2**31) - 1, 2**70])
def test_larger_ids_are_refused(number: int) -> None:
    with pytest.raises(OverflowError):
        pack([1, number])


@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=8), st.sets(st.sampled_from(WORDS)), st.sets(st.sampled_from(WORDS)))
def test_words(words: list[str], first: set[str], later: set[str]) -> None:
    found = join_words(
        " ".join(words), {word: letters("1" + word) for word in first}, {word: letters("2" + word) for word in later}
    )
    if words[0] in first and later.issuperset(words[1:]):
        assert found == letters("1" + words[0] + "".join("2" + word for word in words[1:]))
    else:
        assert found is None


@pytest.mark.parametrize("ids", [MARKS, {**MARKS, "[c]": 4}, {**MARKS, "<ä>": 4}, {"<x>": 3}])
@given(
    st.lists(st.sampled_from([*MARKS, "[c]", "<ä>", "<", "<|", "a|>", "x", "ä", "日", " "]), max_size=12).map("".join),
    st.booleans(),
)
@settings(max_examples=200)
def test_texts_are_cut_at_marks(ids: dict[str, int], text: str, keeps: bool) -> None:
    fetched: list[str] = []

    def fetch(piece: str) -> bytes:
        fetched.append(piece)
        return letters(piece)

    known = {"x": letters("known")} if keeps else {}
    pieces = re.split("(" + "|".join(map(re.escape, ids)) + ")", text)
    found = marks_of(ids).encode(text, known, fetch)
    if len(pieces) == 1:
        assert found is None
        return
    between = [piece for piece in pieces[::2] if piece]
    assert fetched == [piece for piece in between if piece not in known]
    parts = [pack([ids[piece]]) if place % 2 else known.get(piece) or letters(piece) for place, piece in enumerate(pieces)]
    assert found == b"".join(parts)


def test_what_fetching_raises_comes_through() -> None:
    def fetch(piece: str) -> bytes:
        raise ValueError(piece)

    for text in ("<x>a", "<x>ä"):
        with pytest.raises(ValueError, match=text[3:]):
            marks_of(MARKS).encode(text, {}, fetch)


def test_many_threads_read_while_one_writes() -> None:
    """Dictionaries that grow under readers: each text is made of what was there, whole."""
    marks = marks_of(MARKS)
    known: dict[str, bytes] = {}
    later: dict[str, bytes] = {}
    start = threading.Barrier(4)
    wrong: list[object] = []

    def read() -> None:
        start.wait()
        for k in range(3000):
            piece = f"p{k % 500}"
            if marks.encode(f"<x>{piece}<|a|>", known, letters) != pack([3]) + letters(piece) + pack([1]):
                wrong.append(piece)
            if join_words(f"a {piece}", {"a": b""}, later) not in (None, letters(piece)):
                wrong.append(piece)

    def write() -> None:
        start.wait()
        for _ in range(10):
            for k in range(500):
                known[f"p{k}"] = later[f"p{k}"] = letters(f"p{k}")
            known.clear()
            later.clear()

    threads = [threading.Thread(target=run) for run in (read, read, read, write)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
