"""JSON schemas: keywords have values of the right kind, references lead somewhere, nothing is nested beyond reason."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

from fastfront.openai.constraints.errors import BadConstraint
from fastfront.openai.constraints.regex import check_regex

MAX_DEPTH = 64
_SHOWN_CHARS = 100      # of what a client wrote: names are part of the path of all that is inside them
TYPES = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
_SCHEMA = frozenset({
    "additionalProperties", "unevaluatedProperties", "unevaluatedItems", "additionalItems", "contains", "not", "if",
    "then", "else", "propertyNames", "contentSchema",
})  # fmt: skip
_SCHEMA_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_SCHEMA_LISTS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_COUNTS = frozenset({
    "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minContains", "maxContains",
})  # fmt: skip
_NUMBERS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
_PAIRS = (
    ("minLength", "maxLength"), ("minItems", "maxItems"), ("minProperties", "maxProperties"),
    ("minContains", "maxContains"), ("minimum", "maximum"),
)  # fmt: skip


class Facts(NamedTuple):
    """What the walk over a schema saw: how deep its lists and objects go, and whether all its integers fit 64 bits."""

    depth: int
    small_integers: bool


class _At(NamedTuple):
    schema: Any
    path: str


def check_json_schema(schema: object) -> Facts:
    """Raises BadConstraint unless `schema` (from JSON) is a JSON schema as far as its own text tells."""
    facts = check_json_value(schema)
    references: list[_At] = []
    open_ = [_At(schema, "#")]
    while open_:
        here = open_.pop()
        if isinstance(here.schema, bool):
            continue
        if not isinstance(here.schema, Mapping):
            raise BadConstraint(f"{here.path} is not a schema: an object or a boolean")
        for key, value in here.schema.items():
            open_.extend(_keyword(key, value, here))
        _check_pairs(here)
        if "$ref" in here.schema:
            references.append(here)
    sound: set[str] = set()
    anchors: dict[str, object] | None = None
    for reference in references:
        if anchors is None:
            anchors = _anchors(schema)
        _follow(schema, reference, sound, anchors)
    return facts


def inner_schemas(schema: Mapping[str, Any]) -> Iterator[object]:
    """The schemas directly inside a checked one."""
    for key, value in schema.items():
        if key in _SCHEMA_MAPS:
            yield from value.values()
        elif key in _SCHEMA_LISTS or (key == "items" and isinstance(value, list)):
            yield from value
        elif key in _SCHEMA or key == "items":
            yield value


def check_json_value(value: object) -> Facts:
    """Raises BadConstraint for a value nested deeper than MAX_DEPTH or with a number that JSON does not have."""
    deepest, small = 0, True
    open_: list[tuple[object, int]] = [(value, 1)]
    while open_:
        item, depth = open_.pop()
        if isinstance(item, (dict, list)):
            if depth > MAX_DEPTH:
                raise BadConstraint(f"it is nested deeper than {MAX_DEPTH} levels")
            deepest = max(deepest, depth)
            open_.extend((inner, depth + 1) for inner in (item.values() if isinstance(item, dict) else item))
        elif isinstance(item, float) and not math.isfinite(item):
            raise BadConstraint(f"{item} is not a number of JSON")
        elif isinstance(item, int) and not -(2**63) <= item < 2**64:
            small = False
    return Facts(deepest, small)


def _keyword(key: str, value: object, here: _At) -> Iterator[_At]:
    """The schemas directly inside a keyword."""
    path = f"{here.path}/{key[:_SHOWN_CHARS]}"
    if key == "type":
        _check_type(value, path)
    elif key in _SCHEMA or (key == "items" and not isinstance(value, list)):
        yield _At(value, path)
    elif key in _SCHEMA_MAPS:
        if not isinstance(value, Mapping):
            raise BadConstraint(f"{path} must be an object")
        for name, inner in value.items():
            if key == "patternProperties":
                _check_pattern(name, path)
            yield _At(inner, f"{path}/{name[:_SHOWN_CHARS]}")
    elif key in _SCHEMA_LISTS or key == "items":
        if not isinstance(value, list) or not value:
            raise BadConstraint(f"{path} must be a list that is not empty")
        for k, inner in enumerate(value):
            yield _At(inner, f"{path}/{k}")
    elif key == "enum":
        if not isinstance(value, list) or not value:
            raise BadConstraint(f"{path} must be a list that is not empty")
    elif key == "required":
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            raise BadConstraint(f"{path} must be a list of strings")
    elif key in _COUNTS:
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise BadConstraint(f"{path} must be a whole number of at least 0")
    elif key in _NUMBERS:
        # Draft 4 has booleans for the exclusive bounds.
        if not isinstance(value, (int, float)) or (isinstance(value, bool) and not key.startswith("exclusive")):
            raise BadConstraint(f"{path} must be a number")
        if key == "multipleOf" and not value:
            raise BadConstraint(f"{path} must not be 0")
    elif key == "pattern":
        _check_pattern(value, path)
    elif key in ("$ref", "format") and not isinstance(value, str):
        raise BadConstraint(f"{path} must be a string")


def _check_type(value: object, path: str) -> None:
    names = value if isinstance(value, list) else [value]
    if not names:
        raise BadConstraint(f"{path} must not be empty")
    for name in names:
        if not isinstance(name, str) or name not in TYPES:
            raise BadConstraint(f"{path}: unknown type {str(name)[:100]!r}; types are {', '.join(sorted(TYPES))}")


def _check_pattern(value: object, path: str) -> None:
    if not isinstance(value, str):
        raise BadConstraint(f"{path} must be a string")
    if not value:
        return
    try:
        check_regex(value)
    except BadConstraint as error:
        raise BadConstraint(f"{path}: bad regular expression {value[:100]!r}: {error}") from None


def _check_pairs(here: _At) -> None:
    for low, high in _PAIRS:
        least, most = here.schema.get(low), here.schema.get(high)
        if least is not None and most is not None and least > most:
            raise BadConstraint(f"{here.path}: {low} is more than {high}")


def _follow(root: object, start: _At, sound: set[str], anchors: Mapping[str, object]) -> None:
    """Raises BadConstraint if a reference leads nowhere, out of the schema, or round in a circle of references.

    `sound` are references that do not, `anchors` what has a name of its own.
    """
    here, seen = start.schema, set[str]()
    while isinstance(here, Mapping) and "$ref" in here:
        reference = here["$ref"]
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise BadConstraint(f"{start.path}: $ref {str(reference)[:_SHOWN_CHARS]!r} leads out of the schema")
        if reference in sound:
            break
        if reference in seen:
            if len(here) > 1 and not here.keys() <= {"$ref", "$defs", "definitions", "title", "description"}:
                break
            raise BadConstraint(f"{start.path}: $ref {reference[:_SHOWN_CHARS]!r} refers to itself")
        seen.add(reference)
        here = _resolve(root, reference, start.path, anchors)
    sound |= seen


def _resolve(root: object, reference: str, path: str, anchors: Mapping[str, object]) -> object:
    nowhere = BadConstraint(f"{path}: $ref {reference[:_SHOWN_CHARS]!r} leads nowhere")
    if reference != "#" and not reference.startswith("#/"):
        if reference[1:] not in anchors:
            raise nowhere
        return anchors[reference[1:]]
    found: Any = root
    for step in unquote(reference).split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping) and name in found:
            found = found[name]
        elif isinstance(found, list) and name.isdecimal() and len(name) < 10 and int(name) < len(found):
            found = found[int(name)]
        else:
            raise nowhere
    return found


def _anchors(root: object) -> dict[str, object]:
    """What has a name by `$anchor`, by that."""
    named: dict[str, object] = {}
    open_ = [root]
    while open_:
        item = open_.pop()
        if isinstance(item, Mapping):
            if isinstance(name := item.get("$anchor"), str):
                named[name] = item
            open_.extend(item.values())
        elif isinstance(item, list):
            open_.extend(item)
    return named

