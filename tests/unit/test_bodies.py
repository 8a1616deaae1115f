"""Bodies that are no JSON, or not the right JSON: always a 400 that says where."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fastfront.openai.serving import Serving
from tests.unit.support import USER, body_of, chat, completion, prepare_chat, refusal

GOOD = body_of({"messages": USER})


@pytest.mark.parametrize("kind", ["application/json", "application/json; charset=utf-8", "Application/JSON"])
def test_json_content_types_are_taken(serving: Serving, kind: str) -> None:
    assert prepare_chat(GOOD, {"content-type": kind}.get, serving).prompts


@pytest.mark.parametrize("kind", [None, "", "text/plain", "application/x-www-form-urlencoded", "application/jsonx"])
def test_other_content_types_are_refused(serving: Serving, kind: str | None) -> None:
    headers = {} if kind is None else {"content-type": kind}
    error = refusal(prepare_chat, GOOD, headers.get, serving)
    assert (error.status, error.kind, error.param) == (400, "Bad Request", None)
    assert "application/json" in error.message


NOT_JSON: list[tuple[bytes, str]] = [
    (b"", "body"),
    (b"   ", "body.3"),
    (b"null", "body"),
    (b"[]", "body"),
    (b"5", "body"),
    (b'"x"', "body"),
    (b"{", "body.1"),
    (b'{"a":1, }', "body.8"),
    (b"[1, ]", "body.4"),
    (b'{"messages": [}', "body.14"),
    (b'{"messages": [] "x"}', "body.16"),
    (GOOD[:-1], f"body.{len(GOOD) - 1}"),
    (GOOD + b"x", f"body.{len(GOOD)}"),
    (b'{"messages":[{"role":"user","content":"a\nb"}]}', "body.40"),
]


@pytest.mark.parametrize(("body", "where"), NOT_JSON)
def test_broken_json_says_where(serving: Serving, body: bytes, where: str) -> None:
    error = refusal(chat, serving, body)
    assert (error.status, error.kind, error.param) == (400, "Bad Request", where)
    assert error.message.startswith("1 validation error:\n  {'type': ")


REFUSED_TEXTS = [
    rb'{"messages":[{"role":"user","content":"x \ud83d"}]}',
    rb'{"messages":[{"role":"user","content":"\ude00"}]}',
    rb'{"messages":[{"role":"user","content":"\ud83dx"}]}',
    b'{"messages":[{"role":"user","content":"\xff"}]}',
    b'{"messages":[{"role":"user","content":"\xed\xa0\xbd"}]}',
    b'{"messages":[{"role":"user","content":"\xc3"}]}',
    b'{"messages":[{"role":"user","content":"x"}],"max_tokens":' + b"9" * 5000 + b"}",
    b'{"messages":[{"role":"user","content":"x"}],"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    b'{"messages":[{"role":"user","content":"x"}],"x":' + b"[" * 100_000,
]


@pytest.mark.parametrize("body", REFUSED_TEXTS, ids=range(len(REFUSED_TEXTS)))
def test_text_that_is_no_unicode_and_values_beyond_reason_are_refused(serving: Serving, body: bytes) -> None:
    error = refusal(chat, serving, body)
    assert (error.status, error.param) == (400, None) or error.param.startswith("body")


def test_the_first_wrong_field_is_the_one_that_vllm_looks_at_first(serving: Serving) -> None:
    body = {"vllm_xargs": 5, "temperature": "x", "messages": [{"role": "user", "content": 5}], "n": "x"}
    error = refusal(chat, serving, json.dumps(body).encode())
    assert error.param == "body.messages.0.ChatCompletionDeveloperMessageParam.content"
    body["messages"] = [{"role": "user", "content": "x"}]
    assert refusal(chat, serving, json.dumps(body).encode()).param == "body.n"


def test_messages_without_a_shape_come_before_what_else_is_wrong(serving: Serving) -> None:
    for messages, param in (([{"role": "user"}, 5], "body.messages.1"), ([{"role": "assistant", "tool_calls": [5]}], "body.0")):
        error = refusal(chat, serving, json.dumps({"model": "other", "messages": messages}).encode())
        assert error.status == 400
        assert error.param is not None
        assert error.param.startswith(param)


def test_a_paired_surrogate_escape_is_one_character(serving: Serving) -> None:
    body = rb'{"messages":[{"role":"user","content":"\ud83d\ude00"}]}'
    assert "😀" in serving.tokenizer.decode(chat(serving, body).prompts[0].token_ids)


def test_a_byte_order_mark_is_skipped_and_the_last_of_equal_keys_counts(serving: Serving) -> None:
    assert chat(serving, b"\xef\xbb\xbf" + GOOD).prompts
    assert refusal(chat, serving, b"\xef\xbb\xbf" * 2 + GOOD).param == "body.0"
    assert chat(serving, b'{"max_tokens":2,"max_tokens":4,' + GOOD[1:]).prompts[0].max_tokens == 4


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
@pytest.mark.parametrize("field", ["temperature", "top_p", "min_p", "presence_penalty", "repetition_penalty"])
def test_numbers_that_are_none_are_refused(serving: Serving, field: str, number: str) -> None:
    assert refusal(chat, serving, b'{"%s":%s,' % (field.encode(), number.encode()) + GOOD[1:]).status == 400


def test_no_number_in_logit_bias_and_in_integers(serving: Serving) -> None:
    for extra in (b'"logit_bias":{"5":NaN}', b'"logit_bias":{"5":Infinity}', b'"max_tokens":NaN', b'"seed":Infinity'):
        assert refusal(chat, serving, b"{" + extra + b"," + GOOD[1:]).status == 400


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"temperature": "hot"}, "body.temperature",
     ("{'type': 'float_parsing', 'loc': 'body.temperature', 'msg': 'Input should be a valid number, unable to parse "
     "string as a number', 'input': 'hot'}")),
    ({"top_k": 1.5}, "body.top_k",
     ("{'type': 'int_from_float', 'loc': 'body.top_k', 'msg': 'Input should be a valid integer, got a number with a "
     "fractional part', 'input': '1.5'}")),
    ({"seed": 2**64}, "body.seed",
     ("{'type': 'less_than_equal', 'loc': 'body.seed', 'msg': 'Input should be less than or equal to "
     "9223372036854775807', 'input': '18446744073709551616', 'ctx': {'le': 9223372036854775807}}")),
    ({"stop_token_ids": ["x"]}, "body.stop_token_ids.0",
     ("{'type': 'int_parsing', 'loc': 'body.stop_token_ids.0', 'msg': 'Input should be a valid integer, unable to parse "
     "string as an integer', 'input': 'x'}")),
    ({"messages": "hi"}, "body.messages",
     "{'type': 'list_type', 'loc': 'body.messages', 'msg': 'Input should be a valid list', 'input': 'hi'}"),
    ({"logprobs": 3}, "body.logprobs",
     ("{'type': 'bool_parsing', 'loc': 'body.logprobs', 'msg': 'Input should be a valid boolean, unable to interpret "
     "input', 'input': '3'}")),
    ({"chat_template_kwargs": "x"}, "body.chat_template_kwargs",
     ("{'type': 'dict_type', 'loc': 'body.chat_template_kwargs', 'msg': 'Input should be a valid dictionary', "
     "'input': 'x'}")),
    ({"stream_options": "x", "stream": True}, "body.stream_options",
     ("{'type': 'model_attributes_type', 'loc': 'body.stream_options', 'msg': 'Input should be a valid dictionary or object to "
     "extract fields from', 'input': 'x'}")),
    ({"tools": [{"type": "web", "function": {"name": "f"}}]}, "body.tools.0.type",
     ("{'type': 'literal_error', 'loc': 'body.tools.0.type', 'msg': \"Input should be 'function'\", 'input': 'web', "
     "'ctx': {'expected': \"'function'\"}}")),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "param", "line"), WRONG)
def test_a_wrong_type_is_told_in_the_words_of_the_schema(
    serving: Serving, fields: dict[str, Any], param: str, line: str
) -> None:
    error = refusal(chat, serving, fields)
    assert (error.status, error.kind, error.param) == (400, "Bad Request", param)
    assert error.message == f"1 validation error:\n  {line}"


def test_all_errors_of_a_body_are_listed_up_to_ten_and_the_first_gives_the_field(serving: Serving) -> None:
    error = refusal(chat, serving, {"stop": ["a", 5]})
    assert error.message.splitlines()[0] == "2 validation errors:"
    assert error.param == "body.stop"
    error = refusal(chat, serving, {"stop_token_ids": ["x"] * 50})
    assert error.message.splitlines()[0] == "50 validation errors:"
    assert len(error.message.splitlines()) == 12
    assert error.message.endswith("...and 40 more errors")


def test_what_was_sent_is_shown_shortened(serving: Serving) -> None:
    error = refusal(chat, serving, {"seed": "s" * 5000})
    assert "s" * 200 + "..." in error.message
    assert len(error.message) < 600
    assert "<list of 3 items>" in refusal(chat, serving, {"seed": [1, 2, 3]}).message
    assert "<dict of 1 items>" in refusal(chat, serving, {"seed": {"a": 1}}).message


MESSAGES: list[tuple[list[Any], str]] = [
    (["hi"], "body.messages.0.ChatCompletionDeveloperMessageParam"),
    ([{"content": "x"}], "body.messages.0.ChatCompletionDeveloperMessageParam.role"),
    ([{"role": "user", "content": "ok"}, {"role": "user", "content": 5}],
     "body.messages.1.ChatCompletionDeveloperMessageParam.content"),
    ([{"role": "assistant", "content": "x", "tool_calls": "f"}], "body.0.ChatCompletionMessageFunctionToolCallParam"),
]  # fmt: skip


@pytest.mark.parametrize(("messages", "param"), MESSAGES)
def test_a_wrong_message_is_told_by_its_place(serving: Serving, messages: list[Any], param: str) -> None:
    error = refusal(chat, serving, {"messages": messages})
    assert (error.status, error.kind, error.param) == (400, "Bad Request", param)


LAX: list[tuple[str, Any, str, Any]] = [
    ("max_tokens", "5", "max_tokens", 5),
    ("max_tokens", 5.0, "max_tokens", 5),
    ("n", True, "n", 1),
    ("stream", "yes", "stream", True),
    ("stream", 1, "stream", True),
    ("stream", None, "stream", False),
    ("skip_special_tokens", "no", "skip_special_tokens", False),
    ("seed", "7", "seed", 7),
]


@pytest.mark.parametrize(("field", "value", "attribute", "meant"), LAX)
def test_numbers_and_switches_may_be_spelled_as_text(
    serving: Serving, field: str, value: Any, attribute: str, meant: Any
) -> None:
    call = chat(serving, {field: value})
    assert getattr(call.prompts[0] if attribute == "max_tokens" else call, attribute) == meant


def test_unknown_fields_are_ignored_everywhere(serving: Serving) -> None:
    messages = [{"role": "user", "content": "Hi", "id": 1, "opts": {"a": []}, "name": "ann"}]
    fields = {"foo": 1, "user": "u", "store": True, "metadata": {"a": "b"}, "modalities": []}
    assert chat(serving, {"messages": messages, **fields}).prompts == chat(serving, {}).prompts
    assert completion(serving, {"foo": 1, "service_tier": "auto"}).prompts == completion(serving, {}).prompts


def test_completion_prompts_of_mixed_types_list_every_reading(serving: Serving) -> None:
    error = refusal(completion, serving, {"prompt": ["a", [1]]})
    assert error.param == "body.prompt.0"
    assert error.message.startswith("5 validation errors:")
