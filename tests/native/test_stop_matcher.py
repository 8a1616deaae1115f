"""Stop strings against a naive reference, over every split; work counted in steps."""

from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfront._speedups.stop_matcher import StopMatcher

STOPS = st.lists(st.text("ab", min_size=1, max_size=6) | st.text("abé👋", min_size=1, max_size=6), min_size=1, max_size=4)
TEXT = st.text("ab", max_size=40) | st.text("abé👋", max_size=40)
CUTS = st.lists(st.integers(0, 40), max_size=8)


def split(text: str, cuts: list[int]) -> list[str]:
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    return [text[a:b] for a, b in pairwise(edges)]


def first_stop(text: str, stops: list[str], start: int = 0) -> tuple[int, int]:
    """(index, end) of the stop that completes first at or after `start` characters are there; ties by list order."""
    for end in range(start + 1, len(text) + 1):
        for index, stop in enumerate(stops):
            if text[:end].endswith(stop):
                return index, end
    return -1, 0


def held_reference(text: str, stops: list[str]) -> int:
    """Bytes of the longest tail that is a proper prefix of a stop string."""
    longest = 0
    data = text.encode()
    for stop in stops:
        wanted = stop.encode()
        for size in range(1, len(wanted)):
            if data.endswith(wanted[:size]):
                longest = max(longest, size)
    return longest


@given(STOPS, TEXT, CUTS)
def test_earliest_completing_stop_over_any_split(stops: list[str], text: str, cuts: list[int]) -> None:
    index, end = first_stop(text, stops)
    matcher = StopMatcher(stops)
    seen = 0
    for part in split(text, cuts):
        hit = matcher.feed(part)
        if hit[0] >= 0:
            assert hit[0] == index
            assert len(text[:seen] + part.encode()[: hit[1]].decode()) == end
            return
        seen += len(part)
        assert matcher.held == held_reference(text[:seen], stops)
    assert index == -1


def test_every_short_stop_in_every_short_text() -> None:
    words = ["".join(letters) for size in range(1, 5) for letters in product("ab", repeat=size)]
    texts = ["".join(letters) for letters in product("ab", repeat=9)]
    for stop in words:
        for text in texts:
            at = text.find(stop)
            matcher = StopMatcher([stop])
            hit = matcher.feed(text)
            assert hit == ((0, at + len(stop)) if at >= 0 else (-1, 0)), (stop, text)
            if at < 0:
                assert matcher.held == held_reference(text, [stop])


@given(STOPS, TEXT, CUTS, st.booleans(), st.integers(0, 4))
def test_pushed_text_is_cut_at_the_stop_and_never_shows_part_of_it(
    stops: list[str], text: str, cuts: list[int], include: bool, min_tokens: int
) -> None:
    parts = split(text, cuts)
    unarmed = sum(len(part) for part in parts[:min_tokens])
    index, end = first_stop(text, stops, unarmed)
    matcher = StopMatcher(stops, include, min_tokens)
    sent = ""
    for part in parts:
        sent += matcher.push(part)
        if matcher.stopped_by >= 0:
            break
        if index >= 0 and not include:
            assert len(sent) <= max(end - len(stops[index]), unarmed)
    assert matcher.stopped_by == index
    if index < 0:
        assert sent + matcher.finish() == text
        assert matcher.finish() == ""
        return
    start = end - (0 if include else len(stops[index]))
    # A stop that began in text already sent while unarmed cannot be cut back further than what was sent.
    assert text.startswith(sent)
    assert len(sent) == start or (start < unarmed and start <= len(sent) <= unarmed)
    with pytest.raises(ValueError, match="stopped"):
        matcher.push("x")


@given(STOPS, TEXT, CUTS)
def test_unarmed_matches_are_passed_over_but_tracked(stops: list[str], text: str, cuts: list[int]) -> None:
    matcher = StopMatcher(stops)
    for part in split(text, cuts):
        assert matcher.feed(part, armed=False) == (-1, 0)
    assert matcher.held == held_reference(text, stops)


@pytest.mark.parametrize(
    ("stops", "text"),
    [
        (["a" * 50 + "b"], "a" * 20_000),
        (["ab" * 30 + "c", "ba" * 30 + "c"], "ab" * 10_000),
        (["aab" * 20], ("aab" * 19 + "aa") * 300),
        (["\n\n", "###"], "word " * 4_000),
    ],
)
def test_work_is_linear_in_the_text_however_it_is_cut(stops: list[str], text: str) -> None:
    for size in (1, 3, 1000, len(text)):
        matcher = StopMatcher(stops)
        for at in range(0, len(text), size):
            matcher.feed(text[at : at + size], armed=False)
        assert 0 < matcher.steps <= 2 * len(stops) * len(text) + 2 * len(stops) * (len(text) // size + 1)


def test_held_text_is_only_what_can_still_become_a_stop() -> None:
    matcher = StopMatcher(["<|end|>"])
    assert [matcher.push(part) for part in ["a<", "|e", "x<|", "en", "d|"]] == ["a", "", "<|ex", "", ""]
    assert matcher.held == 6
    assert matcher.finish() == "<|end|"


def test_no_stop_strings_hold_nothing() -> None:
    matcher = StopMatcher([])
    assert matcher.push("text") == "text"
    assert matcher.held == 0


@pytest.mark.parametrize("stops", [[""], ["a", ""]])
def test_empty_stop_strings_are_refused(stops: list[str]) -> None:
    with pytest.raises(ValueError, match="empty"):
        StopMatcher(stops)


def test_stop_strings_must_be_valid_text() -> None:
    with pytest.raises(TypeError, match="int"):
        StopMatcher([1])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="surrogates"):
        StopMatcher(["\ud83d"])


def test_c01_a_stop_string_over_two_chunks_is_never_sent_in_part() -> None:
    matcher = StopMatcher(["own fox"])
    deltas = []
    for token in ["The", " quick", " br", "own", " fox", " runs"]:
        deltas.append(matcher.push(token))
        if matcher.stopped_by >= 0:
            break
    assert "".join(deltas) == "The quick br"
    assert not any("own" in delta for delta in deltas)
    assert len(deltas) == 5


def test_c02_the_stop_that_completes_earliest_wins() -> None:
    matcher = StopMatcher(["lo", "ell"])
    assert matcher.push("hello") == "h"
    assert matcher.stopped_by == 1
    for stops in (["a", "is"], ["is", "a"]):
        matcher = StopMatcher(stops)
        assert matcher.push("The user") + matcher.push(" is a") == "The user "
        assert stops[matcher.stopped_by] == "is"


def test_stops_that_complete_together_are_taken_in_list_order() -> None:
    for stops, text in ((["llo", "lo"], "he"), (["lo", "llo"], "hel")):
        matcher = StopMatcher(stops)
        assert matcher.push("hello") == text
        assert matcher.stopped_by == 0
