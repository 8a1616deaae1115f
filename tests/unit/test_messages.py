from __future__ import annotations

from typing import Any

import pytest

from fastfront.errors import ApiError
from fastfront.openai.message_types import checked_messages
from fastfront.render.messages import conversation_of, merge_developer

TEXT = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
FUNCTION = {"name": "f", "arguments": '{"x": 1}'}

AS_STRING: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"role": "user", "content": "a"}, {"role": "user", "content": "a"}),
    ({"role": "user", "content": TEXT}, {"role": "user", "content": "a\nb"}),
    ({"role": "user", "content": ["a", "", "b"]}, {"role": "user", "content": "a\nb"}),
    ({"role": "user"}, {"role": "user", "content": ""}),
    ({"role": "user", "content": []}, {"role": "user", "content": ""}),
    ({"role": "alien", "content": "a", "id": 5}, {"role": "alien", "content": "a"}),
    ({"role": "user", "name": "ann", "content": "a"}, {"role": "user", "content": "a", "name": "ann"}),
    ({"role": "user", "name": 5, "content": "a"}, {"role": "user", "content": "a"}),
    ({"role": "assistant", "content": None}, {"role": "assistant", "content": ""}),
    ({"role": "assistant", "content": "a", "tool_calls": []}, {"role": "assistant", "content": "a"}),
    ({"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}, {"role": "assistant", "content": "no"}),
    ({"role": "tool", "content": TEXT, "tool_call_id": "c1"}, {"role": "tool", "content": "a\nb", "tool_call_id": "c1"}),
    ({"role": "system", "content": "x-anthropic-billing-header: 1\nBe short."}, {"role": "system", "content": "Be short."}),
    ({"role": "system", "content": "x-anthropic-billing-header: 1"}, {"role": "system", "content": ""}),
    ({"role": "user", "content": "x-anthropic-billing-header: 1"}, {"role": "user", "content": "x-anthropic-billing-header: 1"}),
]  # fmt: skip


@pytest.mark.parametrize(("sent", "shown"), AS_STRING)
def test_content_as_one_string(sent: dict[str, Any], shown: dict[str, Any]) -> None:
    assert conversation_of([sent], False, "m") == [shown]


AS_PARTS: list[tuple[dict[str, Any], Any]] = [
    ({"role": "user", "content": "a"}, [{"type": "text", "text": "a"}]),
    ({"role": "user", "content": TEXT}, TEXT),
    ({"role": "user", "content": ["a"]}, [{"type": "text", "text": "a"}]),
    ({"role": "user", "content": [{"type": "input_text", "text": "a", "cache_control": {"x": 1}}]},
     [{"type": "text", "text": "a", "cache_control": {"x": 1}}]),
    ({"role": "assistant", "content": None}, []),
    ({"role": "tool", "content": TEXT}, "a\nb"),
    ({"role": "system", "content": [{"type": "text", "text": "x-anthropic-billing-header: 1\nBe short."}]},
     [{"type": "text", "text": "Be short."}]),
]  # fmt: skip


@pytest.mark.parametrize(("sent", "content"), AS_PARTS)
def test_content_as_parts(sent: dict[str, Any], content: Any) -> None:
    assert conversation_of([sent], True, "m")[0]["content"] == content


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [('{"x": 1}', {"x": 1}), ({"x": 1}, {"x": 1}), ("", {}), (None, {}), ("{oops", {}), ("[1]", {}), ("5", {}), ([1], {}),
     ("[" * 100_000, {})],
)  # fmt: skip
def test_arguments_of_calls_are_objects(arguments: Any, meant: dict[str, Any]) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    shown = conversation_of([{"role": "assistant", "content": None, "tool_calls": [call]}], False, "m")[0]
    assert shown["tool_calls"] == [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": meant}}]
    assert call["function"] == {"name": "f", "arguments": arguments}


@pytest.mark.parametrize("calls", [["f"], [{"type": "web", "function": FUNCTION}], [{"type": "function"}]])
def test_calls_of_another_kind_are_refused(calls: list[Any]) -> None:
    with pytest.raises(ApiError, match="tool_calls") as caught:
        conversation_of([{"role": "assistant", "content": None, "tool_calls": calls}], False, "m")
    assert caught.value.param == "tool_calls"


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_reasoning_is_shown_under_all_its_names(field: str) -> None:
    shown = conversation_of([{"role": "assistant", "content": "a", field: "why"}], False, "m")[0]
    assert [shown[name] for name in ("reasoning", "reasoning_content", "thinking")] == ["why"] * 3
    assert "reasoning" not in conversation_of([{"role": "user", "content": "a", field: "why"}], False, "m")[0]


@pytest.mark.parametrize("kind", ["image_url", "input_audio", "video_url", "image_pil"])
def test_media_are_refused_naming_the_model(kind: str) -> None:
    for part in ({"type": kind, kind: {"url": "data:,"}}, {kind: {"url": "data:,"}}):
        with pytest.raises(ApiError, match="m is not a multimodal model"):
            conversation_of([{"role": "user", "content": [part]}], False, "m")


@pytest.mark.parametrize("part", [{"type": "nope", "text": "x"}, {"type": 5}, {}, {"text": "x"}, {"type": "text", "text": 5}])
def test_other_parts_are_refused(part: dict[str, Any]) -> None:
    with pytest.raises(ApiError):
        conversation_of([{"role": "user", "content": [part]}], False, "m")


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({}, "ChatCompletionDeveloperMessageParam.content"),
        ({"role": 5, "content": "a"}, "ChatCompletionDeveloperMessageParam.role"),
        ({"role": "user", "content": None}, "ChatCompletionDeveloperMessageParam.content"),
        ({"role": "user", "content": 5}, "ChatCompletionDeveloperMessageParam.content"),
        ({"role": "user", "content": "a", "name": 5}, "ChatCompletionDeveloperMessageParam.role"),
        ("text", "ChatCompletionDeveloperMessageParam"),
    ],
)
def test_messages_without_a_shape(message: Any, param: str) -> None:
    with pytest.raises(ApiError) as caught:
        checked_messages([{"role": "user", "content": "a"}, message])
    assert (caught.value.kind, caught.value.param) == ("Bad Request", f"body.messages.1.{param}")


@pytest.mark.parametrize("content", [[5], ["a"], [{"text": "no type"}], [{"type": "input_text", "text": "a"}]])
def test_parts_of_content_are_looked_at_one_by_one(content: list[Any]) -> None:
    with pytest.raises(ApiError, match="ChatCompletionContentPartTextParam") as caught:
        checked_messages([{"role": "user", "content": content}])
    assert (caught.value.kind, caught.value.param) == ("BadRequestError", None)


@pytest.mark.parametrize("calls", ["x", [{}], [5], [{"id": "1", "type": "function", "function": {"name": "f"}}]])
def test_calls_without_a_shape(calls: Any) -> None:
    with pytest.raises(ApiError) as caught:
        checked_messages([{"role": "assistant", "tool_calls": calls}])
    assert caught.value.param is not None
    assert "ChatCompletionMessageFunctionToolCallParam" in caught.value.param


def test_parts_may_have_a_type_of_responses_beside_those_of_chats() -> None:
    text, given = {"type": "text", "text": "a"}, {"type": "input_text", "text": "b", "cache_control": {"type": "ephemeral"}}
    checked = checked_messages([{"role": "user", "content": [text, given]}])
    assert checked == [{"role": "user", "content": [text, given]}]
    assert conversation_of(checked, False, "m")[0]["content"] == "a\nb"


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"type": "image_url"}, "must have `image_url`"), ({"type": "input_image"}, "must have `image_url`"),
        ({"type": "image_embeds", "image_embeds": "AA=="}, "not multimodal"), ({"type": "prompt_embeds"}, "`data` field"),
        ({"type": "file", "file": {}}, "Unsupported chat content part type: 'file'"), ({"audio_url": "x"}, "m is not"),
    ],
)  # fmt: skip
def test_other_parts_are_refused_for_what_they_are(part: dict[str, Any], words: str) -> None:
    with pytest.raises(ApiError, match=words):
        conversation_of([{"role": "user", "content": [{"type": "text", "text": "x"}, part]}], True, "m")


def test_checked_messages_have_lists_and_what_templates_do_not_know_goes_no_further() -> None:
    part, call = {"type": "text", "text": "a"}, {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    chat = [
        {"role": "user", "content": [part], "extra": 1},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "assistant", "content": "a", "reasoning_content": "why"},
        {"role": "strange", "content": ["a", part]},
    ]
    assert checked_messages(chat) == [
        {"role": "user", "content": [part], "extra": 1},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "assistant", "content": "a", "reasoning": "why"},
        {"role": "strange", "content": ["a", part]},
    ]
    assert conversation_of(checked_messages(chat[:1]), True, "m") == [{"role": "user", "content": [part]}]
    plain = [{"role": "user", "content": "a", "name": "b"}]
    assert checked_messages(plain)[0] is plain[0]


def test_developers_join_the_system_message_at_the_front() -> None:
    chat = [
        {"role": "user", "content": "a"},
        {"role": "developer", "content": "one", "tools": []},
        {"role": "system", "content": "two"},
        {"role": "developer", "content": ""},
    ]
    assert merge_developer(chat) == [{"role": "system", "content": "one\n\ntwo"}, {"role": "user", "content": "a"}]
    assert merge_developer(chat[:1]) == chat[:1]
    parts = [{"role": "developer", "content": TEXT}, {"role": "system", "content": "c"}]
    assert merge_developer(parts) == [{"role": "system", "content": [*TEXT, {"type": "text", "text": "c"}]}]
