"""Structural tags: text that may hold constrained parts, as xgrammar describes them; the older form with triggers too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastfront.openai.constraints.errors import BadConstraint
from fastfront.openai.constraints.grammar import check_ebnf
from fastfront.openai.constraints.json_schema import check_json_schema, check_json_value
from fastfront.openai.constraints.regex import check_regex

# The formats of xgrammar 0.2.
_FORMATS = frozenset({
    "const_string", "json_schema", "any_text", "token", "exclude_token", "any_tokens", "grammar", "regex", "sequence", "or",
    "tag", "triggered_tags", "token_triggered_tags", "tags_with_separator", "optional", "plus", "star", "repeat", "dispatch",
    "token_dispatch", "qwen_xml_parameter",
})  # fmt: skip
_INNER = ("content", "elements", "tags", "format")  # where formats hold further formats


def check_structural_tag(tag: object) -> None:
    """Raises BadConstraint unless `tag` (from JSON) can be a structural tag."""
    check_json_value(tag)
    if not isinstance(tag, Mapping):
        raise BadConstraint("it is no object")
    if "structures" in tag:
        _check_triggered(tag)
    elif isinstance(tag.get("format"), Mapping):
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
        check_json_schema(item.get("schema", True))


def _check_format(root: Mapping[str, Any]) -> None:
    open_: list[object] = [root]
    while open_:
        item = open_.pop()
        if not isinstance(item, Mapping) or not isinstance(item.get("type"), str):
            raise BadConstraint("a format must be an object with a `type`")
        kind = item["type"]
        if kind not in _FORMATS:
            raise BadConstraint(f"{kind[:100]!r} is no format")
        if kind in ("json_schema", "qwen_xml_parameter"):
            check_json_schema(item.get("json_schema"))
        elif kind == "regex":
            check_regex(_text(item, "pattern"))
        elif kind == "grammar":
            check_ebnf(_text(item, "grammar"))
        elif kind == "const_string":
            _text(item, "value")
        for name in _INNER:
            inner = item.get(name)
            open_.extend(inner if isinstance(inner, list) else () if inner is None else (inner,))


def _text(item: Mapping[str, Any], name: str) -> str:
    value = item.get(name)
    if not isinstance(value, str):
        raise BadConstraint(f"a format of type {item['type']} needs the text `{name}`")
    return value
