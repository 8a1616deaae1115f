"""A compiled chat template."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jinja2
from jinja2 import meta

from fastfront.config import ContentFormat
from fastfront.errors import ApiError
from fastfront.render.content_format import detect_content_format
from fastfront.render.jinja import chat_environment
from fastfront.render.limit import DEADLINE, RenderTimeout, limit
from fastfront.render.skeleton import Skeletons
from fastfront.render.text_flow import Flow

# Not variables of the template but arguments of whoever applies it.
_RESERVED = frozenset({"chat_template", "tokenize", "messages", "tools", "continue_final_message", "conversation"})
_TAG = "CONTINUE_FINAL_MESSAGE_TAG "


class TemplateSyntaxError(ValueError):
    """The template's text does not compile."""


class ChatTemplate:
    """One template, compiled once and shared by all request threads; nothing in it changes afterwards.

    `constants` are the special tokens a template may name (`bos_token`, ...). A template that nobody vouches for has
    a time limit. `skeletons` renders chats of nothing but texts without running the template, where that is known to be the same;
    None if there is a limit.
    """

    __slots__ = (
        "_constants", "_context", "_join", "_root", "_timeout_s", "content_format", "has_developer", "skeletons", "source",
        "variables",
    )  # fmt: skip

    def __init__(
        self,
        source: str,
        constants: Mapping[str, object],
        content_format: ContentFormat = "auto",
        timeout_s: float | None = None,
    ) -> None:
        """Raises TemplateSyntaxError."""
        environment = chat_environment()
        try:
            ast = environment.parse(source)
            template = environment.from_string(source)
            if timeout_s is not None:
                limited = environment.parse(source)
                limit(environment, limited)
                template = environment.from_string(limited)
        except jinja2.TemplateError as error:
            raise TemplateSyntaxError(str(error)) from error
        self._timeout_s = timeout_s
        self.source = source
        self.variables = frozenset(meta.find_undeclared_variables(ast)) - _RESERVED
        self.content_format = detect_content_format(ast) if content_format == "auto" else content_format
        self.has_developer = "developer" in source
        self._constants: dict[str, Any] = {**template.globals, **constants, "tools": None, "documents": None}
        self._context: Callable[[dict[str, Any], bool], jinja2.runtime.Context] = template.new_context
        self._root: Callable[[jinja2.runtime.Context], Iterable[str]] = template.root_render_func
        self._join = "".join
        flow = Flow(source, constants, self.content_format == "openai") if timeout_s is None else None
        self.skeletons = None if flow is None else Skeletons(flow, self.render)

    def render(
        self,
        messages: list[dict[str, Any]],
        add_generation_prompt: bool,
        extra: Mapping[str, Any] | None = None,
        tools: Sequence[dict[str, Any]] | None = None,
    ) -> str:
        """The prompt's text. `extra` holds only names in `variables` (see `accepted`), or `documents`.

        Raises ApiError with the template's own words when it refuses the conversation.
        """
        if not messages:
            raise ApiError("Cannot apply chat template to an empty conversation. Provide at least one message.")
        names = {**self._constants, "messages": messages, "add_generation_prompt": add_generation_prompt}
        if tools is not None:
            names["tools"] = tools
        if extra:
            names.update(extra)
        if self._timeout_s is not None:
            names[DEADLINE] = time.monotonic() + self._timeout_s
        try:
            return self._join(self._root(self._context(names, True)))
        except RecursionError as error:
            raise ApiError("The chat template recursed too deeply.") from error
        except RenderTimeout as error:
            raise ApiError(_too_slow(self._timeout_s), status=500, kind="InternalServerError") from error
        except Exception as error:  # a template can fail in any way, and it is its input that made it
            raise ApiError(str(error) or type(error).__name__) from error

    def render_continued(
        self,
        messages: list[dict[str, Any]],
        extra: Mapping[str, Any] | None = None,
        tools: Sequence[dict[str, Any]] | None = None,
    ) -> str:
        """The prompt's text, cut right behind the last message's content: the model goes on writing it."""
        if not messages:
            raise ApiError("continue_final_message is set but the conversation is empty!")
        last = dict(messages[-1])
        content = last.get("content")
        if content is None:
            raise ApiError('continue_final_message is set but the final message has no "content" to continue!')
        if isinstance(content, list):
            parts = [dict(part) for part in content]
            part = next((part for part in reversed(parts) if "text" in part), None)
            if part is None:
                raise ApiError(
                    "continue_final_message is set but we could not find any text to continue in the final message!"
                )
            content = part["text"]
            part["text"] = content + _TAG
            last["content"] = parts
        else:
            last["content"] = content + _TAG
        text = self.render([*messages[:-1], last], False, extra, tools)
        if content.strip() not in text or _TAG.strip() not in text:
            raise ApiError(
                "continue_final_message is set but the final message does not appear in the chat after applying the "
                "chat template! This can happen if the chat template deletes portions of the final message."
            )
        at = text.rindex(_TAG.strip())
        # A template that trims its messages has cut the tag's blank: then the text before it is trimmed too.
        return text[:at] if text.startswith(_TAG, at) else text[:at].rstrip()

    def accepted(self, names: Mapping[str, Any]) -> dict[str, Any]:
        """Those of the names that the template reads."""
        return {name: value for name, value in names.items() if name in self.variables}


def _too_slow(timeout_s: float | None) -> str:
    return (
        f"Chat template rendering timed out after {timeout_s}s. This may indicate a malicious or excessively complex "
        "template. Adjust VLLM_CHAT_TEMPLATE_RENDER_TIMEOUT to override."
    )
