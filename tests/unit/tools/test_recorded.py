"""The recorded answers of vLLM's server with parsers, as far as they are what the parsers alone decide."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fastfront.openai.tools.choice import Parsers
from fastfront.openai.tools.deltas import Delta, Message, joined
from fastfront.openai.tools.registry import Registry
from tests.golden.compare import HERE, fold, read_lines

SERVERS = json.loads((HERE / "servers.json").read_text(encoding="utf-8"))
ANSWERS = {item["id"]: item for item in read_lines(HERE / "answers.jsonl")}
CHAT = "/v1/chat/completions"
REQUESTS = [
    item
    for item in read_lines(HERE / "requests.jsonl")
    if item["path"] == CHAT and "--tool-call-parser" in SERVERS[item["server"]]["flags"]
]
# Where the answers here differ on purpose.
DECIDED = json.loads((HERE / "decided.json").read_text(encoding="utf-8"))


def parsers_of(server: str) -> Parsers:
    flags = SERVERS[server]["flags"]
    registry = Registry()

    def flag(name: str) -> str | None:
        return flags[flags.index(name) + 1] if name in flags else None

    tools, reasoning = flag("--tool-call-parser"), flag("--reasoning-parser")
    return Parsers(registry.tools(tools) if tools else None, registry.reasoning(reasoning) if reasoning else None)


def answered(request: dict[str, Any], wanted: dict[str, Any]) -> str:
    """The text that the model wrote: the prompt's, which the recorded engine sent back, as far as it went."""
    body = request["json"]
    text: str = body["messages"][-1]["content"]
    stop = (body.get("stop") or [""])[0]
    if stop:
        return text[: text.index(stop)]
    if "length" in request["id"]:
        return text[: text.index('"arguments":') + len('"arguments":')]
    return text


def shown(message: Message, is_stream: bool) -> dict[str, Any]:
    """A message as the folded answers have it."""
    found: dict[str, Any] = {}
    if message.reasoning is not None:
        found["reasoning"] = message.reasoning
    if message.content is not None:
        found["content"] = message.content
    if message.calls:
        calls = []
        for call in message.calls:
            function = {"name": call.name, "arguments": call.arguments}
            if is_stream and not call.arguments:
                del function["arguments"]
            calls.append({"type": "function", "function": function})
        found["tool_calls"] = {str(index): call for index, call in enumerate(calls)} if is_stream else calls
    return found


@pytest.mark.parametrize("request_line", REQUESTS, ids=[item["id"] for item in REQUESTS])
def test_same_message(request_line: dict[str, Any]) -> None:
    body, name = request_line["json"], request_line["id"]
    is_stream = bool(body.get("stream"))
    wanted = fold(ANSWERS[name])
    choice = wanted["choices"]["0"] if is_stream else wanted["body"]["choices"][0]
    plan = parsers_of(request_line["server"]).plan(body, stream=is_stream)
    assert plan is not None
    prompt = body["messages"][-1]["content"]
    text = answered(request_line, choice)
    start = plan.start(prompt)
    cut = choice["finish_reason"] == "length"
    if is_stream:
        parser = plan.parser(start)
        deltas: list[Delta] = []
        for char in text:
            deltas += parser.feed(char)
        deltas += parser.finish(cut)
        message = joined(deltas)
        assert parser.called == bool(message.calls)
    else:
        message = plan.parse(text, start, cut)
    expected = {key: value for key, value in (choice["delta"] if is_stream else choice["message"]).items() if key != "role"}
    expected = {key: value for key, value in expected.items() if value != ""}
    found = shown(message, is_stream)
    reason = plan.finish_reason("length" if cut else "stop", bool(message.calls))
    if name in DECIDED:
        assert (found, reason) != (expected, choice["finish_reason"])
        return
    assert found == expected
    assert reason == choice["finish_reason"]
