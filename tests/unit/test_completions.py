"""Completion requests: prompts in every form, echoes, and ids no engine may see."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from tokenizers.processors import TemplateProcessing

from fastfront.config import Limits
from fastfront.openai.serving import Serving, build_serving
from fastfront.render.tokenizer import load_tokenizer
from tests.unit.support import MAX_MODEL_LEN, VOCAB_SIZE, completion, config_of, make_folder, refusal


def ids(serving: Serving, text: str) -> list[int]:
    return serving.tokenizer.encode(text, False)


def test_a_plain_request(serving: Serving) -> None:
    call = completion(serving, {})
    assert [(p.token_ids, p.max_tokens, p.echo_text) for p in call.prompts] == [(ids(serving, "abc def"), 16, "")]
    assert (call.kind, call.external_id[:5], call.n, call.hide_output) == ("completion", "cmpl-", 1, False)


@pytest.mark.parametrize("prompt", ["abc", ["abc", "d"]], ids=["usual", "unusual"])
def test_further_fields_reach_the_call_whatever_the_way(serving: Serving, prompt: Any) -> None:
    fields = {"cache_salt": "s", "priority": -4, "stream_interval": 3, "return_tokens_as_token_ids": True, "logprobs": 1}
    call = completion(serving, {"prompt": prompt, **fields})
    assert (call.cache_salt, call.priority, call.stream_interval, call.tokens_as_ids, call.logprobs) == ("s", -4, 3, True, 1)


def test_every_form_of_prompt(serving: Serving) -> None:
    abc, d = ids(serving, "abc"), ids(serving, "d")
    for prompt, expected in (("abc", [abc]), (["abc", "d"], [abc, d]), (abc, [abc]), ([abc, d], [abc, d]), (["d"], [d])):
        assert [p.token_ids for p in completion(serving, {"prompt": prompt}).prompts] == expected


EMPTY: list[tuple[Any, str | None]] = [
    (None, "prompt"),
    ("", "prompt"),
    ([], None),
    ([""], None),
    ([[]], None),
    (["a", ""], None),
]


@pytest.mark.parametrize(("prompt", "param"), EMPTY)
def test_empty_prompts(serving: Serving, prompt: Any, param: str | None) -> None:
    error = refusal(completion, serving, {"prompt": prompt})
    assert (error.status, error.kind, error.param) == (400, "BadRequestError", param)


@pytest.mark.parametrize("prompt", [[VOCAB_SIZE], [1, 1099511627776], [[1], [VOCAB_SIZE]], [2**70]])
def test_ids_beyond_the_vocabulary(serving: Serving, prompt: Any) -> None:
    error = refusal(completion, serving, {"prompt": prompt})
    assert (error.status, error.kind) == (400, "BadRequestError")
    assert "out of vocabulary" in error.message


@pytest.mark.parametrize("prompt", [[-1], [[1], [-1]], 5, {"a": 1}, [1.5], ["a", [1]], [None], True])
def test_prompts_of_a_wrong_type(serving: Serving, prompt: Any) -> None:
    error = refusal(completion, serving, {"prompt": prompt})
    assert (error.status, error.kind) == (400, "Bad Request")
    assert error.param is not None
    assert error.param.startswith("body.prompt")


def test_the_vocabulary_is_the_larger_of_tokenizer_and_model(serving: Serving) -> None:
    assert serving.tokenizer.max_token_id < VOCAB_SIZE - 1 == serving.max_prompt_token_id
    assert completion(serving, {"prompt": [VOCAB_SIZE - 1]}).prompts[0].token_ids == [VOCAB_SIZE - 1]


def test_a_request_has_a_limit_of_prompts_but_not_of_ids(serving: Serving) -> None:
    few = dataclasses.replace(serving, limits=Limits(max_completion_prompts=2))
    assert refusal(completion, few, {"prompt": ["a", "b", "c"]}).param == "prompt"
    assert len(completion(few, {"prompt": [5, 6, 7]}).prompts[0].token_ids) == 3


# --- lengths ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("max_tokens", "meant"), [(5, 5), (None, 16), (MAX_MODEL_LEN - 7, MAX_MODEL_LEN - 7)])
def test_max_tokens(serving: Serving, max_tokens: int | None, meant: int) -> None:
    assert completion(serving, {"max_tokens": max_tokens}).prompts[0].max_tokens == meant


@pytest.mark.parametrize(("echo", "value"), [(False, 0), (False, -5), (True, -5)])
def test_no_tokens_at_all(serving: Serving, echo: bool, value: int) -> None:
    error = refusal(completion, serving, {"max_tokens": value, "echo": echo})
    assert error.param == "max_tokens"
    assert error.message == f"max_tokens must be at least 1, got {value}. (parameter=max_tokens, value={value})"


def test_prompt_and_answer_must_fit(serving: Serving) -> None:
    error = refusal(completion, serving, {"prompt": "eight by", "max_tokens": 2045})
    assert error.param == "input_tokens"
    for number in ("2048", "8 input", "2045", "2053"):
        assert number in error.message
    error = refusal(completion, serving, {"prompt": [5] * 3000})
    assert "3000 input tokens" in error.message
    assert "2048" in error.message
    assert completion(serving, {"prompt": [5] * 2040, "max_tokens": 8}).prompts[0].max_tokens == 8
    assert refusal(completion, serving, {"prompt": ["a", "x" * 2040]}).param == "input_tokens"


def test_min_tokens_holds_for_every_prompt(serving: Serving) -> None:
    short = dataclasses.replace(serving, defaults=dataclasses.replace(serving.defaults, max_tokens_cap=10))
    assert "max_tokens=10" in refusal(completion, short, {"min_tokens": 11}).message


def test_ids_are_truncated_like_texts(serving: Serving) -> None:
    assert completion(serving, {"prompt": [5, 6, 7, 8], "truncate_prompt_tokens": 2}).prompts[0].token_ids == [7, 8]
    right = {"prompt": [5, 6, 7, 8], "truncate_prompt_tokens": 2, "truncation_side": "right"}
    assert completion(serving, right).prompts[0].token_ids == [5, 6]
    assert completion(serving, {"truncate_prompt_tokens": 3}).prompts[0].token_ids == ids(serving, "def")


def test_a_side_that_is_named_is_that_of_all_ids(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    raw = load_tokenizer(folder).raw
    pieces = [("<|im_start|>", 1), ("<|im_end|>", 2)]
    raw.post_processor = TemplateProcessing(single="<|im_start|> $A <|im_end|>", special_tokens=pieces)
    raw.save(str(folder / "tokenizer.json"))
    serving = build_serving(config_of(folder))
    text = ids(serving, "abcdef")
    for side, kept in ((None, [1, *text[-2:], 2]), ("left", [*text[-3:], 2]), ("right", [1, *text[:3]])):
        fields = {"prompt": "abcdef", "truncate_prompt_tokens": 4, "truncation_side": side}
        assert completion(serving, fields).prompts[0].token_ids == kept


# --- echo ------------------------------------------------------------------------------------------------------------


def test_an_echo_alone_generates_one_hidden_token(serving: Serving) -> None:
    call = completion(serving, {"echo": True, "max_tokens": 0})
    assert (call.prompts[0].echo_text, call.prompts[0].max_tokens, call.hide_output) == ("abc def", 1, True)


def test_an_echo_is_the_prompts_text(serving: Serving) -> None:
    call = completion(serving, {"echo": True, "prompt": ["a", "b"]})
    assert [p.echo_text for p in call.prompts] == ["a", "b"]
    assert not call.hide_output
    assert completion(serving, {"echo": True, "prompt": [1, *ids(serving, "ab")]}).prompts[0].echo_text == "<|im_start|>ab"
    assert completion(serving, {"echo": True, "return_token_ids": True}).prompts[0].echo_text == ""


# --- other fields ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"logprobs": -2}, "logprobs"),
        ({"logprobs": "x"}, "logprobs"),
        ({"suffix": "x"}, "suffix"),
        ({"prompt_embeds": "AAAA"}, "prompt_embeds"),
        ({"prompt": None, "prompt_embeds": "AAAA"}, "prompt_embeds"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"cache_salt": ""}, "cache_salt"),
        ({"structured_outputs": {"json": {}, "regex": "a"}}, "structured_outputs"),
        ({"n": None}, "body.n"),
    ],
)
def test_refused_by_name(serving: Serving, fields: dict[str, Any], param: str) -> None:
    error = refusal(completion, serving, fields)
    assert (error.status, error.param) == (400, param)


def test_fields_reach_the_call(serving: Serving) -> None:
    fields = {"n": 2, "seed": 5, "stop": ["x"], "stream": True, "stream_options": {"include_usage": True}, "min_tokens": 1}
    call = completion(serving, fields, x_request_id="mine")
    assert (call.n, call.seed, call.stop, call.stream, call.include_usage, call.min_tokens) == (2, 5, ["x"], True, True, 1)
    assert call.external_id == "cmpl-mine"


def test_another_model_is_not_found(serving: Serving) -> None:
    assert refusal(completion, serving, {"model": "other"}).status == 404
