"""--enable-log-outputs: what every API's answers look like in the log."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.conftest import serve
from tests.golden.compare import HERE
from tests.support.certificates import make
from tests.support.http1 import post
from tests.support.mock import MockEngine, scripted
from tests.support.server import CHAT, COMPLETIONS, HELLO, Server
from tests.support.tokens import Pieces
from tests.support.waiting import wait_for

MESSAGES, RESPONSES, BATCH = "/v1/messages", "/v1/responses", "/v1/chat/completions/batch"
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
LINE = re.compile(r"Generated response (\S+)( \(streaming \w+\))?: output: (.*), finish_reason: (\w+)$", re.M)
FLAGS = ("--chat-template", str(HERE / "echo.jinja"), "--enable-auto-tool-choice", "--tool-call-parser", "hermes",
         "--reasoning-parser", "qwen3", "--enable-log-requests", "--enable-log-outputs")  # fmt: skip


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from serve(tmp_path_factory, "logged", *FLAGS)


def asked(server: Server, path: str, body: dict[str, Any], choices: int = 1) -> list[tuple[str, str, str]]:
    """How, output and finish reason of the lines of a request's answer, once all its choices have their last one."""
    before = len(LINE.findall(server.log()))
    response = server.post(path, {"model": "smollm2", **body})
    assert response.status_code == 200, response.text

    def look() -> list[tuple[str, ...]] | None:
        new = LINE.findall(server.log())[before:]
        return new if sum("delta" not in how for _, how, *_ in new) >= choices else None

    found = wait_for(look, "the last lines")
    (request_id,) = {request_id for request_id, *_ in found}
    assert "Received request " + request_id in server.log()
    return [(how, output, finish) for _, how, output, finish in found]


def complete(output: str, finish: str) -> tuple[str, str, str]:
    return " (streaming complete)", repr(output), finish


def delta(output: str, finish: str = "None") -> tuple[str, str, str]:
    return " (streaming delta)", repr(output), finish


@pytest.mark.parametrize(
    ("path", "more"),
    [(CHAT, {"messages": HELLO}), (COMPLETIONS, {"prompt": "x"}), (RESPONSES, {"input": "x"}),
     (MESSAGES, {"messages": HELLO, "max_tokens": 20})],
)  # fmt: skip
def test_texts_of_every_api(logged: Server, pieces: Pieces, path: str, more: dict[str, Any]) -> None:
    body = {**more, **scripted(*pieces.many("a", "'", "c"), then="stop")}
    thinks = path != COMPLETIONS                     # all of it is reasoning: nothing has ended that
    whole = "[reasoning: a'c]" if thinks else "a'c"
    assert asked(logged, path, body) == [("", repr(whole), "stop")]
    shown = [f"[reasoning: {piece}]" if thinks else piece for piece in ("a", "'", "c")]
    assert asked(logged, path, body | {"stream": True}) == [*map(delta, shown), complete(whole, "stop")]


@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES])
def test_thoughts_and_calls(logged: Server, pieces: Pieces, path: str) -> None:
    script = scripted(*pieces.encode(f"t</think>{CALL}"), then="stop")
    tools: dict[str, Any] = {
        CHAT: {"messages": HELLO, "tools": [TOOL]},
        RESPONSES: {"input": "x", "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}]},
        MESSAGES: {"messages": HELLO, "max_tokens": 99, "tools": [{"name": "f", "input_schema": {"type": "object"}}]},
    }[path]
    finish = "stop" if path == RESPONSES else "tool_calls"
    assert asked(logged, path, tools | script) == [("", repr('[tool_calls: f({"a": 1})]'), finish)]
    found = asked(logged, path, tools | script | {"stream": True})
    assert found[0] == delta("[reasoning: t]")
    assert found[1][1].startswith("'[tool_calls: ")
    assert found[-1] == complete('[tool_calls: f({"a": 1})]', finish)


def test_choices_beams_and_batches_have_a_line_each(logged: Server) -> None:
    found = asked(logged, COMPLETIONS, {"prompt": "abc", "n": 2, "max_tokens": 1, "stream": True}, 2)
    assert [how for how, *_ in found] == [" (streaming delta)"] * 2 + [" (streaming complete)"] * 2
    searched = {"prompt": [[1000], [2000]], "n": 2, "use_beam_search": True, "max_tokens": 2}
    assert len(asked(logged, COMPLETIONS, searched, 4)) == 4
    assert len(asked(logged, BATCH, {"messages": [HELLO, HELLO], "max_tokens": 2}, 2)) == 2


def test_what_is_no_answer_is_not_logged(logged: Server, pieces: Pieces) -> None:
    before = len(LINE.findall(logged.log()))
    assert logged.completion(scripted({"finish": "error"})).status_code == 500
    assert logged.completion(temperature=-1).status_code == 400
    failing = scripted(*pieces.many("a"), {"finish": "error"})
    assert "error" in logged.completion(failing, stream=True).text
    found = wait_for(lambda: LINE.findall(logged.log())[before:], "a line")
    assert [line[1:] for line in found] == [delta("a")]


def test_streams_over_tls(tmp_path: Path, pieces: Pieces) -> None:
    own = make(tmp_path, "own")
    flags = (*own.flags, "--enable-log-requests", "--enable-log-outputs")
    with Server(tmp_path, *flags, mock=MockEngine(tmp_path, "--tokens", "echo", "--stats")) as server:
        server.wait_ready()
        trusted = ssl.create_default_context(cafile=str(own.cert))
        body = {"prompt": "x", "stream": True, **scripted(*pieces.many("a", "b"), then="stop")}
        response = httpx.post(f"https://127.0.0.1:{server.port}{COMPLETIONS}", json=body, verify=trusted)
        assert response.text.endswith("data: [DONE]\n\n")
        wanted = [delta("a"), delta("b"), complete("ab", "stop")]
        assert wait_for(lambda: len(found := LINE.findall(server.log())) == 3 and [line[1:] for line in found], "lines") == wanted


def test_as_json_cut_and_without_deltas(tmp_path: Path, pieces: Pieces) -> None:
    flags = ("--log-format", "json", "--enable-log-requests", "--enable-log-outputs", "--no-enable-log-deltas",
             "--max-log-len", "2")  # fmt: skip
    with Server(tmp_path, *flags, mock=MockEngine(tmp_path, "--tokens", "echo")) as server:
        server.wait_ready()
        script = scripted(*pieces.many("a", "b", "c"), then="length")
        for stream in (False, True):
            body = {"prompt": "x", "stream": stream, **script}
            assert server.post(COMPLETIONS, body, **{"x-request-id": "r"}).status_code == 200

        def look() -> list[dict[str, Any]] | None:
            found = [json.loads(line) for line in server.log().splitlines() if "Generated response" in line]
            return found if len(found) == 2 else None

        log = wait_for(look, "two lines")
        assert log is not None
        assert [entry.pop("message") for entry in log] == [
            "Generated response cmpl-r: output: 'ab', finish_reason: length",
            "Generated response cmpl-r (streaming complete): output: 'ab', finish_reason: length",
        ]
        for entry in log:
            assert entry.pop("time")
            assert entry == {"level": "INFO", "logger": "fastfront.requests", "request_id": "cmpl-r", "choice": 0, "output": "ab",
                             "finish_reason": "length"}  # fmt: skip


def test_a_client_that_leaves_ends_its_request(logged: Server, pieces: Pieces) -> None:
    """The lane learns of it through what stands between: a write that fails is told on."""
    assert logged.mock is not None
    before = len(LINE.findall(logged.log()))
    connection = logged.connect()
    script = scripted(*pieces.many("a"), {"gate": "never"}, *pieces.many("b"))
    connection.send(post(COMPLETIONS, {"prompt": "x", "stream": True, **script}))
    wait_for(lambda: len(LINE.findall(logged.log())) > before, "a delta")
    connection.close()
    logged.mock.wait_idle()
    assert [line[1:] for line in LINE.findall(logged.log())[before:]] == [delta("a")]
