"""From body bytes to a checked dictionary, fast where the body is right and precise where it is not."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from fastfront._speedups.plain_body import PlainBodies
from fastfront.errors import ApiError
from fastfront.openai.schema_errors import no_object, not_json, schema_error, wrong_media_type

T = TypeVar("T")
Check = Callable[[Mapping[str, Any]], None]
Details = Callable[[Mapping[str, Any]], list[dict[str, Any]]]
Header = Callable[[str], str | None]

_ANYWHERE: Mapping[str, int] = MappingProxyType({})
BOM = b"\xef\xbb\xbf"


def require_json(header: Header) -> None:
    """Raises ApiError unless the request says that its body is JSON; parameters such as a charset are fine."""
    value = header("content-type")
    if value == "application/json":
        return
    if value is None or value.partition(";")[0].strip().lower() != "application/json":
        raise wrong_media_type()


class BodyReader(Generic[T]):
    """Reads bodies of one shape. `check` looks at the raw object first where the shape is wrong: it knows better words.

    Errors come in the order of `places`. `further` finds errors of the shape that the adapter does not look for; what is
    right otherwise is not checked by it. `plain` reads what is usual, to the same fields. Immutable, shared by all request
    threads.
    """

    __slots__ = ("_adapter", "_check", "_further", "_places", "_plain", "_validate_json")

    def __init__(
        self,
        adapter: TypeAdapter[T],
        check: Check | None = None,
        places: Mapping[str, int] = _ANYWHERE,
        further: Details | None = None,
        plain: PlainBodies | None = None,
    ) -> None:
        self._adapter = adapter
        self._check = check
        self._places = places
        self._further = further
        self._plain: Callable[[bytes], Any] = _nothing if plain is None else plain.read
        self._validate_json: Callable[[bytes], T] = adapter.validator.validate_json

    def read(self, body: bytes) -> T:
        """The body's known fields. Raises ApiError; a right shape is not checked further."""
        fields: T | None = self._plain(body)
        if fields is not None:
            return fields
        try:
            return self._validate_json(body)
        except ValidationError as error:
            found = error
        if body.startswith(BOM):                  # one is none of the JSON; another behind it is an error
            body = body[len(BOM) :]
            try:
                return self._validate_json(body)
            except ValidationError as error:
                found = error
        return self._explain(body, found)

    def read_object(self, data: Mapping[str, Any]) -> T:
        """The same of a body that has been parsed (by pydantic, which refuses what is no text)."""
        try:
            return self._adapter.validate_python(data)
        except ValidationError as error:
            found: list[Any] = error.errors(include_url=False)
        if self._check is not None:
            self._check(data)
        if self._further is not None:
            found += self._further(data)
        last = len(self._places)
        found.sort(key=lambda item: self._places.get(str(item["loc"][0]), last) if item["loc"] else last)
        raise schema_error(found)

    def _explain(self, body: bytes, error: ValidationError) -> T:
        if error.errors(include_url=False, include_input=False)[0]["type"] == "json_invalid":
            raise _syntax_error(body, error)
        data = from_json(body)
        if not isinstance(data, dict):
            raise no_object(data)
        return self.read_object(data)  # pydantic words errors in JSON text differently


def _nothing(_body: bytes) -> None:
    """No body is plain."""


def _syntax_error(body: bytes, error: ValidationError) -> ApiError:
    if not body:
        return no_object(None)
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        return ApiError("There was an error parsing the body: it is not valid UTF-8", kind="Bad Request")
    try:
        json.loads(text)
    except json.JSONDecodeError as syntax:
        return not_json(*_place(syntax))
    except RecursionError:
        return not_json(None, "nested too deeply")
    except ValueError:
        pass
    # Only the strict parser refuses it: a lone surrogate, a number or a nesting beyond all reason.
    reason = error.errors(include_url=False, include_input=False)[0].get("ctx", {}).get("error", "invalid JSON")
    return ApiError(f"The body's JSON cannot be read: {reason}")


def _place(syntax: json.JSONDecodeError) -> tuple[int, str]:
    """Where a body's JSON is wrong, and why; commas too many as before Python 3.13, which points at them."""
    if not syntax.msg.startswith("Illegal trailing comma"):
        return syntax.pos, syntax.msg
    rest = syntax.doc[syntax.pos + 1 :]
    missing = "Expecting property name enclosed in double quotes" if syntax.msg.endswith("object") else "Expecting value"
    return syntax.pos + 1 + len(rest) - len(rest.lstrip()), missing
