"""How the answers to one chat request are read."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from fastfront.openai.reasoning.count import ReasoningCounter
from fastfront.openai.reasoning.prompt import Start
from fastfront.openai.tools.choice import Plan
from fastfront.render.tokenizer import TextTokenizer


class Reading(NamedTuple):
    """The request's plan, how reading begins after its prompt, and what counting tokens of reasoning needs."""

    plan: Plan
    start: Start
    tokenizer: TextTokenizer
    special_ids: Collection[int]

    def counter(self) -> ReasoningCounter | None:
        """A counter for one choice; None if the server's answers have no reasoning."""
        reasoning = self.plan.parsers.reasoning
        if reasoning is None:
            return None
        return ReasoningCounter(reasoning, self.tokenizer.raw.token_to_id, self.special_ids, self.start.off)
