"""What can go wrong, sorted by whose fault it is.

    FastfrontError
      ApiError        the client's: has an HTTP status and is answered to it
      EngineError     an engine's: its requests end with 500, /health tells the truth
        EngineDeadError
      SetupError      the operator's, before serving: printed, exit status 1

Every error answered over HTTP has the body `{"error": {"message", "type", "param", "code"}}`, `code` being the status.
"""

from __future__ import annotations

import json
from http import HTTPStatus


class FastfrontError(Exception):
    """Root of the errors this package raises on purpose."""


class ApiError(FastfrontError):
    """A request that cannot be served, with what the client is told.

    `kind` is the error's `type` and `param` the field at fault, or None. Nothing of the request has reached an engine.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        kind: str = "BadRequestError",
        param: str | None = None,
        headers: list[tuple[str, str]] | None = None,
    ) -> None:
        """`headers` go out with the answer."""
        super().__init__(message)
        self.message = message
        self.status = status
        self.kind = kind
        self.param = param
        self.headers = headers

    def body(self) -> bytes:
        """The answer's body: compact JSON, always valid UTF-8."""
        return error_body(self.message, self.status, self.kind, self.param)


class EngineError(FastfrontError):
    """An engine failed a request or broke the protocol."""


class EngineDeadError(EngineError):
    """No engine is left that could serve the request."""


class SetupError(FastfrontError):
    """Serving cannot start as asked: a bad flag, a missing file, a model that cannot be read."""


def bad_value(message: str, param: str, value: object = None) -> ApiError:
    """A 400 about one field whose message ends with `(parameter=NAME, value=VALUE)`; without a value only the name."""
    shown = f"parameter={param}" if value is None else f"parameter={param}, value={value}"
    return ApiError(f"{message} ({shown})", param=param)


def unknown_model(name: str, valid: str) -> ApiError:
    """The 404 of a model name that is not served; `valid` lists those that are."""
    return ApiError(
        f"The model `{name}` does not exist. Valid aliases: {valid}.", status=404, kind="NotFoundError", param="model"
    )


def http_error(status: int, message: str | None = None) -> ApiError:
    """An error of the HTTP layer itself (405, 413, ...), its type being the status' phrase."""
    phrase = HTTPStatus(status).phrase
    return ApiError(message or phrase, status=status, kind=phrase)


def error_object(message: str, status: int, kind: str, param: str | None = None) -> dict[str, object]:
    """The JSON object of an error, for bodies and for events inside a stream."""
    return {"error": {"message": message, "type": kind, "param": param, "code": status}}


def error_body(message: str, status: int, kind: str, param: str | None = None) -> bytes:
    """The compact JSON of an error. What UTF-8 cannot hold (a lone surrogate taken from the request) becomes `?`."""
    text = json.dumps(error_object(message, status, kind, param), ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")
