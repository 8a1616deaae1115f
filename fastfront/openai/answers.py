"""The text of an answer, read as its request says: reasoning, content and tool calls."""

from __future__ import annotations

from collections.abc import Callable

from fastfront.openai.reading import Reading
from fastfront.openai.reasoning.prompt import Start
from fastfront.openai.tools.choice import Plan
from fastfront.openai.tools.deltas import Content, Delta, Message
from fastfront.openai.tools.message import MessageParser
from fastfront.openai.tools.stretch import Stretch

CUT_SHORT = ("length", "abort")


class Answer:
    """One choice that is being written. Without a plan all of its text is content. Belongs to one sink."""

    def __init__(
        self, plan: Plan | None = None, start: Start | None = None, on_end: Callable[[bool], None] | None = None
    ) -> None:
        """`on_end` is told at the end whether there was a call; of answers with a plan."""
        self._plan = plan
        self._on_end = on_end
        self._start = start or Start()
        self._parser = MessageParser() if plan is None else plan.parser(self._start)
        self._texts: list[str] = []
        self.called = False                        # whether it holds a tool call that the client gets to see
        self.finish: str | None = None             # as the client is told, once it is known

    def stretch(self) -> Stretch | None:
        """For streams: how the text goes on that comes next; None: `feed` must see it."""
        return self._parser.stretch()

    def feed(self, text: str, finish: str | None) -> list[Delta]:
        """For streams: what the next text settles, and with `finish` what is left."""
        if self._plan is None:
            self.finish = finish
            return [Content(text)] if text else []
        deltas = self._parser.feed(text) if text else []
        if finish is not None:
            deltas += self._parser.finish(finish in CUT_SHORT)
            self.called = self._parser.called
            self._finished(finish)
        return deltas

    def keep(self, text: str, finish: str | None) -> None:
        """For whole answers: more text, read by `message` at the end."""
        self._texts.append(text)
        if finish is not None:
            self.finish = finish

    def message(self) -> Message:
        """The whole answer once it is finished."""
        text, finish = "".join(self._texts), self.finish or "stop"
        if self._plan is None:
            return Message(content=text or None)
        message = self._plan.parse(text, self._start, finish in CUT_SHORT)
        self.called = bool(message.calls)
        self._finished(finish)
        return message

    def _finished(self, finish: str) -> None:
        self.finish = finish if self._plan is None else self._plan.finish_reason(finish, self.called)
        if self._on_end is not None:
            self._on_end(self.called)


def answer_of(reading: Reading | None) -> Answer:
    """An answer that is read so; None: its text is content."""
    return Answer() if reading is None else Answer(reading.plan, reading.start, reading.ended)
