"""What a request's output is bound to, read from the `structured_outputs` map. No compiler here: they take seconds to import."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from typing import Any, NamedTuple


class InvalidConstraintError(Exception):
    """The constraint is refused; the message is for the client."""


class Kind(enum.Enum):
    """Kinds of constraints; the values are the map's keys. A choice becomes a GRAMMAR, a JSON object a JSON schema."""

    JSON = "json"
    REGEX = "regex"
    CHOICE = "choice"
    GRAMMAR = "grammar"
    JSON_OBJECT = "json_object"
    STRUCTURAL_TAG = "structural_tag"


class Constraint(NamedTuple):
    """A constraint in the form that is compiled; equal ones have the same grammar."""

    kind: Kind
    text: str
    any_whitespace: bool = True
    guidance: bool = False
    """Compiled by llguidance: it enforces what xgrammar does not."""
    closed: bool = False
    """Of a JSON schema for llguidance: properties that it does not list are forbidden, unless it says otherwise itself."""


def parse(wanted: Mapping[str, Any]) -> Constraint:
    """Read the map; raise InvalidConstraintError unless exactly one kind is given and has the right type.

    `_backend` says which compiler is to be used: xgrammar, or guidance for what is beyond it; choices and structural tags are
    always xgrammar's. There properties that a schema does not list are never allowed unless it says so itself, so that
    disable_additional_properties changes nothing. whitespace_pattern has no counterpart here and is passed over.
    """
    given = [kind for kind in Kind if wanted.get(kind.value) is not None]
    if wanted.get("json_object") is False:
        given.remove(Kind.JSON_OBJECT)
    if len(given) != 1:
        names = ", ".join(kind.value for kind in given) or "none"
        raise InvalidConstraintError(f"structured_outputs: exactly one kind of constraint must be given, got {names}")
    kind = given[0]
    value = wanted[kind.value]
    any_whitespace = not wanted.get("disable_any_whitespace")
    guidance = wanted.get("_backend") == "guidance"
    if kind is Kind.JSON:
        closed = guidance and bool(wanted.get("disable_additional_properties"))
        return Constraint(kind, value if isinstance(value, str) else _dump(value), any_whitespace, guidance, closed)
    if kind is Kind.JSON_OBJECT:
        return Constraint(Kind.JSON, '{"type":"object"}', any_whitespace, guidance)
    if kind is Kind.CHOICE:
        return Constraint(Kind.GRAMMAR, choice_grammar(value))
    if kind is Kind.STRUCTURAL_TAG:
        return Constraint(kind, structural_tag(value))
    if not isinstance(value, str) or not value:
        raise InvalidConstraintError(f"structured_outputs.{kind.value} must be a text that is not empty")
    if "\0" in value:
        raise InvalidConstraintError(f"structured_outputs.{kind.value} must not contain NUL")
    return Constraint(kind, value, guidance=guidance)


def choice_grammar(choices: Any) -> str:
    """The grammar of exactly these texts, in EBNF."""
    if not isinstance(choices, list) or not choices or not all(isinstance(choice, str) and choice for choice in choices):
        raise InvalidConstraintError("structured_outputs.choice must be a list of texts, none of them empty")
    return "root ::= " + " | ".join(json.dumps(choice, ensure_ascii=False) for choice in choices)


def structural_tag(value: Any) -> str:
    """A structural tag as JSON text in its current form; the older form with `structures` and `triggers` is rewritten."""
    try:
        tag = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError) as error:
        raise InvalidConstraintError(f"structured_outputs.structural_tag is not JSON: {error}") from None
    if not isinstance(tag, dict):
        raise InvalidConstraintError("structured_outputs.structural_tag must be a JSON object")
    if "structures" not in tag:
        return value if isinstance(value, str) else _dump(tag)
    try:
        tags = [
            {
                "type": "tag",
                "begin": structure["begin"],
                "content": {"type": "json_schema", "json_schema": structure.get("schema", True)},
                "end": structure["end"],
            }
            for structure in tag["structures"]
        ]
        triggers = tag["triggers"]
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidConstraintError(f"structured_outputs.structural_tag is incomplete: {error!r}") from None
    return _dump({"type": "structural_tag", "format": {"type": "triggered_tags", "triggers": triggers, "tags": tags}})


def _dump(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidConstraintError(f"structured_outputs: not a JSON value: {error}") from None
