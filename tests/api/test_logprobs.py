"""Logprobs are strict JSON, and their bytes are the text's."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.support.mock import scripted
from tests.support.server import Server, read_stream
from tests.support.sse import joined, strict_json
from tests.support.tokens import Pieces

BOTH = pytest.mark.parametrize("stream", [False, True], ids=["body", "stream"])


def entries(server: Server, stream: bool, *fields: Any, **more: Any) -> tuple[str, list[dict[str, Any]]]:
    """(text, the entries of a chat answer's logprobs)."""
    if stream:
        found = server.chat_stream(*fields, logprobs=True, **more)
        logprobs = [choice["logprobs"] for chunk in found for choice in chunk["choices"]]
        return joined(found), [entry for item in logprobs if item is not None for entry in item["content"]]
    response = server.chat(*fields, logprobs=True, **more)
    assert response.status_code == 200, response.text
    choice = strict_json(response.content)["choices"][0]
    return choice["message"]["content"], choice["logprobs"]["content"]


@BOTH
@pytest.mark.parametrize("split", [False, True])
def test_c19_bytes_are_those_of_the_text(server: Server, pieces: Pieces, stream: bool, split: bool) -> None:
    """Also where a character is split over tokens: all bytes joined are the text's."""
    ids = pieces.many(b"\xe6", b"\x98", b"\xaf") if split else pieces.many("a", "b", "c")
    text, found = entries(server, stream, scripted(*ids, then="stop"))
    assert text == ("是" if split else "abc")
    assert len(found) == len(ids)
    assert b"".join(bytes(entry["bytes"] or []) for entry in found).decode() == text
    assert all(list(entry) == ["token", "logprob", "bytes", "top_logprobs"] for entry in found)


@BOTH
@pytest.mark.parametrize("kind", ["chat", "completion"])
def test_c20_values_that_are_no_numbers_are_clamped(server: Server, pieces: Pieces, stream: bool, kind: str) -> None:
    a, b, c, d = pieces.many("a", "b", "c", "d")
    values = [{"logprob": -0.1, "rank": 1, "top": [[b, -math.inf], [c, math.nan], [d, -2.0]]}]
    script = scripted({"tokens": [a], "logprobs": values}, then="stop")
    fields = {"logprobs": True, "top_logprobs": 3} if kind == "chat" else {"logprobs": 3}
    response = (server.chat if kind == "chat" else server.completion)(script, fields, stream=stream)
    answers = read_stream(response) if stream else [strict_json(response.content)]
    numbers: list[float] = []

    def collect(value: Any) -> None:
        if isinstance(value, float):
            numbers.append(value)
        elif isinstance(value, (list, dict)):
            for item in value.values() if isinstance(value, dict) else value:
                collect(item)

    collect([choice["logprobs"] for answer in answers for choice in answer["choices"]])
    assert len(numbers) >= 4
    assert all(-9999.0 <= number <= 0 for number in numbers)


@BOTH
@pytest.mark.parametrize("value", [-math.inf, math.inf, math.nan, 1e30, 0.0, -1e-30])
def test_c20_of_the_chosen_token(server: Server, pieces: Pieces, stream: bool, value: float) -> None:
    script = scripted({"tokens": [pieces.byte_level("a")], "logprobs": [{"logprob": value, "rank": 1, "top": []}]}, then="stop")
    _, (entry,) = entries(server, stream, script)
    assert math.isfinite(entry["logprob"])
    assert entry["logprob"] >= -9999.0
