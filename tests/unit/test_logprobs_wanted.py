"""Which logprobs a request asks for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fastfront.errors import ApiError
from fastfront.openai.logprobs import LogprobsWanted, chat_logprobs, completion_logprobs, put_on_wire


def serving(most: int = 20) -> Any:
    return SimpleNamespace(vocab_size=1000, max_logprobs=most)


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, LogprobsWanted(None, None, False)),
        ({"logprobs": True}, LogprobsWanted(0, None, False)),
        ({"logprobs": False, "top_logprobs": 0}, LogprobsWanted(None, None, False)),
        ({"logprobs": True, "top_logprobs": 5}, LogprobsWanted(5, None, False)),
        ({"prompt_logprobs": 0}, LogprobsWanted(None, 0, False)),
        ({"echo": True}, LogprobsWanted(None, 0, False)),
        ({"echo": True, "logprobs": True, "top_logprobs": 3}, LogprobsWanted(3, 3, False)),
    ],
)
def test_chat(fields: dict[str, Any], wanted: LogprobsWanted) -> None:
    assert chat_logprobs(fields, serving()) == wanted


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"echo": True}, LogprobsWanted(None, None, False)),
        ({"logprobs": 2}, LogprobsWanted(2, None, False)),
        ({"logprobs": 0, "echo": True}, LogprobsWanted(0, 0, True)),
        ({"logprobs": 2, "echo": True, "prompt_logprobs": 1}, LogprobsWanted(2, 1, True)),
    ],
)
def test_completion(fields: dict[str, Any], wanted: LogprobsWanted) -> None:
    assert completion_logprobs(fields, serving()) == wanted


@pytest.mark.parametrize(
    ("fields", "name", "value"),
    [
        ({"logprobs": 21}, "logprobs", 21),
        ({"logprobs": -1}, "logprobs", 1000),
        ({"prompt_logprobs": 1000}, "prompt_logprobs", 1000),
    ],
)
def test_more_than_allowed(fields: dict[str, Any], name: str, value: int) -> None:
    with pytest.raises(
        ApiError, match=rf"logprobs of {value}, which is greater than max allowed: 20 \(parameter={name}"
    ) as caught:
        completion_logprobs(fields, serving())
    assert (caught.value.status, caught.value.param) == (400, name)


def test_no_bound() -> None:
    assert completion_logprobs({"logprobs": -1}, serving(-1)) == LogprobsWanted(-1, None, False)


def test_the_wire() -> None:
    sampling: dict[str, object] = {}
    put_on_wire(LogprobsWanted(2, 0), sampling)
    assert sampling == {"logprobs": 2, "prompt_logprobs": 0}
    put_on_wire(LogprobsWanted(), other := {})
    assert other == {}
