"""When usage is reported, and what it counts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.mock import MockEngine, scripted
from tests.support.server import Server
from tests.support.tokens import Pieces

WITH_USAGE = {"stream_options": {"include_usage": True}}
KINDS = pytest.mark.parametrize("kind", ["chat", "completion"])


def chunks_of(server: Server, kind: str, *fields: Any, **more: Any) -> list[dict[str, Any]]:
    return (server.chat_stream if kind == "chat" else server.completion_stream)(*fields, **more)


@KINDS
def test_c13_usage_comes_once_and_last(server: Server, pieces: Pieces, kind: str) -> None:
    chunks = chunks_of(server, kind, scripted(*pieces.many("a", "b"), then="stop"), WITH_USAGE)
    *others, last = chunks
    assert last["choices"] == []
    assert list(last["usage"]) == ["prompt_tokens", "total_tokens", "completion_tokens"]
    assert last["usage"]["completion_tokens"] == 2
    assert all(chunk.get("usage") is None and len(chunk["choices"]) == 1 for chunk in others)


@KINDS
@pytest.mark.parametrize(
    "options", [{}, {"stream_options": None}, {"stream_options": {}}, {"stream_options": {"include_usage": False}}]
)
def test_c13_c14_no_usage_unless_asked_for(server: Server, pieces: Pieces, kind: str, options: dict[str, Any]) -> None:
    chunks = chunks_of(server, kind, scripted(pieces.byte_level("a"), then="stop"), options)
    assert all(chunk.get("usage") is None and len(chunk["choices"]) == 1 for chunk in chunks)


@KINDS
def test_c14_stream_options_without_stream(server: Server, mock: MockEngine, kind: str) -> None:
    since = mock.mark()
    ask = server.chat if kind == "chat" else server.completion
    for more in ({}, {"stream": False}):
        response = ask(WITH_USAGE, more)
        assert response.status_code == 400
        assert response.json()["error"]["param"] == "stream_options"
    assert not mock.adds(since)


@KINDS
def test_continuous_usage(server: Server, pieces: Pieces, kind: str) -> None:
    options = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    *chunks, last = chunks_of(server, kind, scripted(*pieces.many("a", "b"), then="stop"), options)
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == ([0] if kind == "chat" else []) + [1, 2, 2]
    for chunk in chunks:
        assert chunk["usage"]["total_tokens"] == chunk["usage"]["prompt_tokens"] + chunk["usage"]["completion_tokens"]
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 2


@KINDS
def test_continuous_usage_alone_is_ignored(server: Server, pieces: Pieces, kind: str) -> None:
    options = {"stream_options": {"continuous_usage_stats": True}}
    chunks = chunks_of(server, kind, scripted(pieces.byte_level("a"), then="stop"), options)
    assert not any("usage" in chunk for chunk in chunks)


@KINDS
def test_stream_interval(server: Server, pieces: Pieces, kind: str) -> None:
    script = scripted(*pieces.many(*"abcdefg"), then="length")
    options = {"stream_interval": 3, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    *chunks, _ = chunks_of(server, kind, script, options)
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == ([0] if kind == "chat" else []) + [1, 4, 7, 7]


@pytest.mark.parametrize("stream", [False, True], ids=["body", "stream"])
def test_usage_sums_choices_and_counts_each_prompt_once(server: Server, pieces: Pieces, stream: bool) -> None:
    script = scripted(*pieces.many("a", "b"), then="stop")
    fields: dict[str, Any] = {"prompt": [[5], [6, 7, 8]], "n": 3}
    if stream:
        usage = server.completion_stream(script, WITH_USAGE, fields)[-1]["usage"]
    else:
        usage = server.completion(script, fields).json()["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (4, 12, 16)


def test_prompt_tokens_are_those_the_engine_got(server: Server, mock: MockEngine, pieces: Pieces) -> None:
    since = mock.mark()
    body = server.chat(scripted(pieces.byte_level("a"), then="stop")).json()
    assert body["usage"]["prompt_tokens"] == len(mock.adds(since)[0]["prompt"])
