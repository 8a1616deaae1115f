"""POST /v1/chat/completions/batch: several conversations in one request, one choice for each."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, Required

from pydantic import Field, TypeAdapter

from fastfront.errors import bad_value
from fastfront.openai.bodies import BodyReader, Header, require_json
from fastfront.openai.chat import prepare_reading, with_chat_sink
from fastfront.openai.checks import check_chat
from fastfront.openai.fields import ChatBody
from fastfront.openai.serving import Serving
from fastfront.streams.prepared import PreparedCall

_ALONE = ("stream", "tools", "use_beam_search", "echo", "return_token_ids", "prompt_logprobs")


class BatchBody(ChatBody, total=False):
    """A chat request with a list of conversations in the place of one."""

    messages: Required[Annotated[list[list[dict[str, Any]]], Field(min_length=1)]]  # type: ignore[misc]


def check_batch(body: Mapping[str, Any]) -> None:
    """Rules of batches besides those of chats. Raises ApiError."""
    for name in _ALONE:
        if body.get(name):
            raise bad_value(f"Batch chat completions do not support `{name}`.", name)
    n = body.get("n")
    if n is not None and n != 1:
        raise bad_value("Batch chat completions do not support `n` greater than 1.", "n", n)
    check_chat(body)


_READER: BodyReader[BatchBody] = BodyReader(TypeAdapter(BatchBody), check_batch)


def prepare_batch(body: bytes, header: Header, serving: Serving) -> PreparedCall:
    """One call with a prompt for each conversation, in their order. Raises ApiError if any of them cannot be served."""
    require_json(header)
    fields: Mapping[str, Any] = _READER.read(body)
    check_batch(fields)
    most = serving.limits.max_completion_prompts
    if len(fields["messages"]) > most:
        raise bad_value(f"A batch can have at most {most} conversations, not {len(fields['messages'])}.", "messages")
    pairs = [prepare_reading({**fields, "messages": chat}, header, serving) for chat in fields["messages"]]
    calls = [call for call, _ in pairs]
    readings = [reading for _, reading in pairs if reading is not None]
    if readings:
        return with_chat_sink(calls, readings, fields, serving)
    return dataclasses.replace(calls[0], prompts=[prompt for call in calls for prompt in call.prompts])
