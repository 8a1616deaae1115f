"""What a client is told when its request fails in an engine."""

from __future__ import annotations

import json

from fastfront.errors import ApiError, error_object

_FAILURES: dict[int, tuple[int, str, str]] = {  # pump ErrorCode -> status, type, message when the engine gave none
    0: (500, "InternalServerError", "Internal server error"),
    1: (400, "BadRequestError", "The engine refused the request"),
    2: (503, "ServiceUnavailableError", "The engine is paused; try again later"),
    3: (503, "ServiceUnavailableError", "The engine has stopped"),
}


def engine_failure(code: int, message: str) -> ApiError:
    """The error of a pump ErrorCode, in the engine's own words if it has any."""
    status, kind, text = _FAILURES[code]
    return ApiError(message or text, status=status, kind=kind)


def failure_event(code: int, message: str) -> bytes:
    """The last bytes of a chat's or completion's stream that failed after its head was sent."""
    error = engine_failure(code, message)
    data = error_object(error.message, error.status, error.kind)
    return f"data: {json.dumps(data)}\n\ndata: [DONE]\n\n".encode()
