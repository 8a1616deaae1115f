"""A sink fed by hand."""

from __future__ import annotations

import json
from typing import Any

from fastfront.openai.reasoning.think import DeepSeekR1Reasoning
from fastfront.openai.tools.choice import Parsers, Plan
from fastfront.openai.tools.hermes import HermesParser
from fastfront.streams.sink import Sink

Event = dict[str, Any]
CALL = '<tool_call>\n{"name": "find", "arguments": {"what": "tea"}}\n</tool_call>'


def plan(*, stream: bool, **body: Any) -> Plan:
    """How answers with thoughts and hermes calls are read."""
    tools = [{"type": "function", "function": {"name": "find", "parameters": {}}}]
    made = Parsers(tools=HermesParser, reasoning=DeepSeekR1Reasoning).plan({"tools": tools, **body}, stream=stream)
    assert made is not None
    return made


def run(sink: Sink, pieces: list[str], finish: str = "stop", reason: int | str | None = None, logprobs: bytes = b"") -> bytes:
    """Everything a sink makes of an answer of one token a piece to a prompt of 5."""
    out = b""
    for count, text in enumerate(pieces, 1):
        last = count == len(pieces)
        out += sink.add(0, text, b"", logprobs, finish if last else None, reason if last else None, count)
    return out + sink.end(5, len(pieces))


def events(stream: bytes) -> list[Event]:
    """The data of all events; each must have its type as its name."""
    found = []
    for block in stream.decode().split("\n\n")[:-1]:
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        found.append(event)
    return found


def kinds(found: list[Event]) -> list[str]:
    return [event["type"] for event in found]
