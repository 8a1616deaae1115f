"""Constraints on the output reach the engine as its frontend's map, or are refused without disturbing anybody."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.mock import MockEngine, scripted
from tests.support.server import CHAT, HELLO, Server, merged
from tests.support.tokens import Pieces

ANSWER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
BAD: list[dict[str, Any]] = [
    {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "nonsense"}}}},
    {"structured_outputs": {"json": {"type": "nonsense"}}},
    {"structured_outputs": {"regex": "(a"}},
    {"structured_outputs": {"grammar": "??"}},
    {"structured_outputs": {"choice": [""]}},
]


def test_c39_a_bad_schema_is_refused_and_nothing_else_is_touched(server: Server, mock: MockEngine, pieces: Pieces) -> None:
    since = mock.mark()
    body = merged({"messages": HELLO, "stream": True}, scripted(*pieces.many(*["a"] * 600)), {"max_tokens": 600})
    with server.client.stream("POST", CHAT, json=body) as running:
        lines = running.iter_lines()
        assert next(lines).startswith("data: ")
        mock.pause()
        for fields in BAD:
            for stream in (False, True):
                answer = server.chat(fields, stream=stream)
                assert answer.status_code == 400, answer.text
                assert answer.json()["error"]["message"]
        mock.resume()
        assert server.chat({"response_format": {"type": "json_object"}}, max_tokens=1).status_code == 200
        rest = [line for line in lines if line]
    assert rest[-1] == "data: [DONE]"
    assert len(mock.adds(since)) == 2


@pytest.mark.parametrize("stream", [False, True])
def test_a_schema_with_any_format_never_fails_the_server(server: Server, stream: bool) -> None:
    schema = {"type": "string", "format": "uri"}
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    assert server.chat(response_format=form, max_tokens=1, stream=stream).status_code in (200, 400)


def test_what_the_engine_is_sent(server: Server, mock: MockEngine) -> None:
    since = mock.mark()
    assert server.completion(structured_outputs={"json": ANSWER}, max_tokens=1).status_code == 200
    (add,) = mock.adds(since)
    wanted = add["params"]["structured_outputs"]
    assert wanted["json"] == ANSWER
    assert (wanted["_backend"], wanted["_backend_was_auto"]) == ("xgrammar", True)


@pytest.mark.parametrize("stream", [False, True])
def test_c39_what_only_the_engines_compiler_finds_is_that_requests_400(server: Server, pieces: Pieces, stream: bool) -> None:
    error = {"code": "validation_error", "message": "no such grammar", "retryable": False}
    answer = server.chat(scripted({"finish": "error", "error": error}), structured_outputs={"regex": "a+"}, stream=stream)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["message"] == "no such grammar"
    assert server.chat(scripted(pieces.byte_level("a"), then="stop")).status_code == 200
