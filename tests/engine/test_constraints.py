"""Constraints, grammars and masks without an engine: a vocabulary of single characters."""

from __future__ import annotations

import json
import queue
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine.executor.plan import SequenceStep, StepPlan, StepResult, TokenMasks
from engine.protocol import SamplingParams
from engine.sampling.masks import apply_masks
from engine.sampling.sampler import sample
from engine.sampling.state import SequenceState
from engine.scheduler.request import Request
from engine.structured.compiler import GrammarCompiler
from engine.structured.constraint import Constraint, InvalidConstraintError, Kind, choice_grammar, parse
from engine.structured.grammars import Compiled, Grammars
from engine.structured.matcher import Matcher
from tests.engine.letters import EOS, Letters, encode, save_tokenizer

pytestmark = pytest.mark.filterwarnings("default")
VOCAB = 211
STOPS = SamplingParams(eos_token_id=EOS, all_stop_token_ids=[EOS])
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "y"]}}, "required": ["a", "b"]}
TAGS = {"type": "structural_tag", "structures": [{"begin": "<f>", "schema": SCHEMA, "end": "</f>"}], "triggers": ["<f"]}
CLOSED = {**SCHEMA, "required": ["a"]}
GUIDANCE = {"_backend": "guidance", "_backend_was_auto": True}
EBNF = 'root ::= "<" word ">"\nword ::= [a-c]+'
LARK = 'start: "<" WORD ">"\nWORD: /[a-c]+/'


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> GrammarCompiler:
    folder = tmp_path_factory.mktemp("letters")
    save_tokenizer(folder)
    return GrammarCompiler(str(folder), VOCAB)


def allowed(matcher: Matcher) -> list[int]:
    words = np.empty((2, -(-VOCAB // 32)), dtype=np.int32)
    matcher.fill(words, 1)
    bits = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little")
    return [int(token) for token in bits[1].nonzero()[0]]


GOOD: list[tuple[dict[str, Any], str]] = [
    ({"json": SCHEMA}, '{"a": -12,"b": "x"}'),
    ({"json": '{"type":"array","items":{"type":"boolean"},"minItems":2,"maxItems":2}'}, "[true,false]"),
    ({"json": SCHEMA, "disable_any_whitespace": True}, '{"a": 1, "b": "y"}'),
    ({"json_object": True}, '{"any": [null, 1.5e3]}'),
    ({"regex": r"[a-f]{2}\d+z"}, "af12z"),
    ({"choice": ["yes", "no", 'say "no"']}, 'say "no"'),
    ({"grammar": EBNF}, "<abc>"),
    ({"grammar": LARK}, "<abc>"),
    ({"json": {"type": "integer", "multipleOf": 7}, **GUIDANCE}, "49"),
    ({"json": CLOSED, **GUIDANCE}, '{"a": 1, "b": "x", "more": [null]}'),
    ({"json": CLOSED, "disable_any_whitespace": True, **GUIDANCE}, '{"a":1,"b":"x"}'),
    ({"json": {"allOf": [SCHEMA, {"properties": {"b": {"const": "y"}}}]}, **GUIDANCE}, '{"a": 1, "b": "y"}'),
    ({"json_object": True, **GUIDANCE}, '{"any": [null, 1.5e3]}'),
    ({"regex": r"(?i)ab\p{L}", **GUIDANCE}, "aBc"),
    ({"grammar": LARK, **GUIDANCE}, "<abc>"),
    ({"grammar": EBNF, **GUIDANCE}, "<abc>"),
]


@pytest.mark.parametrize(("wanted", "text"), GOOD)
def test_a_matcher_follows_good_text_to_its_end(compiler: GrammarCompiler, wanted: dict[str, Any], text: str) -> None:
    matcher = compiler.matcher(compiler.compile(parse(wanted)), STOPS)
    for token in encode(text):
        assert token in allowed(matcher)
        assert EOS not in allowed(matcher)
        assert matcher.accept(token)
    assert EOS in allowed(matcher)
    assert matcher.accept(EOS)
    assert allowed(matcher) == [EOS]
    assert matcher.accept(EOS)
    assert not matcher.accept(encode("a")[0])


BAD_TEXT = [
    ({"json": SCHEMA}, '{"b'),
    ({"json": SCHEMA, "disable_any_whitespace": True}, '{"a":1'),
    ({"json": SCHEMA, "disable_additional_properties": True}, '{"a": 1, "b": "x",'),
    ({"json_object": True}, "["),
    ({"regex": r"\d+"}, "x"),
    ({"choice": ["yes", "no"]}, "yep"),
    ({"grammar": EBNF}, "<d"),
    ({"json": {"type": "integer", "multipleOf": 7}, **GUIDANCE}, "5 "),
    ({"json": CLOSED, "disable_additional_properties": True, **GUIDANCE}, '{"a": 1, "c'),
    ({"json": {"type": "string", "pattern": "^x", "maxLength": 2}, **GUIDANCE}, '"xyz'),
    ({"json": SCHEMA, "disable_any_whitespace": True, **GUIDANCE}, '{ '),
    ({"regex": r"\d+", **GUIDANCE}, "x"),
]


@pytest.mark.parametrize(("wanted", "text"), BAD_TEXT)
def test_a_matcher_refuses_what_does_not_fit(compiler: GrammarCompiler, wanted: dict[str, Any], text: str) -> None:
    matcher = compiler.matcher(compiler.compile(parse(wanted)), STOPS)
    *good, bad = encode(text)
    assert all(matcher.accept(token) for token in good)
    assert bad not in allowed(matcher)
    assert not matcher.accept(bad)


def test_a_structural_tag_leaves_text_free_until_it_begins(compiler: GrammarCompiler) -> None:
    matcher = compiler.matcher(compiler.compile(parse({"structural_tag": json.dumps(TAGS)})), STOPS)
    assert all(matcher.accept(token) for token in encode('well <f>{"a": 1'))
    assert encode("x")[0] not in allowed(matcher)
    assert EOS not in allowed(matcher)
    assert all(matcher.accept(token) for token in encode(', "b": "y"}</f> done'))
    assert EOS in allowed(matcher)


@pytest.mark.parametrize("wanted", [{"choice": ["a"]}, {"regex": "a", **GUIDANCE}])
def test_stop_tokens_of_the_request_end_it(compiler: GrammarCompiler, wanted: dict[str, Any]) -> None:
    grammar = compiler.compile(parse(wanted))
    own = SamplingParams(stop_token_ids=[150], all_stop_token_ids=[EOS, 150])
    for params, stops in ((own, [EOS, 150]), (SamplingParams(), [EOS])):
        matcher = compiler.matcher(grammar, params)
        assert matcher.accept(encode("a")[0])
        assert allowed(matcher) == stops


def test_only_stop_tokens_of_the_request_end_what_could_go_on(compiler: GrammarCompiler) -> None:
    matcher = compiler.matcher(compiler.compile(parse({"regex": "a+", **GUIDANCE})), SamplingParams(all_stop_token_ids=[150]))
    first = encode("a")
    assert allowed(matcher) == first
    assert not matcher.accept(150)
    assert matcher.accept(first[0])
    assert allowed(matcher) == sorted([*first, 150])
    assert matcher.accept(150)
    assert allowed(matcher) == [150]


INVALID = [
    ({"regex": "(a"}, "the regex does not compile"),
    ({"grammar": "root ::= missing"}, '"missing" is not defined'),
    ({"json": {"type": "nonsense"}}, "the json does not compile"),
    ({"json": "{"}, "the json does not compile"),
    ({"structural_tag": '{"type":"structural_tag"}'}, "the structural_tag does not compile"),
    ({"json": {"type": "array", "uniqueItems": True}, **GUIDANCE}, "uniqueItems"),
    ({"json": "{", **GUIDANCE}, "the json does not compile"),
    ({"json": "{", "disable_additional_properties": True, **GUIDANCE}, "the json does not compile"),
    ({"json": "[" * 5000 + "]" * 5000, "disable_additional_properties": True, **GUIDANCE}, "the json does not compile"),
    ({"regex": "(a", **GUIDANCE}, "the regex does not compile"),
    ({"grammar": "start: missing", **GUIDANCE}, "the grammar does not compile"),
]


@pytest.mark.parametrize(("wanted", "message"), INVALID)
def test_what_does_not_compile_says_why(compiler: GrammarCompiler, wanted: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConstraintError, match=message) as caught:
        compiler.compile(parse(wanted))
    assert ".cc:" not in str(caught.value)


MALFORMED: list[tuple[dict[str, Any], str]] = [
    ({}, "got none"),
    ({"json_object": False}, "got none"),
    ({"regex": "a", "grammar": "b"}, "got regex, grammar"),
    ({"regex": ""}, "not empty"),
    ({"regex": "a\0"}, "NUL"),
    ({"grammar": ["a"]}, "must be a text"),
    ({"choice": "abc"}, "list of texts"),
    ({"choice": []}, "list of texts"),
    ({"structural_tag": "{"}, "is not JSON"),
    ({"structural_tag": "[]"}, "must be a JSON object"),
    ({"structural_tag": '{"structures": [{"begin": "a"}]}'}, "incomplete"),
    ({"json": {"a": b"x"}}, "not a JSON value"),
]


@pytest.mark.parametrize(("wanted", "message"), MALFORMED)
def test_a_malformed_map_is_refused(wanted: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConstraintError, match=message):
        parse(wanted)


def test_equal_constraints_have_equal_keys() -> None:
    assert parse({"json_object": True}) == parse({"json": '{"type":"object"}', "regex": None})
    assert parse({"json": SCHEMA}) != parse({"json": SCHEMA, "disable_any_whitespace": True})
    assert parse({"choice": ["a"]}) == Constraint(Kind.GRAMMAR, choice_grammar(["a"]))


def request(name: str, text: str) -> Request:
    params = SamplingParams(structured_outputs={"regex": text}, eos_token_id=EOS)
    return Request(name, 0, [1], params, 8)


def test_equal_constraints_are_compiled_once_and_kept_while_there_is_room() -> None:
    reports: queue.SimpleQueue[Compiled] = queue.SimpleQueue()
    letters = Letters()
    grammars = Grammars(letters, reports.put, cache_bytes=250)
    letters.gate.clear()
    first, second, third = request("1", "ab"), request("2", "ab"), request("3", "ab")
    assert not any(grammars.start(each) for each in (first, second, third))
    assert grammars.forget("2") is second
    letters.gate.set()
    assert grammars.settle(reports.get(timeout=30)) == [(first, None), (third, None)]
    assert letters.compiled == ["ab"]
    assert grammars.start(request("4", "ab"))
    for text in ("cd", "ef"):
        assert not grammars.start(request(text, text))
        grammars.settle(reports.get(timeout=30))
    assert grammars.start(request("5", "ef"))
    assert not grammars.start(request("6", "ab"))
    grammars.settle(reports.get(timeout=30))
    assert letters.compiled == ["ab", "cd", "ef", "ab"]


def test_a_failure_is_told_to_all_who_wait_and_not_kept() -> None:
    reports: queue.SimpleQueue[Compiled] = queue.SimpleQueue()
    grammars = Grammars(Letters(), reports.put)
    for _ in range(2):
        waiting = request("1", "bad")
        assert not grammars.start(waiting)
        [(failed, error)] = grammars.settle(reports.get(timeout=30))
        assert failed is waiting
        assert error is not None
        assert (error.code, error.message) == ("validation_error", "no good")
        assert grammars.held("1") is None


def test_masks_are_for_sampled_rows_with_a_grammar() -> None:
    reports: queue.SimpleQueue[Compiled] = queue.SimpleQueue()
    grammars = Grammars(Letters(), reports.put)
    assert grammars.masks(StepPlan()) is None
    assert not grammars.start(request("bound", "ab"))
    grammars.settle(reports.get(timeout=30))
    steps = [SequenceStep(name, [1], 0, [1], samples) for name, samples in (("free", True), ("bound", True))]
    masks = grammars.masks(StepPlan(steps))
    assert masks is not None
    assert masks.ids == ["bound"]
    assert np.unpackbits(masks.words.view(np.uint8), bitorder="little").nonzero()[0].tolist() == encode("a")
    assert grammars.masks(StepPlan([SequenceStep("bound", [1], 0, [1], False)])) is None
    assert grammars.accept("bound", encode("a")[0])
    assert not grammars.accept("bound", encode("x")[0])
    assert grammars.accept("free", 1)


def masks_of(rows: dict[str, list[int]], vocab: int) -> TokenMasks:
    bits = np.zeros((len(rows), -(-vocab // 32) * 32), dtype=np.uint8)
    for row, tokens in enumerate(rows.values()):
        bits[row, tokens] = 1
    return TokenMasks(list(rows), np.packbits(bits, axis=1, bitorder="little").view(np.int32))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_masks_change_their_rows_only(dtype: torch.dtype) -> None:
    logits = torch.randn(3, 40, generator=torch.Generator().manual_seed(1)).to(dtype)
    before = logits.clone()
    apply_masks(logits, ["a", "b", "c"], masks_of({"c": [0, 31, 39], "a": [33]}, 40))
    assert torch.equal(logits[1], before[1])
    assert torch.isfinite(logits[0]).nonzero()[:, 0].tolist() == [33]
    assert torch.isfinite(logits[2]).nonzero()[:, 0].tolist() == [0, 31, 39]
    assert torch.equal(logits[2, [0, 31, 39]], before[2, [0, 31, 39]])


def test_tokens_beyond_a_mask_are_not_allowed() -> None:
    logits = torch.zeros(1, 70)
    apply_masks(logits, ["a"], masks_of({"a": [1, 31]}, 32))
    assert torch.isfinite(logits[0]).nonzero()[:, 0].tolist() == [1, 31]


def test_a_masked_row_samples_the_same_in_any_company() -> None:
    logits = torch.randn(6, 64, generator=torch.Generator().manual_seed(2))
    names = [f"r{row}" for row in range(6)]
    masks = {"r1": [3, 4, 5, 60], "r4": [7, 8, 40]}
    options: dict[str, Any] = {"temperature": 1.0, "top_p": 0.9, "structured_outputs": {}, "min_tokens": 2}

    def draw(rows: list[int], seed: int) -> dict[str, int]:
        result, chosen = StepResult(), [names[row] for row in rows]
        states = [SequenceState(SamplingParams(**options, all_stop_token_ids=[3]), [1], seed + row) for row in rows]
        bound = {name: masks[name] for name in chosen if name in masks}
        sample(logits[rows].clone(), chosen, states, result, masks_of(bound, 64) if bound else None)
        return result.tokens

    for seed in range(20):
        together = draw([0, 1, 2, 3, 4, 5], seed)
        assert together == {name: token for row in range(6) for name, token in draw([row], seed).items()}
        assert together["r1"] in masks["r1"][1:]
        assert together["r4"] in masks["r4"]


def test_min_tokens_give_way_when_only_stop_tokens_are_left() -> None:
    params = SamplingParams(temperature=0.0, min_tokens=4, all_stop_token_ids=[EOS], structured_outputs={"regex": "a"})
    result = StepResult()
    sample(torch.zeros(1, 32), ["r"], [SequenceState(params, [1], 0)], result, masks_of({"r": [EOS]}, 32))
    assert result.tokens == {"r": EOS}


def test_a_folder_without_tokenizer_fails_requests_not_the_engine(tmp_path: Path) -> None:
    reports: queue.SimpleQueue[Compiled] = queue.SimpleQueue()
    grammars = Grammars(GrammarCompiler(str(tmp_path), VOCAB), reports.put)
    assert not grammars.start(request("1", "a"))
    [(_, error)] = grammars.settle(reports.get(timeout=60))
    assert error is not None
    assert error.code == "internal_error"
    assert "structured outputs are not possible" in error.message
