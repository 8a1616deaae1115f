"""POST /invocations: a chat or a completion, whichever the body has the shape of."""

from __future__ import annotations

import json
from typing import Any

from pydantic_core import from_json

from fastfront.errors import ApiError
from fastfront.openai.bodies import BOM, Header, require_json
from fastfront.openai.chat import prepare_chat_object
from fastfront.openai.completions import prepare_completion_object
from fastfront.openai.message_types import CallsError
from fastfront.openai.serving import Serving
from fastfront.streams.prepared import PreparedCall

ADAPTER = "x-amzn-sagemaker-adapter-identifier"
_SHAPE = "Bad Request"                             # what errors of a body's shape are called


def prepare_invocation(body: bytes, header: Header, serving: Serving) -> PreparedCall:
    """Everything up to the engine. The model is what the header ADAPTER names, whatever the body does. Raises ApiError."""
    require_json(header)
    data = _read(body)
    if not isinstance(data, dict):
        raise ApiError("The body of an invocation must be an object.")
    adapter = header(ADAPTER)
    if adapter or "model" in data:
        data = {**data, "model": adapter or None}
    for prepare in (prepare_chat_object, prepare_completion_object):
        try:
            return prepare(data, header, serving)
        except CallsError:
            raise
        except ApiError as error:
            if error.kind != _SHAPE:
                raise
    raise ApiError("Cannot find suitable handler for request. Expected one of: chat completion, completion.")


def _read(body: bytes) -> Any:
    body = body.removeprefix(BOM)
    try:
        return from_json(body)
    except ValueError as error:
        reason = str(error)
    try:
        json.loads(body)  # for its words
    except json.JSONDecodeError as error:
        raise ApiError(f"JSON decode error: {error}", kind=_SHAPE) from None
    except (ValueError, RecursionError) as error:
        raise ApiError(str(error)) from None
    raise ApiError(f"The body's JSON cannot be read: {reason}")
