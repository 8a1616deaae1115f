"""Answers written in every parser's format, with what they say."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from fastfront.openai.tools.base import ToolParser, Tools
from fastfront.openai.tools.deltas import Delta, Message, joined
from fastfront.openai.tools.forced import RequiredParser
from fastfront.openai.tools.registry import TOOL_PARSERS

TOOLS: Tools = {
    "get_weather": {
        "city": {"type": "string"}, "days": {"type": "integer"}, "metric": {"type": "boolean"},
        "opts": {"type": "object"}, "tags": {"type": "array", "items": {"type": "string"}},
    },
    "now": {},
}  # fmt: skip
Arguments = dict[str, Any]
Call = tuple[str, Arguments]


few = settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])      # for each of many parsers


def numbered(name: str, index: int) -> str:
    return f"call-{index}"


@dataclass(frozen=True)
class Format:
    """A format: its parser, how calls are written, and how the text before them may look."""

    parser: type[ToolParser]
    write: Callable[[Sequence[Call]], str]
    tools: Tools = field(default_factory=dict)
    has_text: bool = True          # text may stand before calls
    is_marked: bool = False        # `<` begins markers also within arguments
    drops_blank: bool = False


def hermes(calls: Sequence[Call]) -> str:
    return "\n".join(f'<tool_call>\n{json.dumps({"name": name, "arguments": args})}\n</tool_call>' for name, args in calls)


def plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def qwen3_coder(calls: Sequence[Call]) -> str:
    def written(name: str, args: Arguments) -> str:
        values = "".join(f"<parameter={key}>\n{plain(value)}\n</parameter>\n" for key, value in args.items())
        return f"<tool_call>\n<function={name}>\n{values}</function>\n</tool_call>"

    return "\n".join(written(*call) for call in calls)


def glm45(calls: Sequence[Call]) -> str:
    def written(name: str, args: Arguments) -> str:
        pairs = (f"<arg_key>{key}</arg_key>\n<arg_value>{plain(value)}</arg_value>\n" for key, value in args.items())
        return f"<tool_call>{name}\n{''.join(pairs)}</tool_call>"

    return "\n".join(written(*call) for call in calls)


def kimi_k2(calls: Sequence[Call]) -> str:
    inner = "".join(
        f"<|tool_call_begin|>functions.{name}:{index}<|tool_call_argument_begin|>{json.dumps(args)}<|tool_call_end|>"
        for index, (name, args) in enumerate(calls)
    )
    return f"<|tool_calls_section_begin|>{inner}<|tool_calls_section_end|>"


def deepseek_v3(calls: Sequence[Call]) -> str:
    inner = "".join(
        f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{json.dumps(args)}\n```<｜tool▁call▁end｜>"
        for name, args in calls
    )
    return f"<｜tool▁calls▁begin｜>{inner}<｜tool▁calls▁end｜>"


def deepseek_v31(calls: Sequence[Call]) -> str:
    inner = "".join(
        f"<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{json.dumps(args)}<｜tool▁call▁end｜>" for name, args in calls
    )
    return f"<｜tool▁calls▁begin｜>{inner}<｜tool▁calls▁end｜>"


def granite(calls: Sequence[Call]) -> str:
    return "<|tool_call|>" + json.dumps([{"name": name, "arguments": args} for name, args in calls])


def phi4_mini(calls: Sequence[Call]) -> str:
    return "functools" + json.dumps([{"name": name, "arguments": args} for name, args in calls])


def mistral(calls: Sequence[Call]) -> str:
    return "".join(f"[TOOL_CALLS]{name}[ARGS]{json.dumps(args)}" for name, args in calls)


def mistral_short(calls: Sequence[Call]) -> str:
    return "".join(f"[TOOL_CALLS]{name}{json.dumps(args)}" for name, args in calls)


def mistral_array(calls: Sequence[Call]) -> str:
    return "[TOOL_CALLS] " + json.dumps([{"name": name, "arguments": args} for name, args in calls])


def llama3_json(calls: Sequence[Call]) -> str:
    return "; ".join(json.dumps({"name": name, "parameters": args}) for name, args in calls)


def required(calls: Sequence[Call]) -> str:
    return json.dumps([{"name": name, "parameters": args} for name, args in calls])


def pythonic(calls: Sequence[Call]) -> str:
    written = (f"{name}({', '.join(f'{key}={value!r}' for key, value in args.items())})" for name, args in calls)
    return f"[{', '.join(written)}]"


def llama4_pythonic(calls: Sequence[Call]) -> str:
    return f"<|python_start|>{pythonic(calls)}<|python_end|>"


def gemma_value(value: Any) -> str:
    if isinstance(value, str):
        return f'<|"|>{value}<|"|>'
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{gemma_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(gemma_value, value)) + "]"
    return json.dumps(value)


def gemma4(calls: Sequence[Call]) -> str:
    return "".join(f"<|tool_call>call:{name}{gemma_value(args)}<tool_call|>" for name, args in calls)


def harmony(calls: Sequence[Call]) -> str:
    return "<|start|>assistant".join(
        f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{json.dumps(args)}<|call|>"
        for name, args in calls
    )


FORMATS = {
    "hermes": Format(TOOL_PARSERS["hermes"], hermes),
    "granite4": Format(TOOL_PARSERS["granite4"], hermes),
    "qwen3_coder": Format(TOOL_PARSERS["qwen3_coder"], qwen3_coder, TOOLS, is_marked=True, drops_blank=True),
    "glm45": Format(TOOL_PARSERS["glm45"], glm45, TOOLS, is_marked=True, drops_blank=True),
    "kimi_k2": Format(TOOL_PARSERS["kimi_k2"], kimi_k2, is_marked=True, drops_blank=True),
    "deepseek_v3": Format(TOOL_PARSERS["deepseek_v3"], deepseek_v3, is_marked=True),
    "deepseek_v31": Format(TOOL_PARSERS["deepseek_v31"], deepseek_v31, is_marked=True),
    "granite": Format(TOOL_PARSERS["granite"], granite, drops_blank=True),
    "phi4_mini_json": Format(TOOL_PARSERS["phi4_mini_json"], phi4_mini),
    "mistral": Format(TOOL_PARSERS["mistral"], mistral, drops_blank=True),
    "mistral short": Format(TOOL_PARSERS["mistral"], mistral_short, drops_blank=True),
    "mistral array": Format(TOOL_PARSERS["mistral"], mistral_array, drops_blank=True),
    "llama3_json": Format(TOOL_PARSERS["llama3_json"], llama3_json, has_text=False),
    "pythonic": Format(TOOL_PARSERS["pythonic"], pythonic, has_text=False),
    "llama4_pythonic": Format(TOOL_PARSERS["llama4_pythonic"], llama4_pythonic, has_text=False),
    "gemma4": Format(TOOL_PARSERS["gemma4"], gemma4, TOOLS, is_marked=True, drops_blank=True),
    "openai": Format(TOOL_PARSERS["openai"], harmony, has_text=False, is_marked=True),
    "required": Format(RequiredParser, required, has_text=False),
}
# Pieces that all formats are made of: joined at random they are answers that went wrong.
PIECES = [
    "<tool_call>", "</tool_call>", "<|tool_call|>", "<function=", "</function>", "<parameter=", "</parameter>", "<arg_key>",
    "</arg_key>", "<arg_value>", "</arg_value>", "<|tool_calls_section_begin|>", "<|tool_call_begin|>", "functions.f:0",
    "<|tool_call_argument_begin|>", "<|tool_call_end|>", "<|tool_calls_section_end|>", "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>", "function", "<｜tool▁sep｜>", "\n```json\n", "\n```", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>",
    "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "functools[", "<|python_tag|>", "<|python_start|>", "<|python_end|>", "<|tool_call>",
    "<tool_call|>", '<|"|>', "call:", "<|channel|>", "analysis", "final", "commentary to=functions.f", "<|message|>", "<|end|>",
    "<|start|>assistant", "<|call|>", "</think>", '{"name": "f", "arguments": {"a": 1}}', '{"name": "g"', '"parameters": ',
    '"arguments": ', "[", "]", "{", "}", "(", ")", '"', "'", "\\", "\\n", "\\u00e9", "\\ud83d", ",", ":", "=", ">", " ", "\n",
    "f", "get_weather", "city", "days", "3", "1.50", "-", "true", "None", "x", "é",
]  # fmt: skip


_ODD = "aZ0 _\"'\\/{}[](),:=-.>|\n\t\r\x00\x1f\x7fé\u2028\ufffdあ😀"


def texts(is_marked: bool = False) -> st.SearchStrategy[str]:
    """Texts without markers; with `is_marked` without what could begin one."""
    odd = st.text(_ODD if is_marked else _ODD + "<", max_size=12)
    if is_marked:
        return odd
    return st.one_of(odd, st.sampled_from(["</tool_call>", '{"a": "}"}', "[TOOL_CALLS]", "\\", '"', "'", "é\u2028"]))


def values(is_marked: bool) -> st.SearchStrategy[Any]:
    """Any JSON value that Python writes the same way."""
    scalars = st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), texts(is_marked)
    )
    return st.recursive(
        scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts(is_marked), inner, max_size=3), max_leaves=6
    )


def calls_of(form: Format) -> st.SearchStrategy[list[Call]]:
    """Lists of calls; where values are plain text they are of the types that TOOLS give them."""
    word = texts(form.is_marked)
    simple = st.text("abc xyz-é", max_size=8).map(str.strip).filter(lambda text: text not in ("", "-"))
    typed = st.fixed_dictionaries(
        {},
        optional={
            "city": word,
            "days": st.integers(-(10**6), 10**6),
            "metric": st.booleans(),
            "opts": st.dictionaries(st.text("abc", min_size=1), simple, max_size=3),
            "tags": st.lists(simple, max_size=3),
        },
    )
    free = st.dictionaries(st.sampled_from(["city", "a", "b_2", "from"]), values(form.is_marked), max_size=4)
    weather = st.tuples(st.just("get_weather"), typed if form.tools else free)
    return st.lists(weather | st.just(("now", {})), min_size=1, max_size=3)


def cut_up(text: str, sizes: Sequence[int]) -> list[str]:
    """The text in pieces of these sizes, over and over."""
    pieces, at = [], 0
    for size in itertools.cycle(sizes):
        if at >= len(text):
            return pieces
        pieces.append(text[at : at + size])
        at += size
    raise AssertionError("no sizes")


SIZES = st.lists(st.integers(1, 12), min_size=1, max_size=5)


def streamed(parser: ToolParser, pieces: Sequence[str], cut: bool = False) -> Message:
    """What a client puts together from the deltas of a text in pieces."""
    deltas: list[Delta] = []
    for piece in pieces:
        deltas += parser.feed(piece)
    return joined([*deltas, *parser.finish(cut)])
