"""Drafts looked up in a request's own tokens: prompt lookup decoding (Saxena, 2023)."""

from __future__ import annotations

from array import array
from typing import NamedTuple

_TOKEN_BYTES = array("i").itemsize


class Drafting(NamedTuple):
    """`tokens` are drafted at most; runs of `least` to `most` tokens are looked up, long ones first."""

    tokens: int
    least: int
    most: int


class Lookup:
    """What one request has so far, for searching. Owned by the scheduler."""

    def __init__(self) -> None:
        self._text = bytearray()

    def propose(self, tokens: list[int], drafting: Drafting, count: int) -> list[int]:
        """Up to `count` tokens that followed the last ones of `tokens` where those came first; none if they are new.

        `tokens` are those of earlier calls and what has come since.
        """
        self._text += array("i", tokens[len(self._text) // _TOKEN_BYTES :]).tobytes()
        for length in range(min(drafting.most, len(tokens) - 1), drafting.least - 1, -1):
            at = self._find(length)
            if at >= 0:
                return tokens[at + length : at + length + count]
        return []

    def _find(self, length: int) -> int:
        """Where the last `length` tokens come first, not counting the end itself; -1: nowhere."""
        text = self._text
        wanted = text[len(text) - length * _TOKEN_BYTES :]
        at = text.find(wanted, 0, len(text) - _TOKEN_BYTES)
        while at >= 0 and at % _TOKEN_BYTES:            # halves of two tokens
            at = text.find(wanted, at + 1, len(text) - _TOKEN_BYTES)
        return at // _TOKEN_BYTES if at >= 0 else -1


class DraftCounts:
    """How drafts fared: by step for one request, or in all. `by_accepted[n]`: of how many drafts n tokens were accepted."""

    def __init__(self, drafting: Drafting) -> None:
        self.most = drafting.tokens
        self.by_accepted = [0] * (drafting.tokens + 1)
        self.by_drafted = [0] * (drafting.tokens + 1)
        self.accepted: list[int] = []
        self.drafted: list[int] = []

    def note(self, drafted: int, accepted: int, detailed: bool = False) -> None:
        """One draft, and how many of its tokens were accepted."""
        self.by_accepted[accepted] += 1
        self.by_drafted[drafted] += 1
        if detailed:
            self.accepted.append(accepted)
            self.drafted.append(drafted)

    def of_request(self) -> dict[str, object]:
        """As the wire has it for a request."""
        return {
            "num_spec_tokens": self.most, "histogram": self.by_accepted, "num_draft_tokens": _total(self.by_drafted),
            "per_step_accepted": self.accepted, "per_step_drafted": self.drafted,
        }  # fmt: skip

    def of_scheduler(self) -> dict[str, object] | None:
        """As the wire has it for an engine; None if there was no draft."""
        if not any(self.by_drafted):
            return None
        return {
            "num_spec_tokens": self.most, "num_drafts": sum(self.by_drafted), "num_draft_tokens": _total(self.by_drafted),
            "num_accepted_tokens": _total(self.by_accepted), "num_accepted_tokens_per_pos": _by_place(self.by_accepted),
            "num_draft_tokens_per_pos": _by_place(self.by_drafted),
        }  # fmt: skip


def _total(counts: list[int]) -> int:
    return sum(n * count for n, count in enumerate(counts))


def _by_place(counts: list[int]) -> list[int]:
    """How many of the drafts reached each place."""
    return [sum(counts[place:]) for place in range(1, len(counts))]
