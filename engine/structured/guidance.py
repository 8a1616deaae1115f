"""llguidance: grammars of what xgrammar does not enforce."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

import numpy as np

from engine.structured.constraint import Constraint, InvalidConstraintError, Kind
from engine.structured.matcher import Words, allow, forbid

_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")
_SCHEMAS = (
    "additionalProperties", "unevaluatedProperties", "propertyNames", "contains", "additionalItems", "unevaluatedItems", "not",
    "if", "then", "else", "contentSchema", "items", "prefixItems", "allOf", "anyOf", "oneOf",
)  # fmt: skip


class GuidanceGrammar:
    """A compiled grammar; its matchers are copies of one that has seen nothing."""

    def __init__(self, beginning: Any, ends: Collection[int], text: str) -> None:
        self._beginning = beginning
        self._ends = ends
        # llguidance does not tell; automata that grow with use are several times the text.
        self.memory_size_bytes = (64 << 10) + 16 * len(text)

    def matcher(self, stops: Collection[int]) -> GuidanceMatcher:
        """One at the beginning of an output that ends with one of the tokens `stops`."""
        return GuidanceMatcher(self._beginning.deep_copy(), self._ends, stops)


class GuidanceMatcher:
    """llguidance's matcher with the methods of xgrammar's, for `engine.structured.matcher.Matcher`, which see.

    A text that is complete may be ended by the request's stop tokens and by no others. Raises RuntimeError when llguidance
    gives up (a limit of its own).
    """

    def __init__(self, matcher: Any, ends: Collection[int], stops: Collection[int]) -> None:
        """`ends` are the tokens that llguidance takes for the end of a text."""
        self._matcher = matcher
        self._ends = ends
        self._stops = stops
        self._ended = False

    def is_terminated(self) -> bool:
        """Whether the text can only be ended now, or has been."""
        if self._ended:
            return True
        stopped: bool = self._matcher.is_stopped()
        if stopped and self._matcher.is_error():
            raise RuntimeError(self._matcher.get_error())
        return stopped

    def fill_next_token_bitmask(self, masks: Words, row: int) -> None:
        """Write the row; not for one that is terminated."""
        words = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.int32)
        if self._matcher.is_error():
            raise RuntimeError(self._matcher.get_error())
        masks[row] = words[: masks.shape[1]]
        forbid(masks, row, self._ends)
        if self._matcher.is_accepting():
            allow(masks, row, self._stops)

    def accept_token(self, token: int) -> bool:
        """Take in a token of the output; False, and nothing done, if it is not allowed."""
        if token in self._stops:
            self._ended = bool(self._matcher.is_accepting())
            return self._ended
        return bool(self._matcher.try_consume_tokens([token]))


def guidance_tokenizer(tokenizer: Any, vocab_size: int) -> Any:
    """llguidance's form of a transformers tokenizer. Raises ValueError for one that is not of the tokenizers library."""
    import llguidance.hf  # noqa: PLC0415 - most engines never need it

    return llguidance.hf.from_tokenizer(tokenizer, max(vocab_size, len(tokenizer)))


def compile_guidance(tokenizer: Any, constraint: Constraint) -> GuidanceGrammar:
    """Compile a JSON schema, regular expression or grammar; raises InvalidConstraintError if there is something wrong with it."""
    import llguidance  # noqa: PLC0415 - as above

    kind, text = constraint.kind, constraint.text
    try:
        if kind is Kind.JSON:
            if constraint.closed:
                text = json.dumps(_closed(json.loads(text)), ensure_ascii=False)
            options: Any = {"whitespace_flexible": constraint.any_whitespace}
            grammar = llguidance.LLMatcher.grammar_from_json_schema(text, defaults=options)
        else:
            grammar = llguidance.grammar_from(kind.value, text)
        beginning = llguidance.LLMatcher(tokenizer, grammar, log_level=0)
    except (ValueError, RecursionError) as error:
        raise _invalid(kind, error) from None
    if beginning.is_error():
        raise _invalid(kind, beginning.get_error())
    return GuidanceGrammar(beginning, tokenizer.eos_tokens, grammar)


def _invalid(kind: Kind, reason: object) -> InvalidConstraintError:
    return InvalidConstraintError(f"structured_outputs: the {kind.value} does not compile: {reason}")


def _closed(schema: Any) -> Any:
    """The schema without further properties wherever it lists some and does not say; changed in place."""
    open_ = [schema]
    while open_:
        item = open_.pop()
        if isinstance(item, list):
            open_ += item
        elif isinstance(item, dict):
            for key in _MAPS:
                if isinstance(item.get(key), dict):
                    open_ += item[key].values()
            open_ += [item[key] for key in _SCHEMAS if key in item]
            if "properties" in item or "patternProperties" in item:
                item.setdefault("additionalProperties", False)
    return schema
