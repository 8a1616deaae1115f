"""From a chat to the prompt's text: which template, what it is given."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fastfront._speedups.plain_chat import plain_chat
from fastfront.config import ContentFormat
from fastfront.errors import ApiError, SetupError
from fastfront.render.lookup import find_chat_templates
from fastfront.render.messages import BILLING_HEADER, Message, conversation_of, merge_developer
from fastfront.render.shown_tools import ShownTools
from fastfront.render.template import ChatTemplate, TemplateSyntaxError
from fastfront.render.tokenizer import TextTokenizer

_MAX_REQUEST_TEMPLATES = 32


class ChatRenderer:
    """The model's templates, compiled, and bounded stores of templates that trusted requests bring along and of their tools.

    Shared by all request threads; only these stores change, under their locks.
    """

    def __init__(
        self,
        default: ChatTemplate | None,
        tool_use: ChatTemplate | None,
        tokens: Mapping[str, Any],
        content_format: ContentFormat,
        default_kwargs: Mapping[str, Any],
        timeout_s: float | None = None,
    ) -> None:
        self.default = default
        self._tool_use = tool_use
        self._tokens = tokens
        self._content_format = content_format
        self._default_kwargs = dict(default_kwargs)
        self._timeout_s = timeout_s
        self.shown_tools = ShownTools()
        self._request_templates: dict[str, ChatTemplate] = {}
        self._lock = threading.Lock()

    @classmethod
    def build(
        cls,
        folder: Path,
        tokenizer: TextTokenizer,
        given: str | None,
        content_format: ContentFormat,
        default_kwargs: Mapping[str, Any],
        timeout_s: float | None = None,
    ) -> ChatRenderer:
        """Find and compile the templates; `given` is the text that takes their place. Raises SetupError.

        A template that a request brings may take `timeout_s` to render.
        """
        sources = {"default": given} if given is not None else find_chat_templates(folder, tokenizer.config)
        compiled: dict[str, ChatTemplate] = {}
        for name in ("default", "tool_use"):
            if name in sources:
                try:
                    compiled[name] = ChatTemplate(sources[name], tokenizer.special_tokens, content_format)
                except TemplateSyntaxError as error:
                    raise SetupError(f"the chat template ({name}) does not compile: {error}") from error
        default = compiled.get("default")
        tool_use = compiled.get("tool_use", default)
        return cls(default, tool_use, tokenizer.special_tokens, content_format, default_kwargs, timeout_s)

    def sources(self) -> list[str]:
        """The texts of the model's templates."""
        return [template.source for template in (self.default, self._tool_use) if template is not None]

    def system_comes_first(self) -> bool:
        """Whether a template refuses a system message that stands behind others."""
        turns: list[Message] = [{"role": role, "content": "t"} for role in ("system", "user", "system", "user")]
        try:
            for template in (self.default, self._tool_use):
                if template is None:
                    return True
                shown = conversation_of(turns, template.content_format == "openai", "")
                template.render(shown, False, {}, None)
        except ApiError:
            return True
        return False

    def no_effort(self) -> str:
        """The least effort of reasoning that the template knows: "none" if that changes the prompt, else "low"."""
        prompts: list[str] = []
        try:
            for effort in ("none", "low", "medium", "high", "xhigh", "max"):
                own = {"reasoning_effort": effort, "enable_thinking": effort != "none"}
                template = self.template_for(False, None)
                shown = conversation_of([{"role": "user", "content": "Hi"}], template.content_format == "openai", "")
                prompts.append(template.render(shown, True, self.kwargs(template, own)))
        except ApiError:
            return "none" if prompts and prompts[0] not in prompts[1:] else "low"
        return "low" if prompts[0] in prompts[1:] else "none"

    def template_for(self, tools: bool, given: str | None) -> ChatTemplate:
        """The template of a request; `given` is the one it brought, already known to be trusted. Raises ApiError."""
        if given is not None:
            return self._request_template(given)
        template = self._tool_use if tools else self.default
        if template is None:
            raise ApiError(
                "As of transformers v4.44, default chat template is no longer allowed, so you must provide a chat "
                "template if the tokenizer does not define one."
            )
        return template

    def conversation(self, template: ChatTemplate, messages: list[Message], model: str) -> list[Message]:
        """The messages, which have the shapes of chat messages, in the form the template reads. Raises ApiError."""
        conversation = conversation_of(messages, template.content_format == "openai", model)
        return conversation if template.has_developer else merge_developer(conversation)

    def quick(self, template: ChatTemplate, messages: list[Any], add_generation_prompt: bool) -> tuple[Message, str] | None:
        """The last message and the prompt's text of a chat that needs no look at its messages' shapes and no run of the template.

        `messages` are as they came; the template gets no further names. None for all other chats.
        """
        skeletons = template.skeletons
        if skeletons is None or self._default_kwargs or (plain := plain_chat(messages)) is None:
            return None
        roles, texts = plain
        text = skeletons.fill(roles, texts, add_generation_prompt)
        if text is None or ("s" in roles and any(text.startswith(BILLING_HEADER) for text in texts)):
            return None
        content: Any = [{"type": "text", "text": texts[-1]}] if template.content_format == "openai" else texts[-1]
        return {"role": messages[-1]["role"], "content": content}, text

    def fill(self) -> Callable[[str, list[str], bool], str | None] | None:
        """What makes the prompts of chats of nothing but texts (`Skeletons.fill`); None if the template has to be run for all."""
        if self.default is None or self.default.skeletons is None or self._default_kwargs:
            return None
        return self.default.skeletons.fill

    def kwargs(self, template: ChatTemplate, own: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """The names the template gets besides the usual ones: the server's defaults under the request's own."""
        if not own and not self._default_kwargs:
            return None
        return template.accepted(self.all_kwargs(own))

    def all_kwargs(self, own: Mapping[str, Any] | None) -> dict[str, Any]:
        """The same with those that no template knows."""
        return {**self._default_kwargs, **(own or {})}

    def _request_template(self, source: str) -> ChatTemplate:
        with self._lock:
            template = self._request_templates.get(source)
        if template is None:
            try:
                template = ChatTemplate(source, self._tokens, self._content_format, self._timeout_s)
            except TemplateSyntaxError as error:
                raise ApiError(str(error)) from error
            with self._lock:
                if len(self._request_templates) >= _MAX_REQUEST_TEMPLATES:
                    del self._request_templates[next(iter(self._request_templates))]
                self._request_templates[source] = template
        return template
