"""Plain chat requests made ready in one go: the same calls as by the long way."""

from __future__ import annotations

import dataclasses
import re
import threading
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastfront._speedups import quick_chat
from fastfront._speedups.prepared import FIELDS, PreparedCall, PreparedPrompt
from fastfront.config import AnswerOptions, Limits
from fastfront.errors import ApiError
from fastfront.openai.chat import prepare_chat_fields
from fastfront.openai.checks import check_chat
from fastfront.openai.fields import ChatBody
from fastfront.openai.sampling import NEUTRAL_DEFAULTS, SamplingDefaults, StopTokens
from fastfront.openai.serving import Serving
from fastfront.openai.tools.choice import Parsers
from fastfront.openai.tools.registry import REASONING_PARSERS

HEADERS = {"x-request-id": "r"}
SERVERS: list[dict[str, Any]] = [
    {},
    {"force_usage": True, "any_model_name": True, "response_role": "bot"},
    {
        "max_model_len": 60,
        "defaults": SamplingDefaults(max_new_tokens=20, max_tokens_cap=30),
        "limits": Limits(max_stop_strings=2),
    },
    {"answers": AnswerOptions(prompt_details=True, metrics=True, tokens_as_ids=True), "stops": StopTokens(7, (8, 7))},
    {"answers": AnswerOptions(metrics=True), "max_prompt_token_id": 60, "stops": StopTokens(None, ())},
]


def header(name: str) -> str | None:
    return HEADERS.get(name)


def message(role: str, text: str, in_parts: bool) -> dict[str, Any]:
    return {"role": role, "content": [{"type": "text", "text": text}] if in_parts else text}


texts = st.one_of(
    st.text(max_size=20), st.sampled_from(["", "Hi", "<|im_end|>", "x-anthropic-billing-header: a\nb", "%s", "a" * 50])
)
chats = st.lists(
    st.builds(message, st.sampled_from(["user", "system", "assistant", "developer", "tool"]), texts, st.booleans()), max_size=4
)
numbers = st.one_of(st.none(), st.integers(-2, 70), st.sampled_from([2**63, -(2**70), 2048, 2049]))
optional: dict[str, st.SearchStrategy[Any]] = {
    "model": st.sampled_from([None, "", "tiny", "other"]),
    "max_tokens": numbers,
    "max_completion_tokens": numbers,
    "temperature": st.one_of(st.none(), st.floats(), st.sampled_from([0.0, 1e-6, 0.001, 0.7, 1.0, 2.0])),
    "top_p": st.one_of(st.none(), st.floats(), st.sampled_from([0.5, 1.0])),
    "stream": st.sampled_from([None, False, True]),
    "stream_options": st.sampled_from(
        [None, {}, {"include_usage": True}, {"include_usage": False, "continuous_usage_stats": True}]
    ),
    "stop": st.one_of(st.none(), st.text(max_size=3), st.lists(st.text(max_size=3), max_size=5)),
    "seed": st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.just(-1)),
    "n": st.sampled_from([None, 1, 2, 0, 2**70]),
    "user": st.text(max_size=3),
    "ignore_eos": st.booleans(),
    "min_p": st.just(0.5),
    "echo": st.booleans(),
}
plain = st.fixed_dictionaries({"messages": chats}, optional=optional)


def by_the_long_way(fields: dict[str, Any], serving: Serving) -> PreparedCall:
    """Raises ApiError."""
    check_chat(fields)
    return prepare_chat_fields(fields, header, serving)


def all_of(call: PreparedCall) -> dict[str, Any]:
    return {**call.fields(), "created": 0}


@pytest.mark.parametrize("changes", SERVERS)
@given(plain)
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_calls_are_the_same(serving: Serving, changes: dict[str, Any], fields: dict[str, Any]) -> None:
    changed = dataclasses.replace(serving, **changes)
    assert changed.quick_chats is not None
    made = changed.quick_chats.prepare(fields, header)
    if made is not None:
        assert all_of(made) == all_of(by_the_long_way(fields, changed))


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"model": None, "max_tokens": 3, "temperature": 0.7, "top_p": 0.9, "stream": True, "stop": ["a", "b"], "seed": 4, "n": 1},
        {"max_completion_tokens": 1, "stream": True, "stream_options": {"include_usage": True}, "ignore_eos": True, "user": "u"},
        {"messages": [message("system", "a", True), message("user", "b", False), message("assistant", "c", True)]},
        {"temperature": 0, "top_p": 0.5},
    ],
)
def test_usual_requests_need_no_long_way(serving: Serving, fields: dict[str, Any]) -> None:
    fields = {"messages": [message("user", "Hi", False)], **fields}
    assert serving.quick_chats is not None
    made = serving.quick_chats.prepare(fields, header)
    assert made is not None
    assert all_of(made) == all_of(by_the_long_way(fields, serving))


@pytest.mark.parametrize("name", ["x-vllm-priority", "x-data-parallel-rank"])
def test_requests_with_such_a_header_take_the_long_way(serving: Serving, name: str) -> None:
    assert serving.quick_chats is not None
    asked = {"messages": [message("user", "Hi", False)]}
    assert serving.quick_chats.prepare(asked, lambda header: "0" if header == name else None) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"parsers": Parsers(reasoning=REASONING_PARSERS["qwen3"])},
        {"defaults": dataclasses.replace(NEUTRAL_DEFAULTS, temperature=0.6)},
    ],
)
def test_servers_that_read_answers_or_have_defaults_take_the_long_way(serving: Serving, changes: dict[str, Any]) -> None:
    assert dataclasses.replace(serving, **changes).quick_chats is None


def test_labels_are_random_and_differ_between_threads(serving: Serving) -> None:
    quick = serving.quick_chats
    assert quick is not None
    found: list[str] = []
    start = threading.Barrier(4)

    def ask() -> None:
        start.wait()
        for _ in range(200):
            made = quick.prepare({"messages": [message("user", "Hi", False)]}, lambda name: None)
            assert made is not None
            found.append(made.external_id)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 800
    assert all(re.fullmatch("chatcmpl-[0-9a-f]{16}", label) for label in found)


def test_every_field_of_a_call_is_in_its_copy() -> None:
    prompt = PreparedPrompt([1], 2, text="a")
    values: dict[str, Any] = {"stop": ["x"], "seed": 3, "stream": True, "logprobs": 0, "cache_salt": "s", "min_tokens": 1}
    call = PreparedCall("chat", "i", 5, "m", [prompt], {"top_k": 1}, **values)
    assert len(FIELDS) == 32
    assert call.fields().items() >= {"kind": "chat", "prompts": [prompt], **values}.items()
    copy = call.replace(n=2, role="bot")
    assert copy.fields() == {**call.fields(), "n": 2, "role": "bot"}
    with pytest.raises(TypeError):
        call.replace(nothing=1)


def test_quick_fields_are_fields_of_chats() -> None:
    assert ChatBody.__annotations__.keys() >= quick_chat.FIELDS


def test_what_is_wrong_is_said_by_the_long_way(serving: Serving) -> None:
    assert serving.quick_chats is not None
    options = {"stream_options": {"include_usage": True}}
    for wrong in ({"temperature": 3.0}, {"max_tokens": 0}, {"stop": [""]}, {"model": "other"}, options):
        fields: dict[str, Any] = {"messages": [message("user", "Hi", False)], **wrong}
        assert serving.quick_chats.prepare(fields, header) is None
        with pytest.raises(ApiError):
            by_the_long_way(fields, serving)
