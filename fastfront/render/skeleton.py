"""Prompts of chats of nothing but texts, made without running the template: its fixed text, with the texts put in."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from typing import Any

from fastfront._speedups.plain_chat import Guards

MOST_SKELETONS = 1024  # of one template
MOST_MESSAGES = 64  # of a chat that has one
ROLES = {"u": "user", "a": "assistant", "s": "system"}


class Skeletons:
    """The fixed texts of one template by the roles of chats, for templates that are proved to have them (`text_flow`).

    Shared by all request threads: written under the lock, read without.
    """

    __slots__ = ("_formats", "_guards", "_lock", "_mark", "_render")

    def __init__(self, guards: Guards, render: Callable[[list[dict[str, Any]], bool], str]) -> None:
        """`render(messages, add_generation_prompt)` runs the template; it may raise."""
        self._guards = guards
        self._render = render
        self._formats: dict[str, str | None] = {}
        self._lock = threading.Lock()
        self._mark = secrets.token_hex(8)

    def fill(self, roles: str, texts: list[str], add_generation_prompt: bool) -> str | None:
        """The prompt of a chat as `plain_chat` gives it; None if the template has to be run."""
        if not self._guards.pass_all(texts):
            return None
        key = roles + "+" if add_generation_prompt else roles
        formats = self._formats
        if key in formats:  # never .get(): see docs/structures.md, rules between threads
            form = formats[key]
        elif len(roles) > MOST_MESSAGES or len(formats) >= MOST_SKELETONS:
            return None
        else:
            form = self._made(roles, add_generation_prompt)
            with self._lock:
                formats[key] = form
        return None if form is None else form % tuple(texts)

    def _made(self, roles: str, add_generation_prompt: bool) -> str | None:
        """The fixed text with a %s for each message's, in their order and once each; None if that is not how they are printed."""
        marks = [f"{self._mark}.{place}." for place in range(len(roles))]
        messages = [{"role": ROLES[role], "content": mark} for role, mark in zip(roles, marks, strict=True)]
        if not messages or not self._guards.pass_all(marks):
            return None
        try:
            text = self._render(messages, add_generation_prompt)
        except Exception:  # whatever the template has against these roles it says when it is run
            return None
        pieces = []
        for mark in marks:
            piece, found, text = text.partition(mark)
            if not found:
                return None
            pieces.append(piece)
        if self._mark in "".join(pieces) + text:
            return None
        return "%s".join(piece.replace("%", "%%") for piece in [*pieces, text])
