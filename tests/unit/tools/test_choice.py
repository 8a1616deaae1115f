"""Tool choices: what they ask of the output, and how the answers are read."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from fastfront.errors import ApiError
from fastfront.openai.tools.choice import Parsers, Plan
from fastfront.openai.tools.constraints import required_schema
from fastfront.openai.tools.deltas import CallArguments, CallStart, Delta, Message, joined
from fastfront.openai.tools.registry import REASONING_PARSERS, TOOL_PARSERS

CITY = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOLS = [
    {"type": "function", "function": {"name": "f", "parameters": CITY}},
    {"type": "function", "function": {"name": "g"}},
]
NAMED = {"type": "function", "function": {"name": "f"}}
CALL = '<tool_call>{"name": "f", "arguments": {"city": "Rome"}}</tool_call>'


def plan_of(parser: str | None = "hermes", reasoning: str | None = None, stream: bool = False, **body: Any) -> Plan:
    parsers = Parsers(TOOL_PARSERS[parser] if parser else None, REASONING_PARSERS[reasoning] if reasoning else None)
    plan = parsers.plan({"tools": TOOLS, **body}, stream=stream)
    assert plan is not None
    return plan


def stream(plan: Plan, text: str, prompt: str = "") -> Message:
    parser = plan.parser(plan.start(prompt))
    deltas: list[Delta] = []
    for char in text:
        deltas += parser.feed(char)
    message = joined([*deltas, *parser.finish()])
    assert parser.called == bool(message.calls)
    return message


def both(plan: Plan, text: str, prompt: str = "") -> list[Message]:
    return [stream(plan, text, prompt), plan.parse(text, plan.start(prompt))]


MISSING = [
    ("auto", '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'),
    ("required", 'tool_choice="required" requires --tool-call-parser to be set'),
    (NAMED, 'tool_choice=function "f" requires --tool-call-parser to be set'),
]


@pytest.mark.parametrize(("choice", "message"), MISSING)
def test_a_choice_needs_a_parser(choice: Any, message: str) -> None:
    with pytest.raises(ApiError) as caught:
        Parsers().plan({"tools": TOOLS, "tool_choice": choice})
    assert (caught.value.message, caught.value.status, caught.value.param) == (message, 400, None)


def test_without_parsers_answers_are_text() -> None:
    assert Parsers().plan({"tools": TOOLS, "tool_choice": "none"}) is None
    assert Parsers().plan({"tools": TOOLS, "tool_choice": None}) is None
    with pytest.raises(ApiError, match="auto"):
        Parsers().plan({"tools": TOOLS})
    assert Parsers().plan({}) is None


FINISH: list[tuple[Any, str, bool, str]] = [
    ("auto", "stop", True, "tool_calls"), ("required", "stop", True, "tool_calls"), (NAMED, "stop", True, "stop"),
    ("auto", "length", True, "length"), ("required", "stop", False, "stop"), ("auto", "abort", True, "abort"),
]  # fmt: skip


@pytest.mark.parametrize(("choice", "reason", "called", "told"), FINISH)
def test_finish_reasons(choice: Any, reason: str, called: bool, told: str) -> None:
    assert plan_of(tool_choice=choice).finish_reason(reason, called) == told


@pytest.mark.parametrize("choice", ["auto", "required", NAMED])
def test_a_format_of_its_own_reads_forced_calls_too(choice: Any) -> None:
    for message in both(plan_of(tool_choice=choice), CALL):
        assert [(call.name, call.arguments) for call in message.calls] == [("f", '{"city": "Rome"}')]


def test_required_as_json() -> None:
    plan = plan_of("pythonic", tool_choice="required")
    for message in both(plan, '[{"name": "f", "parameters": {"city": "Rome"}}, {"name": "g", "parameters": {}}]'):
        assert [(call.name, call.arguments) for call in message.calls] == [("f", '{"city": "Rome"}'), ("g", "{}")]
        assert message.content is None


def test_required_without_a_call_keeps_the_text() -> None:
    for message in both(plan_of("pythonic", tool_choice="required"), "Hello"):
        assert message == Message(content="Hello")


def test_required_arguments_are_an_object() -> None:
    plan = plan_of("pythonic", tool_choice="required")
    for message in both(plan, '[{"name": "f"}, {"name": "g", "arguments": {"a": 1}}]'):
        assert [(call.name, call.arguments) for call in message.calls] == [("f", "{}"), ("g", '{"a": 1}')]
    assert plan.parse('[{"name": "f", "parameters": null}]').calls[0].arguments == "{}"
    text = '[{"name": "f", "parameters": "x"}]'
    assert plan.parse(text) == Message(content=text)


def test_named_as_json() -> None:
    for arguments in ('{"city": "Rome"}', ' \n{"city": "Rome"} '):
        for message in both(plan_of("pythonic", tool_choice=NAMED), arguments):
            assert [(call.name, call.arguments) for call in message.calls] == [("f", arguments)]


@pytest.mark.parametrize(("name", "choice"), [("hermes", "required"), ("pythonic", "required"), ("pythonic", NAMED)])
def test_white_space_in_place_of_a_forced_call_is_nothing(name: str, choice: Any) -> None:
    assert plan_of(name, tool_choice=choice).parse("\n ") == Message()


def test_named_after_reasoning() -> None:
    plan = plan_of("pythonic", "deepseek_r1", tool_choice=NAMED)
    for message in both(plan, 'hm</think>{"city": "Rome"}'):
        assert (message.reasoning, message.calls[0].arguments) == ("hm", '{"city": "Rome"}')


def test_choice_none_leaves_text_or_takes_calls_out() -> None:
    for message in both(plan_of(tool_choice="none"), "a" + CALL):
        assert message == Message(content="a" + CALL)
    text = "a<tool_call><function=f></function></tool_call>"
    for message in both(plan_of("qwen3_coder", tool_choice="none"), text):
        assert message == Message(content="a")


def test_a_single_call() -> None:
    for message in both(plan_of(parallel_tool_calls=False), CALL + CALL):
        assert len(message.calls) == 1
    parser = plan_of(parallel_tool_calls=False).parser()
    indexes = {delta.index for delta in parser.feed(CALL + CALL) if isinstance(delta, CallStart | CallArguments)}
    assert indexes == {0}


def test_hidden_reasoning() -> None:
    for message in both(plan_of(None, "qwen3", tools=None, include_reasoning=False), "hm</think>x"):
        assert message == Message(content="x")


def test_a_prompt_that_closed_thinking() -> None:
    prompt = "<|im_start|>assistant\n<think>\n\n</think>\n\n"
    for is_stream in (True, False):
        plan = plan_of("hermes", "qwen3", stream=is_stream)
        message = stream(plan, CALL + CALL, prompt) if is_stream else plan.parse(CALL + CALL, plan.start(prompt))
        assert (message.reasoning, len(message.calls)) == (None, 2)
        assert plan.parse("Hi", plan.start(prompt)) == stream(plan, "Hi", prompt) == Message(content="Hi")


def test_harmony_reads_all_of_a_message() -> None:
    text = (
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=functions.f "
        '<|constrain|>json<|message|>{"city": "Rome"}'
    )
    for message in both(plan_of("openai", "openai_gptoss"), text):
        assert (message.reasoning, message.content) == ("hm", None)
        assert [(call.name, call.arguments) for call in message.calls] == [("f", '{"city": "Rome"}')]
    for message in both(plan_of(None, "openai_gptoss", tools=None), text):
        assert message == Message(reasoning="hm")


IDS = [("hermes", CALL, r"chatcmpl-tool-[0-9a-f]{16}"), ("mistral", "[TOOL_CALLS]f{}", "[A-Za-z0-9]{9}"),
       ("kimi_k2", "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:3<|tool_call_argument_begin|>{}<|tool_call_end|>",
        "functions.f:3"),
       ("kimi_k2", "<|tool_calls_section_begin|><|tool_call_begin|>f<|tool_call_argument_begin|>{}<|tool_call_end|>",
        "functions.f:2")]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "pattern"), IDS)
def test_ids(name: str, text: str, pattern: str) -> None:
    earlier = [{"role": "assistant", "tool_calls": [{}, {}]}, {"role": "user", "content": ""}]
    for message in both(plan_of(name, messages=earlier), text):
        assert re.fullmatch(pattern, message.calls[0].id)


SPECIAL: list[tuple[str | None, str | None, Any, bool]] = [
    ("hermes", None, "auto", True), ("hermes", None, "none", False), ("llama3_json", None, "auto", False),
    ("qwen3_coder", None, "none", True), ("hermes", "qwen3", "none", True), (None, "deepseek_r1", "none", False),
]  # fmt: skip


@pytest.mark.parametrize(("tools", "reasoning", "choice", "kept"), SPECIAL)
def test_special_tokens_that_parsers_need(tools: str | None, reasoning: str | None, choice: str, kept: bool) -> None:
    assert plan_of(tools, reasoning, tool_choice=choice).keeps_special_tokens is kept


def test_required_schema() -> None:
    assert plan_of("pythonic", tool_choice="required").constraint() == {
        "json": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "anyOf": [
                    {
                        "properties": {"name": {"type": "string", "enum": ["f"]}, "parameters": CITY},
                        "required": ["name", "parameters"],
                    },
                    {
                        "properties": {
                            "name": {"type": "string", "enum": ["g"]},
                            "parameters": {"type": "object", "properties": {}},
                        },
                        "required": ["name", "parameters"],
                    },
                ],
            },
        }
    }


def test_required_schema_of_one_call_with_definitions() -> None:
    parameters = {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "string"}}}
    schema = required_schema([{"name": "f", "parameters": parameters}], parallel=False)
    assert schema["maxItems"] == 1
    assert schema["$defs"] == {"A": {"type": "string"}}
    assert "$defs" not in schema["items"]["anyOf"][0]["properties"]["parameters"]
    assert "$defs" in parameters
    other = {"$defs": {"A": {"type": "integer"}}}
    with pytest.raises(ApiError, match="Tool definition 'A' has multiple schemas"):
        required_schema([{"name": "f", "parameters": parameters}, {"name": "g", "parameters": other}])
    with pytest.raises(ApiError, match="must be an object, got list"):
        required_schema([{"name": "f", "parameters": {"$defs": []}}])


def test_named_schema() -> None:
    assert plan_of("pythonic", tool_choice=NAMED).constraint() == {"json": CITY}
    assert plan_of("granite", tool_choice={"function": {"name": "g"}}).constraint() == {
        "json": {"type": "object", "properties": {}}
    }


def tag_of(plan: Plan) -> Any:
    constraint = plan.constraint()
    assert constraint is not None
    return json.loads(constraint["structural_tag"])["format"]


def test_calls_that_a_model_makes_of_itself_are_free() -> None:
    assert plan_of().constraint() is None
    assert plan_of("pythonic").constraint() is None
    assert plan_of(tool_choice="none").constraint() is None
    assert plan_of("mistral", tool_choice="required").constraint() is None


def test_calls_that_a_model_makes_of_itself_are_held() -> None:
    assert tag_of(plan_of("glm45"))["triggers"] == ["<tool_call>"]
    assert tag_of(plan_of(parallel_tool_calls=False))["stop_after_first"] is True
    strict = [{"type": "function", "function": {"name": "f", "parameters": CITY, "strict": True}}]
    tag = tag_of(plan_of(tools=strict))
    assert tag["at_least_one"] is False
    assert tag["tags"][0]["content"]["json_schema"] == CITY
    assert plan_of(tools=strict, response_format={"type": "json_object"}).constraint() is None


@pytest.mark.parametrize("level", ["function", "parameter"])
def test_the_server_can_hold_all_calls(level: Any) -> None:
    plan = Parsers(TOOL_PARSERS["hermes"], strict_level=level).plan({"tools": TOOLS})
    assert plan is not None
    schemas = [tag["content"]["json_schema"] for tag in tag_of(plan)["tags"]]
    assert schemas == ([True] * 4 if level == "function" else [CITY, CITY, True, True])


WITH_TAGS = sorted(name for name, parser in TOOL_PARSERS.items() if parser.structural_tag)


@pytest.mark.parametrize("name", WITH_TAGS)
def test_forced_calls_are_held_to_the_named_function(name: str) -> None:
    text = json.dumps(tag_of(plan_of(name, tool_choice=NAMED)), ensure_ascii=False)
    assert "g" not in {part[:1] for part in text.split("functions.")[1:]}
    assert '"enum"' not in text
    required = json.dumps(tag_of(plan_of(name, tool_choice="required")), ensure_ascii=False)
    assert len(required) > len(text)


def test_parallel_calls_in_small_pieces() -> None:
    text = '<tool_call>{"name": "f", "arguments": {"a":1}}</tool_call><tool_call>{"name": "g", "arguments": {"b":2}}</tool_call>'
    parser = plan_of().parser()
    deltas: list[Delta] = []
    for at in range(0, len(text), 3):
        deltas += parser.feed(text[at : at + 3])
    deltas += parser.finish()
    starts = [delta for delta in deltas if isinstance(delta, CallStart)]
    assert [(start.index, start.name) for start in starts] == [(0, "f"), (1, "g")]
    assert len({start.id for start in starts}) == 2
    assert [json.loads(call.arguments) for call in joined(deltas).calls] == [{"a": 1}, {"b": 2}]


CUT = [
    ("hermes", '<tool_call>{"name":"f","arguments":{"x":', '{"x":'),
    ("qwen3_coder", "<tool_call><function=f>", ""),
    ("qwen3_coder", "<tool_call><function=f><parameter=city>Ro", '{"city": "Ro'),
    ("glm45", "<tool_call>f<arg_key>city</arg_key><arg_value>Ro", '{"city": "Ro'),
    ("mistral", "[TOOL_CALLS]f[ARGS]", ""),
    ("granite", '<|tool_call|>[{"name": "f", ', ""),
    ("pythonic", "[f(city='Ro", '{"city": "Ro'),
]


@pytest.mark.parametrize(("name", "text", "arguments"), CUT)
def test_a_call_that_a_limit_cuts_is_not_completed(name: str, text: str, arguments: str) -> None:
    plan = plan_of(name)
    parser = plan.parser()
    message = joined([*parser.feed(text), *parser.finish(cut=True)])
    assert [(call.name, call.arguments) for call in message.calls] == [("f", arguments)]
    complete = plan.parse(text, cut=True)
    assert complete.content == text or [call.arguments for call in complete.calls] == [arguments]
    assert plan.finish_reason("length", parser.called) == "length"


def test_special_tokens_that_are_no_markers_are_no_text() -> None:
    text = "<|im_start|>Hm.<|eos|></think>One<|im_start|> two.<tool_call>" + CALL.removeprefix("<tool_call>") + "<|eos|>"
    special = ["<|im_start|>", "<|eos|>", "<tool_call>", "</think>", ""]
    for reads in ("qwen3", None):
        parsers = Parsers(TOOL_PARSERS["hermes"], REASONING_PARSERS[reads] if reads else None).dropping(special)
        plan = parsers.plan({"tools": TOOLS})
        assert plan is not None
        pieces = re.split(r"(<\|?[a-z_]+\|?>)", text)
        parser = plan.parser(plan.start(""))
        deltas = [delta for piece in pieces for delta in parser.feed(piece)]
        for message in (joined([*deltas, *parser.finish()]), plan.parse(text, plan.start(""))):
            assert [call.name for call in message.calls] == ["f"]
            assert message.reasoning == ("Hm." if reads else None)
            assert ("<|" in (message.content or "")) is (reads is None)


def test_mistrals_other_special_tokens_are_no_text() -> None:
    plan = Parsers(TOOL_PARSERS["mistral"]).dropping(["<s>", "[TOOL_CALLS]", "[ARGS]"]).plan({"tools": TOOLS})
    assert plan is not None
    pieces = ["<s>", "Sure.", "[TOOL_CALLS]", "f", "[ARGS]", "{}"]
    parser = plan.parser()
    deltas = [delta for piece in pieces for delta in parser.feed(piece)]
    for message in (joined([*deltas, *parser.finish()]), plan.parse("".join(pieces))):
        assert (message.content, [call.name for call in message.calls]) == ("Sure.", ["f"])


def test_an_unknown_parsers_special_tokens_are_left_alone() -> None:
    assert Parsers(TOOL_PARSERS["pythonic"], REASONING_PARSERS["qwen3"]).dropping(["<|eos|>"]).dropped is None
    assert Parsers(TOOL_PARSERS["glm45"]).dropping(["<tool_call>"]).dropped is None


def test_calls_are_read_of_a_choice_of_null_without_tools() -> None:
    assert Parsers(TOOL_PARSERS["hermes"]).plan({"tool_choice": None}).choice == "auto"
    for plan in (plan_of(tools=None, tool_choice=None), plan_of("glm45", tools=[], tool_choice=None)):
        assert plan.constraint() is None
    for message in both(plan_of(tools=None, tool_choice=None), CALL):
        assert [call.name for call in message.calls] == ["f"]


@pytest.mark.parametrize("parser", ["glm45", "kimi_k2"])
def test_the_end_of_reasoning_is_text_of_a_model_that_does_not_think(parser: str) -> None:
    parsers = Parsers(TOOL_PARSERS[parser], REASONING_PARSERS[parser])
    for off in (True, False):
        plan = parsers.plan({"tools": TOOLS}, {"enable_thinking": not off})
        assert plan is not None
        for message in both(plan, "<think>Hm.</think>One</think> two."):
            assert message.content == ("<think>Hm.</think>One</think> two." if off else "One two.")


@pytest.mark.parametrize("reasoning", ["qwen3", "kimi_k2", "glm45", "nemotron_v3"])
def test_a_second_end_of_reasoning_is_no_text(reasoning: str) -> None:
    for parser in ("hermes", None):
        for message in both(plan_of(parser, reasoning, tools=None), "<think>Hm.</think>One</think> two."):
            assert (message.reasoning, message.content) == ("Hm.", "One two.")


def test_engines_are_told_the_templates_switches() -> None:
    parsers = Parsers(reasoning=REASONING_PARSERS["qwen3"])
    plan = parsers.plan({}, {"enable_thinking": False, "effort": "low", "documents": [{}], "huge": 10**30})
    assert plan is not None
    assert plan.engine_kwargs() == {"chat_template_kwargs": {"enable_thinking": False, "effort": "low"}}
    assert plan_of("glm45").engine_kwargs() is None


def test_special_tokens_are_text_where_no_reasoning_is_read() -> None:
    parsers = Parsers(TOOL_PARSERS["hermes"], REASONING_PARSERS["qwen3"]).dropping(["<|im_start|>"])
    off, on = (parsers.plan({"tools": TOOLS}, {"enable_thinking": thinks}) for thinks in (False, True))
    assert off is not None
    assert on is not None
    assert off.parse("<|im_start|>Hi", off.start("")).content == "<|im_start|>Hi"
    assert on.parse("<|im_start|>Hi", on.start("")).reasoning == "Hi"
