"""How the answers to one chat request are read."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from fastfront.metrics.tool_calls import Read, ToolCallCounts
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
    counts: ToolCallCounts
    request_type: str

    def ended(self, called: bool) -> None:
        """An answer has been read to its end."""
        if self.plan.parsers.tools is not None and self.plan.choice != "none":
            mode = "streaming" if self.plan.stream else "non_streaming"
            self.counts.add(Read(mode, "tool_call" if called else "no_tool_call", self.request_type))

    def counter(self) -> ReasoningCounter | None:
        """A counter for one choice; None if the server's answers have no reasoning."""
        reasoning = self.plan.parsers.reasoning
        if reasoning is None:
            return None
        return ReasoningCounter(reasoning, self.tokenizer.raw.token_to_id, self.special_ids, self.start.off)
