"""Finding what is wrong with a message: only run once something is known to be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Required

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from fastfront.errors import ApiError
from fastfront.openai.schema_errors import schema_error


class _Message(TypedDict, total=False):
    role: Required[str]
    content: str | list[str | dict[str, Any]]
    tool_calls: list[dict[str, Any]] | None


class _AssistantMessage(TypedDict, total=False):
    role: Required[str]
    content: str | list[str | dict[str, Any]] | None
    tool_calls: list[dict[str, Any]] | None


_MESSAGE = TypeAdapter(_Message)
_ASSISTANT = TypeAdapter(_AssistantMessage)


def message_error(messages: list[dict[str, Any]]) -> ApiError:
    """The schema error of all messages whose role or content has a wrong type."""
    found: list[Mapping[str, Any]] = []
    for index, message in enumerate(messages):
        adapter: TypeAdapter[Any] = _ASSISTANT if message.get("role") in ("assistant", "function") else _MESSAGE
        try:
            adapter.validate_python(message)
        except ValidationError as error:
            found += [
                {**details, "loc": ("messages", index, *details["loc"])} for details in error.errors(include_url=False)
            ]
    if not found:
        return ApiError("A message's role or content has a wrong type.", param="messages")
    return schema_error(found)
