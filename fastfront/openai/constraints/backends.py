"""What the grammar compilers of engines cannot do: xgrammar is first choice, guidance takes what is beyond it.

As vLLM 0.32 tells them apart, and as xgrammar 0.2 and llguidance answer when they are asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fastfront.openai.constraints.errors import BadConstraint
from fastfront.openai.constraints.json_schema import inner_schemas
from fastfront.openai.constraints.regex import check_regex

_XGRAMMAR_FORMATS = frozenset({
    "email", "date", "time", "date-time", "duration", "ipv4", "ipv6", "hostname", "uuid", "uri", "uri-reference",
    "uri-template", "json-pointer", "relative-json-pointer",
})  # fmt: skip
_GUIDANCE_FORMATS = frozenset({
    "email", "date", "time", "date-time", "duration", "ipv4", "ipv6", "hostname", "uuid", "uri", "unknown",
})  # fmt: skip
_NOT_GUIDANCE = frozenset({
    "not", "if", "then", "else", "dependentRequired", "dependentSchemas", "dependencies", "propertyNames",
    "unevaluatedProperties", "unevaluatedItems", "contains", "minContains", "maxContains", "uniqueItems", "$dynamicRef",
    "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor",
})  # fmt: skip
_ARRAY_ONLY = frozenset({"uniqueItems", "contains", "minContains", "maxContains"})
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_LOW_BOUNDS = ("minimum", "exclusiveMinimum")
_NO_INTEGER = 2**63

Schema = Mapping[str, Any]


def beyond_xgrammar(schema: object) -> bool:
    """Whether a checked schema has something that xgrammar would not hold the output to, or does not take."""
    return any(map(_unheld, _objects(schema))) or not xgrammar_takes(schema)


def require_guidance(schema: object) -> None:
    """Raises BadConstraint for a checked schema that guidance does not take either.

    Patterns for names of properties are a third compiler's, outlines', about which nothing is known here.
    """
    if any("patternProperties" in item for item in _objects(schema)):
        return
    for item in _schemas(schema):
        missing = sorted(_NOT_GUIDANCE & item.keys())
        if missing:
            raise BadConstraint(f"it has keywords that no grammar holds the output to: {', '.join(missing)}")
        form = item.get("format")
        if isinstance(form, str) and "string" in _types(item, "string") and form not in _GUIDANCE_FORMATS:
            raise BadConstraint(f"unknown format {form[:100]!r}")
        low = [item[name] for name in _LOW_BOUNDS if _is_number(item.get(name))]
        if item.get("type") == "integer" and any(bound >= _NO_INTEGER for bound in low):
            raise BadConstraint("its integers are beyond 64 bits")


def xgrammar_takes(schema: object) -> bool:
    """Whether xgrammar makes a grammar of a checked schema, be it one that holds the output to less."""
    return not any(map(_untaken, _schemas(schema)))


def _untaken(item: Schema) -> bool:
    types, pattern = _types(item), item.get("pattern")
    first, least = item.get("prefixItems"), item.get("minItems", 0)
    return (
        isinstance(item.get("items"), list)
        or ("string" in types and isinstance(pattern, str) and pattern != "" and check_regex(pattern))
        or ("array" in types and isinstance(first, list) and least > len(first) and item.get("items", False) is False)
        or ("object" in types and bool(item.get("minProperties")) and "properties" not in item)
        or any(isinstance(item.get(name), bool) for name in _BOUNDS)
        or ("integer" in types and any(_is_number(item.get(name)) and not _is_int64(item[name]) for name in _BOUNDS))
    )


def _unheld(item: Schema) -> bool:
    types, form, allof = _types(item), item.get("format"), item.get("allOf")
    return (
        (isinstance(allof, list) and len(allof) > 1)
        or (not types.isdisjoint(("integer", "number")) and "multipleOf" in item)
        or ("array" in types and not _ARRAY_ONLY.isdisjoint(item))
        or ("string" in types and (_both_pattern_and_length(item) or (isinstance(form, str) and form not in _XGRAMMAR_FORMATS)))
        or ("object" in types and _unheld_names(item))
    )


def _unheld_names(item: Schema) -> bool:
    patterns, names = item.get("patternProperties"), item.get("propertyNames")
    if isinstance(patterns, Mapping) and ("properties" in item or len(patterns) > 1):
        return True
    together = "patternProperties" in item or "properties" in item or item.get("unevaluatedProperties", True) is not True
    return "propertyNames" in item and (together or (isinstance(names, Mapping) and _both_pattern_and_length(names)))


def _both_pattern_and_length(item: Schema) -> bool:
    return ("pattern" in item or "format" in item) and ("minLength" in item or "maxLength" in item)


def _types(item: Schema, without: str = "") -> set[str]:
    """The types a schema names; `without` is the one where it names none."""
    kind = item.get("type", without)
    names = kind if isinstance(kind, list) else [kind]
    return {name for name in names if isinstance(name, str)}


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_int64(value: float) -> bool:
    return value == int(value) and -_NO_INTEGER <= value < _NO_INTEGER


def _schemas(schema: object) -> Iterator[Schema]:
    """A checked schema and all inside it that are objects."""
    open_ = [schema]
    while open_:
        item = open_.pop()
        if isinstance(item, Mapping):
            yield item
            open_.extend(inner_schemas(item))


def _objects(schema: object) -> Iterator[Schema]:
    """All objects in a schema, wherever they stand: vLLM looks at those that are none of its schemas, too."""
    open_ = [schema]
    while open_:
        item = open_.pop()
        if isinstance(item, list):
            open_.extend(item)
        elif isinstance(item, Mapping):
            yield item
            open_.extend(item.values())
