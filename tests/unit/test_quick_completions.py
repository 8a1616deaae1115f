"""Usual completion requests made ready in one go: the same calls as by the long way."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastfront._speedups import quick_fields
from fastfront.errors import ApiError
from fastfront.openai.completions import prepare_completion_fields
from fastfront.openai.fields import ChatBody, CompletionBody
from fastfront.openai.serving import Serving
from tests.unit.request_fields import SERVERS, WARM, all_of, fields_of, header

_IDS = st.one_of(st.integers(0, 300), st.sampled_from([301, 2**31, 2**70]))
PROMPTS = st.one_of(
    st.none(), st.text(max_size=30), st.sampled_from(["a" * 70, "<|im_end|>a b c d"]), st.lists(_IDS, max_size=70),
    st.lists(st.text(max_size=3), max_size=2), st.lists(st.lists(_IDS, max_size=2), max_size=2),
)  # fmt: skip
REQUESTS = fields_of(CompletionBody, {"prompt": PROMPTS}, logprobs=st.one_of(st.none(), st.integers(-2, 8)), echo=st.booleans())


@pytest.mark.parametrize("changes", SERVERS)
@given(REQUESTS)
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_calls_are_the_same(serving: Serving, changes: dict[str, Any], fields: dict[str, Any]) -> None:
    changed = dataclasses.replace(serving, **changes)
    made = changed.quick_completions.prepare(fields, header)
    if made is not None:
        by_the_long_way = prepare_completion_fields(fields, header, changed)
        assert all_of(made) == all_of(by_the_long_way)
        assert list(made.sampling) == list(by_the_long_way.sampling)


@pytest.mark.parametrize("defaults", [{}, {"defaults": WARM}])
@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": "Hello there"},
        {"prompt": [1, 2, 3], "max_tokens": 5, "temperature": 0.0, "stream": True, "stream_options": {"include_usage": True}},
        {"prompt": "a", "logprobs": 2, "n": 2, "echo": False, "suffix": None, "stop": ["x"], "seed": 3, "best_of": None},
        {"prompt": "a", "top_k": 3, "repetition_penalty": 1.2, "min_tokens": 1, "add_special_tokens": True},
    ],
)
def test_usual_requests_need_no_long_way(serving: Serving, fields: dict[str, Any], defaults: dict[str, Any]) -> None:
    changed = dataclasses.replace(serving, **defaults)
    made = changed.quick_completions.prepare(fields, header)
    assert made is not None
    assert all_of(made) == all_of(prepare_completion_fields(fields, header, changed))


WRONG: list[dict[str, Any]] = [
    {"temperature": 3.0}, {"max_tokens": 0}, {"model": "other"}, {"suffix": "a"}, {"prompt_embeds": ""},
]  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_is_said_by_the_long_way(serving: Serving, wrong: dict[str, Any]) -> None:
    fields = {"prompt": "Hi", **wrong}
    assert serving.quick_completions.prepare(fields, header) is None
    with pytest.raises(ApiError):
        prepare_completion_fields(fields, header, serving)


def test_quick_fields_are_fields_of_requests() -> None:
    assert ChatBody.__annotations__.keys() >= quick_fields.CHAT.keys()
    assert CompletionBody.__annotations__.keys() >= quick_fields.COMPLETION.keys()
