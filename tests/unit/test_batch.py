"""Several conversations in one request."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fastfront.openai.batch import prepare_batch
from fastfront.openai.serving import Serving
from tests.unit.support import USER, chat, prepare, refusal

OTHER = [{"role": "user", "content": "And another"}]


def test_each_conversation_is_a_prompt(serving: Serving) -> None:
    prepared = prepare(prepare_batch, serving, {"messages": [USER, OTHER], "max_tokens": 9, "temperature": 0})
    alone = [chat(serving, {"messages": messages, "max_tokens": 9}) for messages in (USER, OTHER)]
    assert prepared.prompts == [call.prompts[0] for call in alone]
    assert (prepared.n, prepared.kind, prepared.sampling["temperature"]) == (1, "chat", 0)


def test_each_answer_repeats_its_own_conversation(serving: Serving) -> None:
    turns = [[*USER, {"role": "assistant", "content": text}] for text in ("one ", "two ")]
    prepared = prepare(prepare_batch, serving, {"messages": turns, "echo": True, "add_generation_prompt": False})
    sink = prepared.sink
    assert sink is not None
    for index in range(2):
        sink.add(index, "more", b"", b"", "stop", None, 1)
    choices = json.loads(sink.end(2, 2))["choices"]
    assert [choice["message"]["content"] for choice in choices] == ["one more", "two more"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"stream": True}, "stream"),
        ({"n": 2}, "n"),
        ({"use_beam_search": True}, "use_beam_search"),
        ({"tools": []}, "tools"),
        ({"ignore_eos": "x"}, None),
        ({"messages": []}, "body.messages"),
        ({"messages": USER}, "body.messages.0"),
        ({"messages": [USER] * 1025}, "messages"),
        ({"temperature": 9}, "temperature"),
    ],
)
def test_refusals(serving: Serving, fields: dict[str, Any], param: str) -> None:
    error = refusal(prepare, prepare_batch, serving, {"messages": [USER], **fields})
    assert (error.status, error.param) == (400, param)
