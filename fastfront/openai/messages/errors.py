"""Errors in the Anthropic shape."""

from __future__ import annotations

from typing import Any

from fastfront.errors import ApiError


def error_object(error: ApiError) -> dict[str, Any]:
    """The body of an error, and the data of an error event."""
    return {"type": "error", "error": {"type": error.kind, "message": error.message}}
