"""What a tool choice asks of the output, as data: JSON schemas, and structural tags of the parsers' own formats.

Structural tags are xgrammar's: {"type": "structural_tag", "format": ...}.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fastfront.errors import bad_value

Json = dict[str, Any]
Function = Mapping[str, Any]       # of a tool: name, description, parameters, strict
_ANY_OBJECT: Mapping[str, Any] = {"type": "object", "properties": {}}
_THINK = ["<think>", "</think>"]
_GLM_MARKERS = ["<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"]


def required_schema(functions: Sequence[Function], parallel: bool = True) -> Json:
    """The schema of `[{"name": ..., "parameters": ...}, ...]`: at least one call, at most one unless `parallel`.

    Definitions of all tools come together; raises ApiError if two of one name differ.
    """
    definitions: Json = {}
    items = []
    for function in functions:
        parameters = dict(function.get("parameters") or _ANY_OBJECT)
        for name, definition in _definitions(function, parameters.pop("$defs", None)).items():
            if definitions.setdefault(name, definition) != definition:
                raise bad_value(f"Tool definition '{name}' has multiple schemas, which is not supported.", "tools")
        items.append({
            "properties": {"name": {"type": "string", "enum": [function["name"]]}, "parameters": parameters},
            "required": ["name", "parameters"],
        })  # fmt: skip
    schema: Json = {"type": "array", "minItems": 1, "items": {"type": "object", "anyOf": items}}
    if not parallel:
        schema["maxItems"] = 1
    if definitions:
        schema["$defs"] = definitions
    return schema


def named_schema(function: Function) -> Json:
    """The schema of one function's arguments."""
    return dict(function.get("parameters") or _ANY_OBJECT)


def _definitions(function: Function, found: object) -> Mapping[str, Any]:
    if found is None:
        return {}
    if isinstance(found, Mapping):
        return found
    kind = type(found).__name__
    raise bad_value(f"`$defs` in the parameters of tool '{function['name']}' must be an object, got {kind}.", "tools")


def structural_tag(model: str, functions: Sequence[Function], choice: str, single: bool) -> str | None:
    """The tag of a format, as JSON text; None if there is none.

    `choice` is "auto" (calls may come in any text), "required" or "forced" (one call of the only function given). Only
    functions that are `strict` hold their arguments to the schema. With `single` there is no second call.
    """
    build = _BUILDERS.get(model)
    if build is None:
        return None
    return json.dumps({"type": "structural_tag", "format": build(functions, choice, single)}, ensure_ascii=False)


def _schema(function: Function, style: str = "json") -> Json:
    """What the arguments are held to; of a function that is not strict only their form."""
    parameters = function.get("parameters")
    schema = parameters if function.get("strict") and parameters is not None else True
    return {"type": "json_schema", "json_schema": schema, "style": style}


def _text(value: str) -> Json:
    return {"type": "const_string", "value": value}


def _sequence(*elements: Json) -> Json:
    return {"type": "sequence", "elements": list(elements)}


def _tag(begin: str, content: Json, end: str | list[str]) -> Json:
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def _listed(tags: list[Json], separator: str, single: bool) -> Json:
    return {
        "type": "tags_with_separator", "tags": tags, "separator": separator, "at_least_one": True,
        "stop_after_first": single,
    }  # fmt: skip


def _triggered(trigger: str, tags: list[Json], choice: str, single: bool, excludes: Sequence[str] = ()) -> Json:
    return {
        "type": "triggered_tags", "triggers": [trigger], "tags": tags, "at_least_one": choice != "auto",
        "stop_after_first": single, "excludes": list(excludes),
    }  # fmt: skip


def _hermes(functions: Sequence[Function], choice: str, single: bool) -> Json:
    tags = [
        _tag(f'{begin}{{"name": "{function["name"]}", "arguments": ', _schema(function), end)
        for function in functions
        for begin, end in (("<tool_call>\n", "}\n</tool_call>"), ("<tool_call>", "}</tool_call>"))
    ]
    if choice == "auto":
        return _triggered("<tool_call>", tags, choice, single)
    return _listed(tags, "", single or choice == "forced")


def _llama(functions: Sequence[Function], choice: str, single: bool) -> Json:
    tags = [
        _tag(f'{{"name": "{function["name"]}", "parameters": ', _schema(function), "}") for function in functions
    ]
    return tags[0] if choice == "forced" else _triggered('{"name": ', tags, choice, single, _THINK)


def _kimi(functions: Sequence[Function], choice: str, single: bool) -> Json:
    begin, end = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
    tags = [
        _tag(
            f"<|tool_call_begin|>functions.{function['name']}:",
            _sequence({"type": "regex", "pattern": r"\d+"}, _text("<|tool_call_argument_begin|>"), _schema(function)),
            "<|tool_call_end|>",
        )
        for function in functions
    ]
    if choice == "auto":
        section = _tag(begin, _listed(tags, "", single), end)
        return _triggered(begin, [section], choice, single, [*_THINK, "<|tool_call_begin|>"])
    inner = tags[0] if choice == "forced" else _listed(tags, "", single)
    return _sequence(_text(begin), inner, _text(end))


def _deepseek(functions: Sequence[Function], choice: str, single: bool, fenced: bool) -> Json:
    begin, end = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
    before, after, separator = ("\n```json\n", "\n```", "\n") if fenced else ("<｜tool▁sep｜>", "", "")
    kind = "function<｜tool▁sep｜>" if fenced else ""
    tags = [
        _tag(
            f"<｜tool▁call▁begin｜>{kind}{function['name']}{before}", _schema(function), f"{after}<｜tool▁call▁end｜>"
        )
        for function in functions
    ]
    section = _tag(begin, _listed(tags, separator, single or choice == "forced"), end)
    return _triggered(begin, [section], choice, single, _THINK) if choice == "auto" else section


def _qwen3_coder(functions: Sequence[Function], choice: str, single: bool) -> Json:
    tags = [
        _tag(
            f"<tool_call>\n<function={function['name']}>\n", _schema(function, "qwen_xml"), "\n</function>\n</tool_call>"
        )
        for function in functions
    ]
    return tags[0] if choice == "forced" else _triggered("<tool_call>\n<function=", tags, choice, single, _THINK)


def _glm(functions: Sequence[Function], choice: str, single: bool) -> Json:
    tags = [
        _tag(f"<tool_call>{function['name']}", _schema(function, "glm_xml"), "</tool_call>") for function in functions
    ]
    if choice == "auto":
        excludes = [*_THINK, *(marker for marker in _GLM_MARKERS if marker != "<tool_call>")]
        return _triggered("<tool_call>", tags, choice, single, excludes)
    return _listed(tags, "", single or choice == "forced")


def _harmony(functions: Sequence[Function], choice: str, single: bool) -> Json:
    channels = ["<|channel|>commentary", "<|channel|>analysis", "<|channel|>final"]
    any_text: Json = {"type": "any_text"}
    ends = ["<|end|>", ""]             # "": the tokens that end the output
    tags = [
        _tag(f"{begin}{form}<|message|>", _schema(function), ends)
        for function in functions
        for channel in channels
        for begin in (f" to=functions.{function['name']}{channel}", f"{channel} to=functions.{function['name']}")
        for form in (" json", " <|constrain|>json")
    ]
    if choice == "auto":
        forms = (" json", " <|constrain|>json", "")
        tags += [_tag(f"<|channel|>final{form}<|message|>", any_text, ends) for form in forms]
    before = [
        {
            "type": "optional",
            "content": _sequence(
                _tag(f"<|channel|>{channel}<|message|>", any_text, "<|end|>"), _text("<|start|>assistant")
            ),
        }
        for channel in ("analysis", "commentary")
    ]
    return _sequence(*before, {"type": "or", "elements": tags})


_Builder = Callable[[Sequence[Function], str, bool], Json]
_BUILDERS: Mapping[str, _Builder] = {
    "hermes": _hermes,
    "llama": _llama,
    "kimi": _kimi,
    "deepseek_r1": lambda functions, choice, single: _deepseek(functions, choice, single, fenced=True),
    "deepseek_v3_1": lambda functions, choice, single: _deepseek(functions, choice, single, fenced=False),
    "qwen_3_coder": _qwen3_coder,
    "glm_4_7": _glm,
    "harmony": _harmony,
}
