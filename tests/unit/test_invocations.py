"""What a body of no declared kind asks for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fastfront.openai.chat import prepare_chat
from fastfront.openai.completions import prepare_completion
from fastfront.openai.invocations import prepare_invocation
from fastfront.openai.serving import Serving
from tests.unit.support import prepare, refusal

ASK = [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"messages": ASK}, "chat"),
        ({"messages": ASK, "prompt": "x"}, "chat"),
        ({"prompt": "x"}, "completion"),
        ({"messages": 5.5, "prompt": "x", "model": "unknown"}, None),
        ({"messages": "x", "prompt": "x"}, "completion"),
        ({"messages": ASK, "model": "unknown"}, "chat"),
    ],
)
def test_the_first_kind_whose_shape_it_has(serving: Serving, fields: dict[str, Any], kind: str | None) -> None:
    if kind is None:
        refusal(prepare, prepare_invocation, serving, fields)
    else:
        assert prepare(prepare_invocation, serving, fields).kind == kind


@pytest.mark.parametrize("model", [{}, {"model": "unknown"}])
def test_what_is_asked_for_is_what_the_own_route_makes_of_it(serving: Serving, model: dict[str, Any]) -> None:
    """Numbers as texts, unknown fields and a byte order mark too."""
    fields = {"temperature": "0.5", "max_tokens": 5.0, "stop": ["a"], "seed": 7, "unknown": {"a": 1}, "logit_bias": {"5": 1}}
    for prepare_alone, asked in ((prepare_chat, {"messages": ASK}), (prepare_completion, {"prompt": ["x", "y"]})):
        body = b"\xef\xbb\xbf" + json.dumps({**fields, **asked, **model}).encode()
        found, alone = prepare(prepare_invocation, serving, body), prepare(prepare_alone, serving, {**fields, **asked})
        changing = {"external_id", "created"}
        assert {k: v for k, v in found.fields().items() if k not in changing} == {
            k: v for k, v in alone.fields().items() if k not in changing
        }


@pytest.mark.parametrize(
    ("body", "kind", "param"),
    [
        ({}, "BadRequestError", "prompt"),
        ({"input": "x"}, "BadRequestError", "prompt"),
        ({"prompt": 5}, "BadRequestError", None),
        ({"prompt": "x", "temperature": "x"}, "BadRequestError", None),
        ({"messages": ASK, "top_logprobs": 2}, "BadRequestError", "top_logprobs"),
        (b"{", "Bad Request", None),
        (b"[]", "BadRequestError", None),
        (b'"\xff"', "BadRequestError", None),
        (b'{"prompt": "\\ud800"}', "BadRequestError", None),
        (b'{"prompt": "x", "user": ' + b"[" * 100_000, "BadRequestError", None),
    ],
)
def test_refusals(serving: Serving, body: Any, kind: str, param: str | None) -> None:
    error = refusal(prepare, prepare_invocation, serving, body)
    assert (error.status, error.kind, error.param) == (400, kind, param)
