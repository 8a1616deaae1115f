"""What a body of no declared kind asks for."""

from __future__ import annotations

from typing import Any

import pytest

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
    ],
)
def test_refusals(serving: Serving, body: Any, kind: str, param: str | None) -> None:
    error = refusal(prepare, prepare_invocation, serving, body)
    assert (error.status, error.kind, error.param) == (400, kind, param)
