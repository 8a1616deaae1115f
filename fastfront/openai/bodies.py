"""From body bytes to a checked dictionary, fast where the body is right and precise where it is not."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from fastfront.errors import ApiError
from fastfront.openai.schema_errors import no_object, not_json, schema_error, wrong_media_type

T = TypeVar("T")
Check = Callable[[Mapping[str, Any]], None]
Header = Callable[[str], str | None]

_BOM = b"\xef\xbb\xbf"


def require_json(header: Header) -> None:
    """Raises ApiError unless the request says that its body is JSON; parameters such as a charset are fine."""
    value = header("content-type")
    if value == "application/json":
        return
    if value is None or value.partition(";")[0].strip().lower() != "application/json":
        raise wrong_media_type()


class BodyReader(Generic[T]):
    """Reads bodies of one shape. `check` looks at the raw object first where the shape is wrong: it knows better words.

    Immutable, shared by all request threads.
    """

    __slots__ = ("_adapter", "_check", "_validate_json")

    def __init__(self, adapter: TypeAdapter[T], check: Check) -> None:
        self._adapter = adapter
        self._check = check
        self._validate_json: Callable[[bytes], T] = adapter.validator.validate_json

    def read(self, body: bytes) -> T:
        """The body's known fields. Raises ApiError; a right shape is not checked further."""
        try:
            return self._validate_json(body)
        except ValidationError as error:
            return self._explain(body, error)

    def _explain(self, body: bytes, error: ValidationError) -> T:
        if body.startswith(_BOM):
            return self.read(body[len(_BOM) :])
        if error.errors(include_url=False, include_input=False)[0]["type"] == "json_invalid":
            raise _syntax_error(body, error)
        data = from_json(body)
        if not isinstance(data, dict):
            raise no_object(data)
        self._check(data)
        try:
            # The same once more from Python objects: pydantic words errors in JSON text differently.
            return self._adapter.validate_python(data)
        except ValidationError as again:
            raise schema_error(again.errors(include_url=False)) from None


def _syntax_error(body: bytes, error: ValidationError) -> ApiError:
    if not body.strip():
        return no_object(None)
    try:
        body.decode("utf-8")
    except UnicodeDecodeError:
        return ApiError("There was an error parsing the body: it is not valid UTF-8", kind="Bad Request")
    try:
        json.loads(body)
    except json.JSONDecodeError as syntax:
        return not_json(syntax.pos, syntax.msg)
    except (ValueError, RecursionError):
        pass
    # Only the strict parser refuses it: a lone surrogate, a number or a nesting beyond all reason.
    reason = error.errors(include_url=False, include_input=False)[0].get("ctx", {}).get("error", "invalid JSON")
    return not_json(None, str(reason))
