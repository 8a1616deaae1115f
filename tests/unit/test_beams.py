"""Beam search as a machine: wide enough, it finds what trying everything finds."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from fastfront.openai.beams.search import Beam, BeamSearch, NextTokens, Rules
from fastfront.openai.beams.steps import StepSink, next_tokens

END = 0


def language(seed: int, letters: int) -> dict[int, NextTokens]:
    """What may follow each token, made up."""
    rng = random.Random(seed)
    following = {}
    for token in range(letters):
        weights = [rng.random() for _ in range(letters)]
        following[token] = {other: math.log(weight / sum(weights)) for other, weight in enumerate(weights)}
    return following


def run(search: BeamSearch, following: dict[int, NextTokens]) -> list[Beam]:
    while not search.over:
        search.grow([following[prompt[-1]] for prompt in search.prompts()])
    return search.best()


def every_answer(following: dict[int, NextTokens], begin: int, length: int) -> list[tuple[float, tuple[int, ...]]]:
    """(score with a penalty of 1, tokens) of all answers up to a length; an end token counts for nothing."""
    found = []
    letters = [token for token in following if token != END]
    for size in range(length + 1):
        for tokens in itertools.product(letters, repeat=size):
            path = (begin, *tokens)
            logprob = sum(following[a][b] for a, b in itertools.pairwise(path))
            if size == length:
                found.append((logprob / (1 + size), tokens))
            else:
                found.append(((logprob + following[path[-1]][END]) / (1 + size), tokens))
    return sorted(found, reverse=True)


@pytest.mark.parametrize("seed", range(5))
def test_a_wide_search_finds_the_best_of_all(seed: int) -> None:
    following = language(seed, 4)
    best = run(BeamSearch([1], Rules(width=300, max_tokens=4, end_token=END)), following)
    wanted = every_answer(following, 1, 4)
    scores = {tokens: score for score, tokens in wanted}
    assert {beam.tokens for beam in best} == scores.keys()
    assert [scores[beam.tokens] for beam in best] == pytest.approx([score for score, _ in wanted])
    assert {beam.finish for beam in best} == {"stop", "length"}
    assert all(beam.stop_reason == (END if beam.finish == "stop" else None) for beam in best)


def test_width_one_takes_the_likeliest_each_time() -> None:
    following = language(7, 6)
    search = BeamSearch([3], Rules(width=1, max_tokens=8, end_token=None))
    (beam,) = run(search, following)
    token, tokens = 3, []
    for _ in range(8):
        token = max(following[token], key=following[token].__getitem__)
        tokens.append(token)
    assert list(beam.tokens) == tokens
    assert [step[token] for token, step in zip(beam.tokens, beam.steps, strict=True)] == [
        following[a][b] for a, b in itertools.pairwise([3, *tokens])
    ]


@pytest.mark.parametrize("keeps", [False, True])
def test_the_end_token_is_kept_if_asked_for_and_never_shown(keeps: bool) -> None:
    search = BeamSearch([5], Rules(width=1, max_tokens=3, end_token=END, keeps_end=keeps))
    search.grow([{END: -0.1, 6: -9.0}])
    search.abort()
    best = search.best()[0]
    assert best.tokens == ((END,) if keeps else ())
    assert search.shown(best) == []
    assert best.finish == "stop"


def test_an_ignored_end_token_is_a_token() -> None:
    search = BeamSearch([5], Rules(width=1, max_tokens=2, end_token=END, ignore_end=True))
    (beam,) = run(search, {5: {END: -0.1}, END: {END: -0.1}})
    assert beam.tokens == (END, END)
    assert search.shown(beam) == [END, END]


@pytest.mark.parametrize(("penalty", "wanted"), [(0.0, ()), (2.0, (6, 6))])
def test_the_penalty_weighs_length(penalty: float, wanted: tuple[int, ...]) -> None:
    search = BeamSearch([6], Rules(width=1, max_tokens=2, end_token=END, length_penalty=penalty))
    (beam,) = run(search, {6: {END: -1.0, 6: -0.6}})
    assert beam.tokens == wanted


@pytest.mark.parametrize("penalty", [1e308, -1e308, math.inf, -math.inf])
def test_no_penalty_breaks_it(penalty: float) -> None:
    search = BeamSearch([6, 6], Rules(width=2, max_tokens=2, end_token=END, length_penalty=penalty))
    assert len(run(search, {6: {END: -1.0, 6: -0.6}})) == 2


def test_no_tokens_asked_for_is_an_empty_answer() -> None:
    search = BeamSearch([6], Rules(width=2, max_tokens=0, end_token=END))
    assert search.over
    assert search.best() == [Beam()]


def test_a_step_reads_ids_and_keeps_their_order() -> None:
    entry = b'{"token":"token_id:7","logprob":-0.5,"bytes":[1],"top_logprobs":['
    entry += b'{"token":"token_id:9","logprob":-0.25,"bytes":[]},{"token":"token_id:7","logprob":-0.5,"bytes":[1]}]}'
    assert list(next_tokens(entry).items()) == [(7, -0.5), (9, -0.25)]


def test_an_aborted_call_ends_the_search() -> None:
    told: list[object] = []
    sink = StepSink(2, told.append, lambda status, body: told.append(status))
    entry = b'{"token":"token_id:7","logprob":-0.5,"bytes":[1],"top_logprobs":[]}'
    sink.add(0, "", b"", entry, "length", None, 1)
    sink.add(1, "", b"", b"", "abort", None, 0)
    assert sink.end(3, 1) == b""
    assert told == [None]
