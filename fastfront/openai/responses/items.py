"""Items of a response's output while they are streamed: the events that tell of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from fastfront.openai.events import json_string, named_event
from fastfront.openai.responses.objects import Object, call_item, message_item, new_id, reasoning_item, text_part
from fastfront.openai.tools.stretch import Kind

Events = list[tuple[str, Object]]                  # names and data, without output index and number


class Item(ABC):
    """Owned by one sink, which calls `begin`, `more` any number of times and `finish`, in this order."""

    kind: ClassVar[Kind]                           # of its text

    def __init__(self, prefix: str) -> None:
        self._id = new_id(prefix)
        self._texts: list[str] = []

    @property
    def whole(self) -> Object:
        """The finished item."""
        return self._state("completed")

    @property
    def _text(self) -> str:
        return "".join(self._texts)

    def begin(self) -> Events:
        return [("response.output_item.added", {"item": self._state("in_progress")})]

    def more(self, text: str, logprobs: list[Object]) -> Events:
        self.keep(text)
        return [self._delta(text)]

    def keep(self, text: str) -> None:
        """More text, whose event is made otherwise."""
        self._texts.append(text)

    def text_delta(self, text: str, output_index: int, number: int) -> bytes:
        """The event of text, which is not kept."""
        name, data = self._delta(text)
        return named_event({**data, "output_index": output_index, "sequence_number": number, "type": name})

    @abstractmethod
    def _delta(self, text: str) -> tuple[str, Object]: ...

    @abstractmethod
    def silent(self, logprobs: list[Object]) -> None:
        """Takes in logprobs of tokens without text, behind the last of it. Only messages have a place for them."""

    def finish(self, with_logprobs: bool) -> Events:
        return [("response.output_item.done", {"item": self.whole})]

    @abstractmethod
    def _state(self, status: str) -> Object: ...


class MessageItem(Item):
    """Text for the client."""

    kind = "content"

    def __init__(self) -> None:
        super().__init__("msg")
        self._logprobs: list[Object] = []
        self._shown: list[Object] | None = None

    def begin(self) -> Events:
        return [*super().begin(), ("response.content_part.added", {**self._at(), "part": text_part("", [])})]

    def more(self, text: str, logprobs: list[Object]) -> Events:
        self.keep(text)
        self._logprobs += logprobs
        name, data = self._delta(text)
        return [(name, {**data, "logprobs": [_brief(entry) for entry in logprobs]})]

    def _delta(self, text: str) -> tuple[str, Object]:
        return "response.output_text.delta", {**self._at(), "delta": text, "logprobs": []}

    def silent(self, logprobs: list[Object]) -> None:
        self._logprobs += logprobs

    def text_delta(self, text: str, output_index: int, number: int) -> bytes:
        """There are many, so they are put together by hand."""
        return (
            b'event: response.output_text.delta\ndata: {"content_index":0,"delta":%b,"item_id":"%b","logprobs":[],'
            b'"output_index":%d,"sequence_number":%d,"type":"response.output_text.delta"}\n\n'
            % (json_string(text), self._id.encode(), output_index, number)
        )

    def finish(self, with_logprobs: bool) -> Events:
        self._shown = self._logprobs if with_logprobs else None
        return [
            ("response.output_text.done", {**self._at(), "logprobs": [], "text": self._text}),
            ("response.content_part.done", {**self._at(), "part": text_part(self._text, self._shown)}),
            *super().finish(with_logprobs),
        ]

    def _at(self) -> Object:
        return {"content_index": 0, "item_id": self._id}

    def _state(self, status: str) -> Object:
        return message_item(self._id, status, self._text, self._shown)


class _Silent(Item):
    """An item without logprobs."""

    def silent(self, logprobs: list[Object]) -> None:
        pass


class ReasoningItem(_Silent):
    """What the model thinks."""

    kind = "reasoning"

    def __init__(self) -> None:
        super().__init__("rs")

    def begin(self) -> Events:
        return [*super().begin(), ("response.content_part.added", {**self._at(), "part": _part("")})]

    def _delta(self, text: str) -> tuple[str, Object]:
        return "response.reasoning_text.delta", {**self._at(), "delta": text}

    def finish(self, with_logprobs: bool) -> Events:
        return [
            ("response.reasoning_text.done", {**self._at(), "text": self._text}),
            ("response.content_part.done", {**self._at(), "part": _part(self._text)}),
            *super().finish(with_logprobs),
        ]

    def _at(self) -> Object:
        return {"content_index": 0, "item_id": self._id}

    def _state(self, status: str) -> Object:
        return reasoning_item(self._id, self._text, status)


class CallItem(_Silent):
    """A call of a function."""

    kind = "arguments"

    def __init__(self, call_id: str = "", name: str = "") -> None:
        super().__init__("fc")
        self._call_id = call_id
        self._name = name

    def _delta(self, text: str) -> tuple[str, Object]:
        return "response.function_call_arguments.delta", {"delta": text, "item_id": self._id}

    def finish(self, with_logprobs: bool) -> Events:
        done = {"arguments": self._text, "item_id": self._id, "name": self._name}
        return [("response.function_call_arguments.done", done), *super().finish(with_logprobs)]

    def _state(self, status: str) -> Object:
        return call_item(self._id, self._call_id, self._name, self._text, status)


def _part(text: str) -> Object:
    return {"text": text, "type": "reasoning_text"}


def _brief(entry: Object) -> Object:
    """A logprob as events have it: without bytes."""
    return {
        "token": entry["token"],
        "logprob": entry["logprob"],
        "top_logprobs": [{"token": top["token"], "logprob": top["logprob"]} for top in entry["top_logprobs"]],
    }
