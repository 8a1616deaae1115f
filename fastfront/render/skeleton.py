"""Prompts of chats of nothing but texts, made without running the template: its fixed text, with the texts put in."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from string import ascii_letters
from typing import Any

from fastfront._speedups.plain_chat import Form, Guards
from fastfront.render.text_flow import ROLES, Flow

MOST_SKELETONS = 1024  # of one template
MOST_MESSAGES = 128  # of a chat that has one
_TRIES = 20  # to find texts that pass
_CHARS = 16  # of each


class Skeletons:
    """The fixed texts of one template by the roles of chats, as far as it is known to have them (`text_flow`).

    Shared by all request threads: written under the lock, read without.
    """

    __slots__ = ("_flow", "_forms", "_lock", "_render")

    def __init__(self, flow: Flow, render: Callable[[list[dict[str, Any]], bool], str]) -> None:
        """`render(messages, add_generation_prompt)` runs the template; it may raise."""
        self._flow = flow
        self._render = render
        self._forms: dict[str, Form | None] = {}
        self._lock = threading.Lock()

    def fill(self, roles: str, texts: list[str], add_generation_prompt: bool) -> str | None:
        """The prompt of a chat as `plain_chat` gives it; None if the template has to be run."""
        key = roles + "+" if add_generation_prompt else roles
        forms = self._forms
        if key in forms:  # never .get(): see docs/structures.md, rules between threads
            form = forms[key]
            if form is None:
                return None
            text = form.fill(texts)
            if text is not None or not form.expired:
                return text
        elif not roles or len(roles) > MOST_MESSAGES or len(forms) >= MOST_SKELETONS:
            return None
        form = self._made(roles, add_generation_prompt)
        with self._lock:
            forms[key] = form
        return None if form is None else form.fill(texts)

    def _made(self, roles: str, add_generation_prompt: bool) -> Form | None:
        """The fixed text, if the template gives the same for some texts that pass."""
        form = self._flow.form(roles, add_generation_prompt)
        if form is None:
            return None
        texts = [_some_text(form.guards) for _ in roles]
        messages = [{"role": ROLES[role], "content": self._flow.content(text)} for role, text in zip(roles, texts, strict=True)]
        try:
            text = self._render(messages, add_generation_prompt)
        except Exception:  # it says so when it is run
            return None
        return form if form.fill(texts) == text else None


def _some_text(guards: Guards) -> str:
    """One that passes, if such a text does not take long to find."""
    for _ in range(_TRIES):
        text = "".join(secrets.choice(ascii_letters) for _ in range(_CHARS))
        if guards.pass_all([text]):
            break
    return text
