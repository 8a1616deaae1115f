"""Structural tags: text that may hold constrained parts, as xgrammar describes them; the older form with triggers too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from fastfront.openai.constraints.backends import xgrammar_takes
from fastfront.openai.constraints.errors import BadConstraint
from fastfront.openai.constraints.grammar import check_ebnf
from fastfront.openai.constraints.json_schema import check_json_schema, check_json_value
from fastfront.openai.constraints.regex import check_regex

# The formats of xgrammar 0.2 and the kinds of what they hold; names with a question mark may be missing.
_FORMATS: Mapping[str, Mapping[str, str]] = MappingProxyType({
    kind: MappingProxyType(dict(field.split(":") for field in fields.split()))
    for kind, fields in {
        "const_string": "value:text",
        "json_schema": "json_schema:schema style?:style any_order?:bool excludes?:texts",
        "qwen_xml_parameter": "json_schema:schema",
        "token": "token:token",
        "regex": "pattern:regex",
        "grammar": "grammar:grammar",
        "sequence": "elements:formats",
        "or": "elements:formats",
        "tag": "begin:begin content:format end:end",
        "triggered_tags": "triggers:triggers tags:tags at_least_one?:bool stop_after_first?:bool excludes?:texts",
        "token_triggered_tags":
            "trigger_tokens:tokens+ tags:tags exclude_tokens?:tokens at_least_one?:bool stop_after_first?:bool",
        "tags_with_separator": "tags:tags separator:text at_least_one?:bool stop_after_first?:bool",
        "optional": "content:format",
        "plus": "content:format",
        "star": "content:format",
        "repeat": "min:number max:number content:format",
        "dispatch": "rules:rules loop?:bool excludes?:texts",
        "token_dispatch": "rules:rules loop?:bool exclude_tokens?:tokens",
        "exclude_token": "exclude_tokens?:tokens",
        "any_tokens": "exclude_tokens?:tokens",
        "any_text": "excludes?:texts",
    }.items()
})  # fmt: skip

_STYLES = frozenset({
    "json", "qwen_xml", "minimax_xml", "minimax_m3_xml", "deepseek_xml", "glm_xml", "cohere_xml", "kimi_k3_xml",
    "deepseek_v4_1_xml",
})  # fmt: skip


def check_structural_tag(tag: object) -> None:
    """Raises BadConstraint unless `tag` (from JSON) can be a structural tag."""
    check_json_value(tag)
    if not isinstance(tag, Mapping):
        raise BadConstraint("it is no object")
    if "structures" in tag:
        _check_triggered(tag)
    elif "format" in tag:
        _check_format(tag["format"])
    else:
        raise BadConstraint("it has neither `format` nor `structures` and `triggers`")


def _check_triggered(tag: Mapping[str, Any]) -> None:
    structures, triggers = tag["structures"], tag.get("triggers")
    if not isinstance(structures, list) or not structures:
        raise BadConstraint("`structures` must be a list that is not empty")
    if not isinstance(triggers, list) or not triggers or not all(isinstance(t, str) and t for t in triggers):
        raise BadConstraint("`triggers` must be a list of texts")
    starts, lengths = frozenset(triggers), sorted({len(trigger) for trigger in triggers})
    for k, item in enumerate(structures):
        if not isinstance(item, Mapping):
            raise BadConstraint(f"structures.{k} is no object")
        begin = item.get("begin")
        if not isinstance(begin, str) or not isinstance(item.get("end"), str):
            raise BadConstraint(f"structures.{k}: `begin` and `end` must be texts")
        if not any(begin[:length] in starts for length in lengths):
            raise BadConstraint(f"structures.{k}: no trigger begins {begin[:100]!r}")
        if not isinstance(item.get("schema"), Mapping):
            raise BadConstraint(f"structures.{k} needs `schema`, an object")
        check_json_schema(item["schema"])


def _check_format(root: object) -> None:
    open_: list[object] = [root]
    while open_:
        item = open_.pop()
        if not isinstance(item, Mapping):
            raise BadConstraint("a format must be an object")
        kind = _kind(item)
        for field, wanted in _FORMATS[kind].items():
            name = field.removesuffix("?")
            if name in item:
                open_.extend(_check_field(f"{kind}.{name}", wanted, item[name]))
            elif name == field:
                raise BadConstraint(f"a format of type {kind} needs `{name}`")
        if kind == "triggered_tags":
            _check_begins(item)
        content = item.get("content") if kind == "tag" else None
        if isinstance(content, Mapping) and content.get("type") == "any_text" and not any(item["end"]):
            raise BadConstraint("a tag of any text needs an `end` that is not empty")
        if kind == "repeat" and not 0 <= item["min"] <= (item["min"] if item["max"] == -1 else item["max"]):
            raise BadConstraint("repeat needs min of at least 0, and max of at least that or -1")


def _kind(item: Mapping[str, Any]) -> str:
    """The type of a format; one that does not say it is known by what it holds."""
    kind = item.get("type")
    if kind is None and "type" not in item:
        needs = ((name, {key for key in fields if key[-1] != "?"}) for name, fields in _FORMATS.items())
        kind = next((name for name, keys in needs if keys and item.keys() >= keys), None)
    if not isinstance(kind, str) or kind not in _FORMATS:
        raise BadConstraint(f"{str(kind)[:100]!r} is no format")
    return kind


def _check_field(at: str, wanted: str, value: object) -> Iterable[object]:
    """The formats that a field holds. Raises BadConstraint for what it cannot hold."""
    match wanted:
        case "schema":
            check_json_schema(value)
            if not xgrammar_takes(value):
                raise BadConstraint(f"{at} is a schema that xgrammar does not take")
        case "regex" if isinstance(value, str):
            if check_regex(value):
                raise BadConstraint(f"{at} is a regular expression that xgrammar does not take")
        case "grammar" if isinstance(value, str):
            check_ebnf(value)
        case "format":
            return [value]
        case "formats" if isinstance(value, list) and value:
            return value
        case "tags" if isinstance(value, list) and value and all(isinstance(tag, Mapping) for tag in value):
            return [{**tag, "type": tag.get("type", "tag")} for tag in value]
        case "rules" if isinstance(value, list) and value and all(isinstance(rule, list) and len(rule) == 2 for rule in value):
            return [rule[1] for rule in value]
        case _ if not _fits(wanted, value):
            raise BadConstraint(f"{at} cannot be {str(value)[:100]!r}")
    return ()


def _fits(wanted: str, value: object) -> bool:
    match wanted:
        case "text":
            return isinstance(value, str)
        case "bool":
            return isinstance(value, bool)
        case "number":
            return isinstance(value, int) and not isinstance(value, bool)
        case "token":
            return isinstance(value, str) or (_fits("number", value) and value >= 0)  # type: ignore[operator]  # a number
        case "style":
            return not isinstance(value, str) or value in _STYLES
        case "begin":
            return isinstance(value, str) or _is_token(value)
        case "end":
            return isinstance(value, str) or _is_token(value) or (bool(value) and _fits("texts", value))
        case "texts":
            return isinstance(value, list) and all(isinstance(text, str) for text in value)
        case "triggers":
            return bool(value) and _fits("texts", value) and "" not in value  # type: ignore[operator]  # a list of texts
        case "tokens+":
            return bool(value) and _fits("tokens", value)
        case "tokens":
            return isinstance(value, list) and all(_fits("token", token) for token in value)
        case _:
            return False


def _is_token(value: object) -> bool:
    return isinstance(value, Mapping) and value.get("type", "token") == "token" and _fits("token", value.get("token"))


def _check_begins(item: Mapping[str, Any]) -> None:
    triggers = frozenset(item["triggers"])
    lengths = {len(trigger) for trigger in triggers}
    for tag in item["tags"]:
        begin = tag.get("begin")
        starts = sum(begin[:n] in triggers for n in lengths if n <= len(begin)) if isinstance(begin, str) else 0
        if starts != 1:
            raise BadConstraint(f"{'no' if starts == 0 else 'more than one'} trigger begins {str(begin)[:100]!r}")
