"""Structured outputs: from `response_format` and `structured_outputs` to the map an engine gets, checked.

Engines compile the constraint; what only they can find wrong ends the request with an error of theirs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json

from fastfront.config import StructuredOptions
from fastfront.errors import ApiError
from fastfront.openai.constraints.backends import beyond_xgrammar, require_guidance
from fastfront.openai.constraints.errors import BadConstraint
from fastfront.openai.constraints.grammar import check_ebnf, choice_grammar, is_lark, lark_as_ebnf
from fastfront.openai.constraints.json_schema import check_json_schema
from fastfront.openai.constraints.regex import check_regex
from fastfront.openai.constraints.structural_tag import check_structural_tag

FIELDS = frozenset({"structured_outputs", "response_format"})
KINDS = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")
MAP_DEPTH = 32  # a schema nested deeper travels as text: messages to engines have a bound of their own
NO_STRUCTURE: Mapping[str, Any] = {
    "json": None, "regex": None, "choice": None, "grammar": None, "json_object": None,
    "disable_any_whitespace": False, "disable_additional_properties": False, "whitespace_pattern": None,
    "structural_tag": None, "_backend": None, "_backend_was_auto": False,
}  # fmt: skip

Body = Mapping[str, Any]


def wanted_structure(body: Body) -> dict[str, Any] | None:
    """What a request asks for, in the form of `structured_outputs`; None for nothing.

    A response format comes on top: with another kind of constraint beside it there is one too many.
    """
    wanted = body.get("structured_outputs")
    form = body.get("response_format")
    if form is None or form["type"] == "text":
        return None if wanted is None else dict(wanted)
    if form["type"] == "json_object":
        kind: dict[str, Any] = {"json_object": True}
    elif form["type"] == "json_schema":
        kind = {"json": form["json_schema"].get("schema")}
    else:
        kind = {"structural_tag": json.dumps(form, ensure_ascii=False)}
    return {**(wanted or {}), **kind}


def put_structure(body: Body, options: StructuredOptions, sampling: dict[str, object]) -> None:
    """Puts what a request asks for into its sampling map. Raises ApiError."""
    if not FIELDS.isdisjoint(body) and (wanted := wanted_structure(body)) is not None and wanted.get("regex") != "":
        sampling["structured_outputs"] = structured_map(wanted, options)


def holds_at_once(sampling: Body, options: StructuredOptions) -> bool:
    """Whether there is a constraint that holds in the reasoning too: engines are told that reasoning has ended."""
    return options.enable_in_reasoning and "structured_outputs" in sampling


def structured_map(wanted: Body, options: StructuredOptions) -> dict[str, Any]:
    """The wire's map for a constraint in the form of `structured_outputs`. Raises ApiError with the reason."""
    full: dict[str, Any] = {**NO_STRUCTURE, **{name: value for name, value in wanted.items() if value is not None}}
    full["disable_any_whitespace"] |= options.disable_any_whitespace
    full["disable_additional_properties"] |= options.disable_additional_properties
    given = [kind for kind in KINDS if full[kind] is not None and full[kind] is not False]
    if not given:
        raise ApiError(f"You must use one kind of structured outputs constraint but none are specified: {full}")
    if len(given) > 1:
        raise ApiError(
            "You can only use one kind of structured outputs constraint but multiple are specified: " + ", ".join(given)
        )
    fallback = _CHECKS[given[0]](full)
    auto = options.backend == "auto"
    full["_backend"] = ("guidance" if fallback else "xgrammar") if auto else options.backend
    full["_backend_was_auto"] = auto
    return full


def _refuse(words: str, error: BadConstraint) -> ApiError:
    return ApiError(f"{words}: {error}")


# Each check raises ApiError, puts the form engines take into the map, and says whether xgrammar lacks something for it.


def _json(full: dict[str, Any]) -> bool:
    schema = full["json"]
    if isinstance(schema, str):
        if not schema.strip():
            raise ApiError("structured_outputs.json cannot be an empty string")
        try:
            schema = from_json(schema, allow_inf_nan=False)
        except ValueError as error:
            raise ApiError(f"Invalid JSON grammar specification: {error}") from None
    try:
        facts = check_json_schema(schema)
        beyond = beyond_xgrammar(schema)
        if beyond:
            require_guidance(schema)
    except BadConstraint as error:
        raise _refuse("Failed to transform json schema into a grammar", error) from None
    if isinstance(full["json"], dict) and (facts.depth > MAP_DEPTH or not facts.small_integers):
        full["json"] = json.dumps(schema, ensure_ascii=False)
    return beyond


def _regex(full: dict[str, Any]) -> bool:
    if "\0" in full["regex"]:
        raise ApiError("structured_outputs.regex must not contain a NUL character ('\\x00')")
    try:
        return check_regex(full["regex"])
    except BadConstraint as error:
        raise _refuse("Failed to transform regex into a grammar", error) from None


def _choice(full: dict[str, Any]) -> bool:
    choices = full["choice"]
    if not choices:
        raise ApiError(f"Choice '{choices}' cannot be an empty list")
    if "" in choices:
        raise ApiError("Failed to transform choices into a grammar: a choice is an empty string")
    full["choice"] = None
    full["grammar"] = choice_grammar(choices)
    return False


def _grammar(full: dict[str, Any]) -> bool:
    grammar = full["grammar"]
    if not grammar.strip():
        raise ApiError("structured_outputs.grammar cannot be an empty string")
    try:
        if not is_lark(grammar):
            check_ebnf(grammar)
            return False
        converted = lark_as_ebnf(grammar)
    except BadConstraint as error:
        raise _refuse("Invalid grammar specification", error) from None
    if converted is None:
        return True
    full["grammar"] = converted
    return False


def _json_object(full: dict[str, Any]) -> bool:
    return False


def _structural_tag(full: dict[str, Any]) -> bool:
    try:
        check_structural_tag(from_json(full["structural_tag"], allow_inf_nan=False))
    except BadConstraint as error:
        raise _refuse("Invalid structural tag specification", error) from None
    except ValueError as error:
        raise ApiError(f"Invalid structural tag specification: {error}") from None
    return False


_CHECKS = {
    "json": _json, "regex": _regex, "choice": _choice, "grammar": _grammar, "json_object": _json_object,
    "structural_tag": _structural_tag,
}  # fmt: skip
