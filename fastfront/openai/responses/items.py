"""Items of a response's output while they are streamed: the events that tell of them."""

from __future__ import annotations

from abc import ABC, abstractmethod

from fastfront.openai.events import json_string
from fastfront.openai.responses.objects import Object, call_item, message_item, new_id, reasoning_item, text_part

Events = list[tuple[str, Object]]                  # names and data, without output index and number


class Item(ABC):
    """Owned by one sink, which calls `begin`, `more` any number of times and `finish`, in this order."""

    def __init__(self, kind: str) -> None:
        self._id = new_id(kind)
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

    @abstractmethod
    def more(self, text: str, logprobs: list[Object]) -> Events: ...

    @abstractmethod
    def silent(self, logprobs: list[Object]) -> None:
        """Takes in logprobs of tokens without text, behind the last of it. Only messages have a place for them."""

    def finish(self, with_logprobs: bool) -> Events:
        return [("response.output_item.done", {"item": self.whole})]

    @abstractmethod
    def _state(self, status: str) -> Object: ...


class MessageItem(Item):
    """Text for the client."""

    def __init__(self) -> None:
        super().__init__("msg")
        self._logprobs: list[Object] = []
        self._shown: list[Object] | None = None

    def begin(self) -> Events:
        return [*super().begin(), ("response.content_part.added", {**self._at(), "part": text_part("", [])})]

    def more(self, text: str, logprobs: list[Object]) -> Events:
        self._texts.append(text)
        self._logprobs += logprobs
        return [("response.output_text.delta", {**self._at(), "delta": text, "logprobs": [_brief(entry) for entry in logprobs]})]

    def silent(self, logprobs: list[Object]) -> None:
        self._logprobs += logprobs

    def text_delta(self, text: str, output_index: int, number: int) -> bytes:
        """The event of `more` text without logprobs: there are many, so they are put together by hand."""
        self._texts.append(text)
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

    def __init__(self) -> None:
        super().__init__("rs")

    def begin(self) -> Events:
        return [*super().begin(), ("response.content_part.added", {**self._at(), "part": _part("")})]

    def more(self, text: str, logprobs: list[Object]) -> Events:
        self._texts.append(text)
        return [("response.reasoning_text.delta", {**self._at(), "delta": text})]

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

    def __init__(self, call_id: str = "", name: str = "") -> None:
        super().__init__("fc")
        self._call_id = call_id
        self._name = name

    def more(self, text: str, logprobs: list[Object]) -> Events:
        self._texts.append(text)
        return [("response.function_call_arguments.delta", {"delta": text, "item_id": self._id})]

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
