"""What clients were sent, read back from answers of every API: text by choice."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]
_FINISHES = {                                      # of messages and responses, as chats call them
    "end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "tool_use": "tool_calls",
    "completed": "stop", "incomplete": "length", "cancelled": "abort",
}  # fmt: skip


@dataclass(slots=True)
class Shown:
    """Text of one choice: a piece of a stream, or all of it. `finish` is set with its last piece."""

    index: int = 0
    content: str = ""
    reasoning: str = ""
    name: str = ""                                 # of a call that begins here; of whole answers calls are in `arguments`
    arguments: str = ""
    finish: str | None = None

    def described(self) -> str:
        """All of it as vLLM's log shows a piece."""
        parts = [self.content]
        if self.reasoning:
            parts.append(f"[reasoning: {self.reasoning}]")
        if self.arguments:
            parts.append(f"[tool_calls: {self.arguments}]")
        return " ".join(part for part in parts if part)


def joined(pieces: Sequence[Shown]) -> Shown:
    """One choice of all its pieces; there is one at least."""
    calls: list[str] = []
    for piece in pieces:
        if piece.name:
            calls.append(f"{'), ' if calls else ''}{piece.name}(")
        if piece.arguments:
            calls.append(piece.arguments)
    return Shown(
        pieces[0].index,
        "".join(piece.content for piece in pieces),
        "".join(piece.reasoning for piece in pieces),
        arguments="".join(calls) + (")" if calls else ""),
        finish=next((piece.finish for piece in reversed(pieces) if piece.finish is not None), None),
    )


def in_events(data: bytes) -> Iterator[Shown]:
    """Of whole events of a stream, of any API. What is no text and ends nothing is left out."""
    for line in data.split(b"\n"):
        if line.startswith(b"data: {"):
            yield from _in_event(json.loads(line[6:]))


def in_body(body: bytes) -> Iterator[Shown]:
    """Of a whole answer."""
    answer: Object = json.loads(body)
    if answer.get("type") == "message":
        blocks = answer["content"]
        calls = [(block["name"], json.dumps(block["input"])) for block in blocks if block["type"] == "tool_use"]
        yield Shown(
            0,
            "".join(block["text"] for block in blocks if block["type"] == "text"),
            "".join(block["thinking"] for block in blocks if block["type"] == "thinking"),
            arguments=_calls(calls),
            finish=_FINISHES.get(answer.get("stop_reason") or ""),
        )
    elif answer.get("object") == "response":
        yield _in_response(answer)
    for choice in answer.get("choices", ()):
        message = choice.get("message")
        if message is None:
            yield Shown(choice["index"], choice["text"], finish=choice["finish_reason"])
            continue
        functions = [call["function"] for call in message.get("tool_calls") or ()]
        calls = [(function["name"], function["arguments"]) for function in functions]
        yield Shown(
            choice["index"], _text(message.get("content")), message.get("reasoning") or "", arguments=_calls(calls),
            finish=choice["finish_reason"],
        )  # fmt: skip


def _in_event(event: Object) -> Iterator[Shown]:
    kind = event.get("type", "")
    for choice in event.get("choices", ()):
        delta = choice.get("delta")
        index, finish = choice["index"], choice["finish_reason"]
        if delta is None:
            yield Shown(index, choice["text"], finish=finish)
            continue
        functions = [call["function"] for call in delta.get("tool_calls") or ()]
        yield Shown(
            index, delta.get("content") or "", delta.get("reasoning") or "",
            next((function["name"] for function in functions if function.get("name")), ""),
            "".join(function.get("arguments") or "" for function in functions), finish,
        )  # fmt: skip
    if kind == "content_block_start":
        yield Shown(name=event["content_block"].get("name", ""))
    elif kind == "content_block_delta":
        delta = event["delta"]
        yield Shown(0, delta.get("text", ""), delta.get("thinking", ""), arguments=delta.get("partial_json", ""))
    elif kind == "message_delta":
        yield Shown(finish=_FINISHES.get(event["delta"]["stop_reason"] or ""))
    elif kind == "response.output_text.delta":
        yield Shown(0, event["delta"])
    elif kind == "response.reasoning_text.delta":
        yield Shown(reasoning=event["delta"])
    elif kind == "response.output_item.added":
        yield Shown(name=event["item"].get("name", ""))
    elif kind == "response.function_call_arguments.delta":
        yield Shown(arguments=event["delta"])
    elif kind in ("response.completed", "response.incomplete"):
        yield Shown(finish=_finish(event["response"]))


def _in_response(response: Object) -> Shown:
    shown = Shown(finish=_finish(response))
    calls = []
    for item in response["output"]:
        texts = "".join(part.get("text", "") for part in item.get("content") or ())
        if item["type"] == "message":
            shown.content += texts
        elif item["type"] == "reasoning":
            shown.reasoning += texts
        elif item["type"] == "function_call":
            calls.append((item["name"], item["arguments"]))
    shown.arguments = _calls(calls)
    return shown


def _finish(response: Object) -> str | None:
    return _FINISHES.get(response["status"])


def _calls(calls: list[tuple[str, str]]) -> str:
    return ", ".join(f"{name}({arguments})" for name, arguments in calls)


def _text(content: object) -> str:
    return content if isinstance(content, str) else ""
