"""Plain chat requests made ready in one go: the same calls as by the long way."""

from __future__ import annotations

import dataclasses
import re
import threading
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastfront._speedups.prepared import FIELDS, PreparedCall, PreparedPrompt
from fastfront.config import Limits
from fastfront.errors import ApiError
from fastfront.openai.chat import prepare_chat_fields
from fastfront.openai.checks import check_chat
from fastfront.openai.fields import ChatBody
from fastfront.openai.serving import Serving
from fastfront.openai.tools.choice import Parsers
from fastfront.openai.tools.registry import REASONING_PARSERS
from tests.unit.request_fields import SERVERS, WARM, all_of, fields_of, header


def message(role: str, text: str, in_parts: bool) -> dict[str, Any]:
    return {"role": role, "content": [{"type": "text", "text": text}] if in_parts else text}


texts = st.one_of(
    st.text(max_size=20), st.sampled_from(["", "Hi", "<|im_end|>", "x-anthropic-billing-header: a\nb", "%s", "a" * 50])
)
chats = st.lists(
    st.builds(message, st.sampled_from(["user", "system", "assistant", "developer", "tool"]), texts, st.booleans()), max_size=4
)
requests = fields_of(ChatBody, {"messages": chats})


def by_the_long_way(fields: dict[str, Any], serving: Serving) -> PreparedCall:
    """Raises ApiError."""
    check_chat(fields)
    return prepare_chat_fields(fields, header, serving)


@pytest.mark.parametrize("changes", [*SERVERS, {"response_role": "bot"}])
@given(requests)
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
        {"temperature": 0.7, "top_p": 0.8, "top_k": 20, "min_p": 0.1, "presence_penalty": 1.0, "frequency_penalty": -1.0},
        {"repetition_penalty": 1.1, "n": 3, "logprobs": True, "top_logprobs": 4, "min_tokens": 2, "stop_token_ids": [4, 5, 4]},
        {"logprobs": False, "top_logprobs": 0, "logit_bias": {}, "tools": None, "tool_choice": "none", "response_format": None},
        {"response_format": {"type": "text"}, "stop": [], "parallel_tool_calls": True, "request_id": "q", "priority": 3},
        {"cache_salt": "s", "skip_special_tokens": False, "include_stop_str_in_output": True, "return_token_ids": True},
    ],
)
@pytest.mark.parametrize("changes", [{}, {"defaults": WARM}, {"limits": Limits(max_n=2), "max_logprobs": -1}])
def test_usual_requests_need_no_long_way(serving: Serving, fields: dict[str, Any], changes: dict[str, Any]) -> None:
    fields = {"messages": [message("user", "Hi", False)], **fields}
    changed = dataclasses.replace(serving, **changes)
    assert changed.quick_chats is not None
    made = changed.quick_chats.prepare(fields, header)
    if fields.get("n", 1) > changed.limits.max_n:
        assert made is None
    else:
        assert made is not None
        assert all_of(made) == all_of(by_the_long_way(fields, changed))
        assert list(made.sampling) == list(by_the_long_way(fields, changed).sampling)


@pytest.mark.parametrize("name", ["x-vllm-priority", "x-data-parallel-rank"])
def test_requests_with_such_a_header_take_the_long_way(serving: Serving, name: str) -> None:
    assert serving.quick_chats is not None
    asked = {"messages": [message("user", "Hi", False)]}
    assert serving.quick_chats.prepare(asked, lambda header: "0" if header == name else None) is None


def test_servers_that_read_answers_take_the_long_way(serving: Serving) -> None:
    assert dataclasses.replace(serving, parsers=Parsers(reasoning=REASONING_PARSERS["qwen3"])).quick_chats is None


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
    assert len(FIELDS) == 34
    assert call.fields().items() >= {"kind": "chat", "prompts": [prompt], **values}.items()
    copy = call.replace(n=2, role="bot")
    assert copy.fields() == {**call.fields(), "n": 2, "role": "bot"}
    with pytest.raises(TypeError):
        call.replace(nothing=1)


def test_what_is_wrong_is_said_by_the_long_way(serving: Serving) -> None:
    assert serving.quick_chats is not None
    options = {"stream_options": {"include_usage": True}}
    for wrong in ({"temperature": 3.0}, {"max_tokens": 0}, {"stop": [""]}, {"model": "other"}, options):
        fields: dict[str, Any] = {"messages": [message("user", "Hi", False)], **wrong}
        assert serving.quick_chats.prepare(fields, header) is None
        with pytest.raises(ApiError):
            by_the_long_way(fields, serving)
