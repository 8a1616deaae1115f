"""What a request asks of tools and reasoning, and how its answers are read."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from fastfront._speedups.passage import Triggers
from fastfront.errors import ApiError
from fastfront.openai.reasoning.base import ReasoningParser
from fastfront.openai.reasoning.prompt import Start, start_of
from fastfront.openai.tools.base import NewId, ToolParser, Tools, mistral_id, numbered_ids, random_id
from fastfront.openai.tools.coerce import Properties
from fastfront.openai.tools.constraints import named_schema, required_schema, structural_tag
from fastfront.openai.tools.deltas import Message, joined
from fastfront.openai.tools.forced import NamedParser, RequiredParser
from fastfront.openai.tools.harmony import HarmonyParser
from fastfront.openai.tools.message import MessageParser

StrictLevel = Literal["auto", "function", "parameter"]
Body = Mapping[str, Any]
_NONE = Start()


@dataclass(frozen=True, slots=True)
class Parsers:
    """The parsers a server reads answers with. `tools` is None unless tool choice is enabled.

    `strict_level`: "function" constrains calls that the model makes of itself too, "parameter" their arguments as well.
    """

    tools: type[ToolParser] | None = None
    reasoning: type[ReasoningParser] | None = None
    strict_level: StrictLevel = "auto"
    dropped: re.Pattern[str] | None = None     # special tokens that are neither text nor a marker of the parsers
    dropped_starts: Triggers | None = None     # what each of them begins with

    def dropping(self, special_tokens: Iterable[str]) -> Parsers:
        """The same, told the model's special tokens. Where they are kept for the parsers' sake the others are no text.

        A reasoning parser that looks for words leaves all of them in its answers.
        """
        tools, reasoning = self.tools, self.reasoning
        drops = [parser for parser in (tools, reasoning) if parser is not None and parser.keeps_special_tokens == "always"]
        if tools is not None and tools.drops_special_tokens:
            drops.append(tools)
        by_words = reasoning is not None and (reasoning.reads_calls or reasoning.keeps_special_tokens == "never")
        if not drops or by_words or (tools is not None and not tools.markers):
            return self
        markers = set(tools.markers if tools else ())
        if reasoning is not None:
            markers.update((*reasoning.opens, *reasoning.closes, *reasoning.implied))
        others = sorted(set(special_tokens) - markers - {""})
        if not others:
            return self
        starts = Triggers(*sorted({word[0] for word in others}))
        return dataclasses.replace(self, dropped=re.compile("|".join(map(re.escape, others))), dropped_starts=starts)

    def plan(self, body: Body, template_kwargs: Mapping[str, Any] | None = None, stream: bool = False) -> Plan | None:
        """How the answers to a chat request are read; None if they are plain text.

        `body` has passed the checks of its fields; `template_kwargs` are the chat template's arguments. Raises ApiError
        if the tool choice needs a parser that the server does not have.
        """
        choice, name = choice_of(body)
        self.require_parser(choice, name, asked=body.get("tool_choice", "auto") is not None)
        if self.tools is None and self.reasoning is None:
            return None
        functions = [tool["function"] for tool in body.get("tools") or ()]
        return Plan(
            parsers=self,
            choice=choice,
            name=name,
            functions=functions,
            single=body.get("parallel_tool_calls") is False,
            hides_reasoning=body.get("include_reasoning") is False,
            template_kwargs=template_kwargs or {},
            stream=stream,
            continued=bool(body.get("continue_final_message")),
            earlier_calls=_earlier_calls(body.get("messages") or ()),
            has_format=_has_format(body),
        )

    def require_parser(self, choice: str, name: str, asked: bool) -> None:
        """Raises ApiError if a choice needs a parser that is not there. One of null asks for nothing."""
        if self.tools is not None or choice == "none" or not asked:
            return
        if choice == "auto":
            raise ApiError('"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set')
        shown = f'function "{name}"' if choice == "named" else f'"{choice}"'
        raise ApiError(f"tool_choice={shown} requires --tool-call-parser to be set")


@dataclass(frozen=True, slots=True)
class Plan:
    """How one request's answers are read. `choice` is "none", "auto", "required" or "named", with the name in `name`."""

    parsers: Parsers
    choice: str
    name: str = ""
    functions: Sequence[Mapping[str, Any]] = ()
    single: bool = False                   # no more than one call
    hides_reasoning: bool = False
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    stream: bool = False
    continued: bool = False                # the answer continues the prompt's last message
    earlier_calls: int = 0                 # in the conversation so far
    has_format: bool = False               # the request constrains its answer by itself

    @property
    def keeps_special_tokens(self) -> bool:
        """Whether special tokens must not be skipped, whatever the request says: parsers look for them."""
        tools = self.parsers.tools.keeps_special_tokens if self.parsers.tools else "never"
        reasoning = self.parsers.reasoning.keeps_special_tokens if self.parsers.reasoning else "never"
        return "always" in (tools, reasoning) or (tools == "with tools" and bool(self.functions) and self.choice != "none")

    def constraint(self) -> dict[str, Any] | None:
        """What the tool choice asks of the output, in the form of a request's structured_outputs; None for nothing.

        It takes the place of the request's own format. It holds for the text after the reasoning.
        """
        parser = self.parsers.tools
        functions = self._offered()
        if parser is None or self.choice == "none" or not functions:
            return None
        if parser.structural_tag is not None:
            level = self.parsers.strict_level
            if self.choice == "auto" and not self._constrains_auto():
                return None
            strict = [{**function, "strict": level == "parameter" or bool(function.get("strict"))} for function in functions]
            choice = "forced" if self.choice == "named" else self.choice
            tag = structural_tag(parser.structural_tag, strict, choice, self.single)
            return None if tag is None else {"structural_tag": tag}
        if parser.answers_forced or self.choice == "auto":
            return None
        return {"json": named_schema(functions[0]) if self.choice == "named" else required_schema(functions, not self.single)}

    def engine_kwargs(self) -> dict[str, object] | None:
        """What an engine's own reasoning parser is made with: the template's switches. None if there is no such parser."""
        if self.parsers.reasoning is None:
            return None
        switches = {name: value for name, value in self.template_kwargs.items() if isinstance(value, bool | str)}
        return {"chat_template_kwargs": switches}

    def start(self, prompt: str) -> Start:
        """How reading begins after a prompt."""
        reasoning = self.parsers.reasoning
        if reasoning is None:
            return _NONE
        return start_of(reasoning, prompt, self.template_kwargs, stream=self.stream, continued=self.continued)

    def parser(self, start: Start = _NONE) -> MessageParser:
        """A parser for the stream of one choice."""
        reasoning, reader = self._reasoning(), self._tool_parser()
        tools: ToolParser | None = None
        if reader is NamedParser:
            tools = NamedParser(self.name, self._tools(), self._new_id())
        elif reader is not None:
            after = reasoning is not None and not start.off
            tools = reader(self._tools(), self._new_id(), after_reasoning=after, hidden=self._keeps_text())
        return MessageParser(
            reasoning(*start) if reasoning else None,
            tools,
            single=self.single,
            hides_calls=self._hides_calls(),
            hides_reasoning=self._hides_reasoning(),
            dropped=self._dropped(start),
            dropped_starts=self.parsers.dropped_starts,
        )

    def parse(self, text: str, start: Start = _NONE, cut: bool = False) -> Message:
        """The message of a complete answer; `cut` says that a limit ended it."""
        if (dropped := self._dropped(start)) is not None:
            text = dropped.sub("", text)
        thought, content = None, text or None
        reasoning, reader = self._reasoning(), self._tool_parser()
        if reasoning is not None:
            thought, content = reasoning.parse(text, *start)
        message = Message(content=content)
        if reader is NamedParser:
            parser = NamedParser(self.name, self._tools(), self._new_id())
            message = parser.whole(content or "")
        elif reader is not None:
            after = reasoning is not None and not start.off
            if self._keeps_text():
                hiding = reader(self._tools(), self._new_id(), after_reasoning=after, hidden=True)
                message = joined([*hiding.feed(content or ""), *hiding.finish(cut)])
            else:
                message = reader.parse(content or "", self._tools(), self._new_id(), cut=cut, after_reasoning=after)
        if not message.calls and self.choice in ("required", "named") and (message.content or "").isspace():
            message = message._replace(content=None)
        calls = () if self._hides_calls() else message.calls[:1] if self.single else message.calls
        thought = message.reasoning if thought is None else thought
        return Message(None if self._hides_reasoning() else thought, message.content, calls)

    def finish_reason(self, reason: str, called: bool) -> str:
        """What a client is told: "tool_calls" if the model stopped after calls that it chose; as it is otherwise."""
        return "tool_calls" if called and reason == "stop" and self.choice != "named" else reason

    def _offered(self) -> list[Mapping[str, Any]]:
        if self.choice == "named":
            return [function for function in self.functions if function["name"] == self.name][:1]
        return list(self.functions)

    def _constrains_auto(self) -> bool:
        """Whether calls that the model makes of itself are constrained. A format that the request asks for comes first."""
        parser, level = self.parsers.tools, self.parsers.strict_level
        if self.has_format or parser is None:
            return False
        return (
            self.single
            or level != "auto"
            or parser.constrains_auto
            or any(function.get("strict") for function in self.functions)
        )

    def _tools(self) -> Tools:
        return {
            function["name"]: _properties(function.get("parameters") or {}) for function in self.functions
        }

    def _new_id(self) -> NewId:
        kind = self.parsers.tools.ids if self.parsers.tools else "random"
        return mistral_id if kind == "mistral" else numbered_ids(self.earlier_calls) if kind == "numbered" else random_id

    def _dropped(self, start: Start) -> re.Pattern[str] | None:
        """What is no text. Where reasoning has ended a tool parser that always looks says so; without one all is kept."""
        tools = self.parsers.tools
        looks = tools is not None and (tools.hides_when_off or tools.keeps_special_tokens == "always")
        reads = start.inside is not False or looks
        return self.parsers.dropped if reads else None

    def _reasoning(self) -> type[ReasoningParser] | None:
        """None if there is none, or if the tool parser reads reasoning itself."""
        reasoning, tools = self.parsers.reasoning, self.parsers.tools
        if reasoning is None or reasoning.reads_calls or (tools is not None and tools.reads_reasoning):
            return None
        return reasoning

    def _tool_parser(self) -> type[ToolParser] | None:
        parser, reasoning = self.parsers.tools, self.parsers.reasoning
        if parser is None:
            return HarmonyParser if reasoning is not None and reasoning.reads_calls else None
        if self.choice == "auto" or (parser.answers_forced and self.choice != "none"):
            return parser
        if self.choice == "none":
            return parser if parser.hides_when_off else None
        return NamedParser if self.choice == "named" else RequiredParser

    def _hides_calls(self) -> bool:
        return self.choice == "none"

    def _keeps_text(self) -> bool:
        """Whether calls are taken out of the text and the rest is left as it is: tools are there, and must not be called."""
        return self.choice == "none" and bool(self.functions)

    def _hides_reasoning(self) -> bool:
        return self.hides_reasoning or self.parsers.reasoning is None


def _properties(parameters: Mapping[str, Any]) -> Properties:
    """The properties that a schema describes. Clients may send anything for one: nonsense says nothing about types."""
    properties = parameters.get("properties")
    return properties if isinstance(properties, dict) else {}


def choice_of(body: Body) -> tuple[str, str]:
    """The kind of tool choice, and the function's name if it names one. A choice of null lets the model choose."""
    choice = body.get("tool_choice")
    if not body.get("tools"):
        return ("auto" if choice is None and "tool_choice" in body else "none"), ""
    if isinstance(choice, Mapping):
        return "named", str(choice["function"]["name"])
    return ("auto" if choice is None else str(choice)), ""


def _has_format(body: Body) -> bool:
    form = body.get("response_format")
    return body.get("structured_outputs") is not None or (isinstance(form, Mapping) and form.get("type") != "text")


def _earlier_calls(messages: Sequence[Any]) -> int:
    return sum(
        len(calls)
        for message in messages
        if isinstance(message, Mapping) and message.get("role") == "assistant"
        if isinstance(calls := message.get("tool_calls"), list)
    )
