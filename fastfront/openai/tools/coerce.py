"""Values by the JSON schema of a tool's parameter."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

Properties = Mapping[str, Any]      # parameter name -> its JSON schema
_ALIASES: Mapping[str, str] = {
    "str": "string", "text": "string", "varchar": "string", "char": "string", "enum": "string",
    "int": "integer", "int32": "integer", "int64": "integer", "uint": "integer", "uint32": "integer",
    "uint64": "integer", "long": "integer", "short": "integer", "unsigned": "integer",
    "float": "number", "float32": "number", "float64": "number", "double": "number",
    "bool": "boolean", "dict": "object", "arr": "array", "list": "array", "sequence": "array",
}  # fmt: skip
_STRING = frozenset({"string"})


def types_of(schema: Any) -> frozenset[str]:
    """Names of the JSON types that a schema allows; {"string"} if it does not say."""
    return frozenset(_found_types(schema)) or _STRING


def _found_types(schema: Any) -> set[str]:
    if not isinstance(schema, Mapping):
        return {"string"}
    found: set[str] = set()
    kind = schema.get("type")
    if isinstance(kind, str):
        found.add(kind)
    elif isinstance(kind, list):
        found.update(item for item in kind if isinstance(item, str))
    values = schema.get("enum")
    if isinstance(values, list):
        found.update(_type_name(value) for value in values)
    for group in ("anyOf", "oneOf", "allOf"):
        choices = schema.get(group)
        if isinstance(choices, list):
            for choice in choices:
                found |= types_of(choice)
    return found


def _type_name(value: object) -> str:
    if value is None:
        return "null"
    for kind, name in ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"), (list, "array")):
        if isinstance(value, kind):
            return name
    return "object"


def coerced(text: str, types: frozenset[str]) -> Any:
    """The value a text stands for: of the first allowed type that it can be, else the text itself.

    The order is null, integer, number, boolean, object or array, string. Numbers that JSON cannot hold stay text.
    """
    names = {_ALIASES.get(name.strip().lower(), name.strip().lower()) for name in types}
    lowered = text.lower().strip()
    if "null" in names and text.lower() == "null":
        return None
    if "integer" in names and (whole := _integer(text)) is not None:
        return whole
    if "number" in names and (number := _number(text)) is not None:
        return number
    if "boolean" in names:
        if lowered in ("true", "1"):
            return True
        if lowered in ("false", "0"):
            return False
    if not names.isdisjoint(("object", "array")) or "string" not in names:
        return _json(text)
    return text


def _integer(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def _number(text: str) -> int | float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    if not math.isfinite(value):
        return None
    return int(value) if value == int(value) else value


def _json(text: str) -> Any:
    try:
        value = json.loads(text)
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        return text
    return value


def unquoted(arguments: str) -> str:
    """Arguments that a model wrote as a JSON string of their JSON, without the string around them. Raises ValueError."""
    arguments = arguments.strip()
    return str(json.loads(arguments)) if arguments.startswith('"') else arguments


def corrected(arguments: str, properties: Properties | None) -> str:
    """A JSON object of arguments with its values brought to the types of the schema; as it is where nothing changes."""
    if not properties:
        return arguments
    try:
        values = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    if not isinstance(values, dict):
        return arguments
    fixed = _corrected_members(values, properties)
    # 1 == True and 1 == 1.0: only the text tells them apart.
    changed = json.dumps(fixed) != json.dumps(values)
    return json.dumps(fixed, ensure_ascii=False) if changed else arguments


def _corrected_members(values: dict[str, Any], properties: Properties) -> dict[str, Any]:
    return {
        key: corrected_value(value, schema) if isinstance(schema := properties.get(key), Mapping) else value
        for key, value in values.items()
    }


def corrected_value(value: Any, schema: Mapping[str, Any]) -> Any:
    """A JSON value brought to the types of its schema, as far as it can be."""
    if isinstance(value, str):
        return coerced(value, types_of(schema))
    if isinstance(value, dict):
        nested = schema.get("properties")
        return _corrected_members(value, nested) if isinstance(nested, Mapping) else value
    if isinstance(value, list):
        items = schema.get("items")
        return [corrected_value(item, items) for item in value] if isinstance(items, Mapping) else value
    return coerced(json.dumps(value), types_of(schema))
