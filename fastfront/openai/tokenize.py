"""POST /tokenize and POST /detokenize."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Required

from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict

from fastfront.errors import ApiError
from fastfront.openai.bodies import BodyReader, Header, require_json
from fastfront.openai.calls import require_model
from fastfront.openai.chat import render_chat
from fastfront.openai.fields import Tool
from fastfront.openai.schema_errors import schema_error
from fastfront.openai.serving import Serving


class TokenizeBody(TypedDict, total=False):
    """A text (`prompt`) or a chat (`messages`)."""

    model: str | None
    prompt: str
    messages: list[dict[str, Any]]
    add_special_tokens: bool
    return_token_strs: bool | None
    add_generation_prompt: bool
    continue_final_message: bool
    chat_template: str | None
    chat_template_kwargs: dict[str, Any] | None
    tools: list[Tool] | None


class DetokenizeBody(TypedDict, total=False):
    """Tokens of a text."""

    model: str | None
    tokens: Required[list[Annotated[int, Field(ge=0)]]]


def _no_check(_: Mapping[str, Any]) -> None:
    pass


_TOKENIZE: BodyReader[TokenizeBody] = BodyReader(TypeAdapter(TokenizeBody), _no_check)
_DETOKENIZE: BodyReader[DetokenizeBody] = BodyReader(TypeAdapter(DetokenizeBody), _no_check)


def tokenize_body(body: bytes, header: Header, serving: Serving) -> bytes:
    """The tokens of a text or of a chat; no limit of length applies. Raises ApiError."""
    require_json(header)
    fields = _TOKENIZE.read(body)
    if "prompt" not in fields and "messages" not in fields:
        missing = {"type": "missing", "msg": "Field required", "input": fields}
        raise schema_error([{**missing, "loc": ("prompt",)}, {**missing, "loc": ("messages",)}])
    require_model(fields, serving)
    tokenizer = serving.tokenizer
    if "prompt" in fields:
        ids = tokenizer.encode(fields["prompt"], fields.get("add_special_tokens", True))
    else:
        if fields.get("continue_final_message") and fields.get("add_generation_prompt"):
            raise ApiError("Cannot set both `continue_final_message` and `add_generation_prompt` to True.")
        ids = tokenizer.encode(render_chat(fields, serving)[1], fields.get("add_special_tokens", False))
    strings = tokenizer.tokens(ids) if fields.get("return_token_strs") else None
    return _compact(
        {"count": len(ids), "max_model_len": serving.max_model_len, "tokens": ids, "token_strs": strings}
    )


def detokenize_body(body: bytes, header: Header, serving: Serving) -> bytes:
    """The text of token ids; ids that are no token have none. Raises ApiError."""
    require_json(header)
    fields = _DETOKENIZE.read(body)
    require_model(fields, serving)
    ids = fields["tokens"]
    known = serving.tokenizer.max_token_id
    return _compact({"prompt": serving.tokenizer.decode([token for token in ids if token <= known])})


def _compact(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
