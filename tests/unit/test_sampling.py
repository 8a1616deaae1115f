"""Sampling parameters: what goes to the engine, and what never may."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from fastfront.config import Limits
from fastfront.errors import SetupError
from fastfront.openai.sampling import NEUTRAL_DEFAULTS, SamplingDefaults, StopTokens, sampling_defaults
from fastfront.openai.serving import Serving, build_serving
from tests.unit.support import VOCAB_SIZE, chat, config_of, make_folder, refusal, write

STOPS = {"_eos_token_id": 2, "_all_stop_token_ids": [2]}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"temperature": 1}, {}),
        ({"temperature": 0.5}, {"temperature": 0.5}),
        ({"temperature": 0.001}, {"temperature": 0.01}),
        ({"temperature": 2}, {"temperature": 2.0}),
        ({"temperature": 0}, {"temperature": 0.0}),
        ({"temperature": 0, "top_p": 0.5, "top_k": 5, "min_p": 0.1}, {"temperature": 0.0}),
        ({"temperature": 0, "presence_penalty": 1}, {"temperature": 0.0, "presence_penalty": 1.0}),
        ({"top_p": 0.5, "top_k": 5, "min_p": 0.1}, {"top_p": 0.5, "top_k": 5, "min_p": 0.1}),
        ({"top_p": 1, "top_k": -1, "min_p": 0}, {}),
        ({"top_k": 10**20}, {"top_k": 2**31 - 1}),
        ({"frequency_penalty": -2, "repetition_penalty": 1.5}, {"frequency_penalty": -2.0, "repetition_penalty": 1.5}),
        ({"frequency_penalty": 0, "repetition_penalty": 1, "presence_penalty": None}, {}),
        ({"min_tokens": 3}, {"min_tokens": 3}),
        ({"logit_bias": {"5": -100, "6": 500, "7": 0.5}}, {"logit_bias": {5: -100.0, 6: 100.0, 7: 0.5}}),
        ({"logit_bias": {}, "allowed_token_ids": None, "bad_words": [], "stop_token_ids": None}, {}),
        ({"allowed_token_ids": [1, 2]}, {"allowed_token_ids": [1, 2]}),
        ({"vllm_xargs": {"a": 1, "b": [1.5, "x"]}}, {"extra_args": {"a": 1, "b": [1.5, "x"]}}),
    ],
)
def test_only_what_an_engine_acts_on_is_sent(serving: Serving, fields: dict[str, Any], expected: dict[str, Any]) -> None:
    sampling = chat(serving, fields).sampling
    assert sampling == STOPS | expected
    assert all(isinstance(value, float) for value in (sampling.get("temperature", 0.0), sampling.get("top_p", 0.0)))


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"temperature": -1}, "temperature", "temperature must be non-negative, got -1.0. (parameter=temperature, value=-1.0)"),
        ({"temperature": 3}, "temperature", "temperature must be in [0, 2], got 3.0. (parameter=temperature, value=3.0)"),
        ({"top_p": 0}, "top_p", "top_p must be in (0, 1], got 0.0. (parameter=top_p, value=0.0)"),
        ({"top_p": 1.5}, "top_p", "top_p must be in (0, 1], got 1.5. (parameter=top_p, value=1.5)"),
        ({"top_k": -2}, None, "top_k must be 0 (disable), or at least 1, got -2."),
        ({"min_p": 1.1}, None, "min_p must be in [0, 1], got 1.1."),
        ({"presence_penalty": 5}, None, "presence_penalty must be in [-2, 2], got 5.0."),
        ({"frequency_penalty": -5}, None, "frequency_penalty must be in [-2, 2], got -5.0."),
        ({"repetition_penalty": 0}, None, "repetition_penalty must be greater than zero, got 0.0."),
        ({"n": -1}, None, "n must be at least 1, got -1."),
        ({"n": 0}, None, "n must be at least 1, got 0."),
        ({"n": 2, "temperature": 0}, None, "n must be 1 when using greedy sampling, got 2."),
        ({"logit_bias": {"x": 1}}, "logit_bias",
         "logit_bias contains key(s) that cannot be converted to integer token IDs: ['x'] (parameter=logit_bias, value=['x'])"),
        ({"logit_bias": {"99999999": 1}}, "logit_bias",
         ("token_id(s) [99999999] in logit_bias contain out-of-vocab token ids. Vocabulary size: 300 "
         "(parameter=logit_bias, value=[99999999])")),
        ({"logit_bias": {"-1": 1}}, "logit_bias",
         ("token_id(s) [-1] in logit_bias contain out-of-vocab token ids. Vocabulary size: 300 "
         "(parameter=logit_bias, value=[-1])")),
        ({"stop_token_ids": [VOCAB_SIZE, 1, -1]}, "stop_token_ids",
         ("token_id(s) [300, -1] in stop_token_ids contain out-of-vocab token ids. Vocabulary size: 300 "
         "(parameter=stop_token_ids, value=[300, -1])")),
        ({"allowed_token_ids": []}, "allowed_token_ids",
         "allowed_token_ids is not None and empty! (parameter=allowed_token_ids, value=[])"),
        ({"allowed_token_ids": [VOCAB_SIZE]}, "allowed_token_ids",
         "allowed_token_ids contains out-of-vocab token id! (parameter=allowed_token_ids, value=[300])"),
        ({"bad_words": [""]}, None, "bad_words cannot contain an empty string."),
    ],
)  # fmt: skip
def test_values_out_of_range(serving: Serving, fields: dict[str, Any], param: str | None, message: str) -> None:
    error = refusal(chat, serving, fields)
    assert (error.status, error.kind, error.param, error.message) == (400, "BadRequestError", param, message)


@pytest.mark.parametrize(("seed", "meant"), [(-1, None), (None, None), (0, 0), (5, 5), (-2, -2), (2**63 - 1, 2**63 - 1)])
def test_seeds(serving: Serving, seed: int | None, meant: int | None) -> None:
    assert chat(serving, {"seed": seed}).seed == meant


@pytest.mark.parametrize("seed", [2**63, 2**64, -(2**63) - 1])
def test_seeds_beyond_64_bits(serving: Serving, seed: int) -> None:
    assert refusal(chat, serving, {"seed": seed}).param == "body.seed"


def test_n_has_a_limit(serving: Serving) -> None:
    small = dataclasses.replace(serving, limits=Limits(max_n=4))
    assert chat(small, {"n": 4}).n == 4
    assert "at most 4" in refusal(chat, small, {"n": 5}).message


def test_extra_arguments_fit_the_wire(serving: Serving) -> None:
    assert refusal(chat, serving, {"vllm_xargs": {"a": 2**64}}).param == "extra_args"
    assert refusal(chat, serving, {"vllm_xargs": {"a": [-(2**63) - 1]}}).param == "extra_args"


def test_bad_words_are_tokenized_with_and_without_a_space(serving: Serving) -> None:
    sampling = chat(serving, {"bad_words": ["ab", "ab"]}).sampling
    tokens = serving.tokenizer.encode("ab", False)
    assert sampling["_bad_words_token_ids"] == [tokens]  # with a space it is one token more: not a form of the word
    limited = dataclasses.replace(serving, limits=Limits(max_bad_words=1))
    assert refusal(chat, limited, {"bad_words": ["ab", "cd"]}).param == "bad_words"
    assert refusal(chat, serving, {"bad_words": [" "]}).param == "bad_words"


# --- stop tokens -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ignore_eos", "extra", "expected"),
    [
        (False, None, {"_eos_token_id": 2, "stop_token_ids": [7, 8], "_all_stop_token_ids": [2, 7, 8]}),
        (False, [9, 7, 9], {"_eos_token_id": 2, "stop_token_ids": [9, 7, 8], "_all_stop_token_ids": [2, 7, 8, 9]}),
        (True, None, {"_all_stop_token_ids": [2, 7, 8]}),
        (True, [9], {"stop_token_ids": [9], "_all_stop_token_ids": [2, 7, 8, 9]}),
    ],
)
def test_the_models_further_end_tokens_stop_too_unless_ends_are_ignored(
    ignore_eos: bool, extra: list[int] | None, expected: dict[str, Any]
) -> None:
    stops = StopTokens(2, (8, 2, 7))
    first = stops.wire_map(ignore_eos, extra)
    assert first == expected
    first.clear()
    assert stops.wire_map(ignore_eos, extra) == expected


def test_a_model_without_end_token() -> None:
    assert StopTokens(None, ()).wire_map(False, None) == {}
    assert StopTokens(None, (5,)).wire_map(False, None) == {"stop_token_ids": [5], "_all_stop_token_ids": [5]}


# --- defaults --------------------------------------------------------------------------------------------------------


def with_generation(folder: Path, **changes: Any) -> Serving:
    write(make_folder(folder) / "generation_config.json", eos_token_id=[2, 0], temperature=0.6, top_k=20, top_p=0.95,
          max_new_tokens=50, do_sample=False)  # fmt: skip
    return build_serving(config_of(folder, **changes))


def test_defaults_come_from_the_models_generation_configuration(tmp_path: Path) -> None:
    serving = with_generation(tmp_path)
    call = chat(serving, {})
    ends = {"_eos_token_id": 2, "stop_token_ids": [0], "_all_stop_token_ids": [2, 0]}
    assert call.sampling == {"temperature": 0.6, "top_k": 20, "top_p": 0.95, **ends}
    assert call.prompts[0].max_tokens == 50
    call = chat(serving, {"temperature": 1, "top_k": 0, "top_p": 1, "max_tokens": 60})
    assert call.sampling == ends
    assert call.prompts[0].max_tokens == 60


def test_the_models_configuration_can_be_left_out_but_its_end_tokens_stay(tmp_path: Path) -> None:
    call = chat(with_generation(tmp_path, generation_config="vllm"), {})
    assert call.sampling == {"_eos_token_id": 2, "stop_token_ids": [0], "_all_stop_token_ids": [2, 0]}


def test_an_overriding_limit_binds_requests(tmp_path: Path) -> None:
    serving = with_generation(tmp_path, override_generation_config={"max_new_tokens": 30, "temperature": 0})
    assert chat(serving, {"max_tokens": 60}).prompts[0].max_tokens == 30
    assert chat(serving, {}).sampling["temperature"] == 0.0


def test_a_folder_can_give_the_defaults(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    write(other / "generation_config.json", temperature=0.3, max_new_tokens=9)
    serving = with_generation(tmp_path / "model", generation_config=str(other))
    call = chat(serving, {"max_tokens": 60})
    assert call.sampling["temperature"] == 0.3
    assert call.prompts[0].max_tokens == 9
    with pytest.raises(SetupError, match="--generation-config"):
        with_generation(tmp_path / "model", generation_config=str(tmp_path / "none"))


@pytest.mark.parametrize("wrong", [{"temperature": "hot"}, {"temperature": 3}, {"max_new_tokens": 0}, {"top_k": True}])
def test_impossible_defaults_are_refused_at_start(wrong: dict[str, Any]) -> None:
    with pytest.raises(SetupError, match="generation configuration"):
        sampling_defaults(wrong, False)


def test_no_defaults_are_the_neutral_ones() -> None:
    assert sampling_defaults({"do_sample": True, "eos_token_id": 3}, True) is NEUTRAL_DEFAULTS
    assert sampling_defaults({"temperature": None}, False) is NEUTRAL_DEFAULTS
    assert sampling_defaults({"top_k": 5}, False) == SamplingDefaults(top_k=5)
