"""xgrammar and llguidance: from constraints to compiled grammars for a model's vocabulary."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from typing import Any

from engine.protocol import SamplingParams
from engine.structured.constraint import Constraint, InvalidConstraintError, Kind
from engine.structured.guidance import GuidanceGrammar, compile_guidance, guidance_tokenizer
from engine.structured.matcher import Matcher
from engine.structured.reasoning import Markers

_PLACE = re.compile(r"^\[[\d:]+\] \S+: (?:Check failed: \(.*?\) is false: )?")


class GrammarCompiler:
    """Compiles for the tokenizer of a model folder, which is read on first use. Any thread may call."""

    def __init__(
        self,
        folder: str,
        vocab_size: int,
        reasoning_start: Sequence[str] = (),
        reasoning_end: Sequence[str] = (),
        reasoning_cut: str | None = None,
    ) -> None:
        """`vocab_size` is the width of the model's logits; ids that the tokenizer does not know are never allowed.

        The model's reasoning ends with one of the texts `reasoning_end`; without any it does none. `reasoning_cut` is written
        where a budget ends it, instead of the first of them.
        """
        self.vocab_size = vocab_size
        self.markers: Markers | None = None
        self.reasons = bool(reasoning_end)
        self._texts = (tuple(reasoning_start), tuple(reasoning_end), () if reasoning_cut is None else (reasoning_cut,))
        self._folder = folder
        self._lock = threading.Lock()
        self._compiler: Any = None
        self._tokenizer: Any = None
        self._guidance_tokenizer: Any = None
        self._stops: list[int] = []

    def prepare(self) -> None:
        """Read the tokenizer: `markers` are known then."""
        self._ready()

    def compile(self, constraint: Constraint) -> Any:
        """The compiled grammar; raise InvalidConstraintError if there is something wrong with the constraint."""
        compiler = self._ready()
        if constraint.guidance:
            return compile_guidance(self._for_guidance(), constraint)
        kind, text = constraint.kind, constraint.text
        try:
            if kind is Kind.JSON:
                return compiler.compile_json_schema(text, any_whitespace=constraint.any_whitespace)
            if kind is Kind.REGEX:
                return compiler.compile_regex(text)
            if kind is Kind.STRUCTURAL_TAG:
                return compiler.compile_structural_tag(text)
            return compiler.compile_grammar(text) if "::=" in text else compiler.compile_lark(text)
        except (RuntimeError, ValueError, TypeError) as error:
            reason = _PLACE.sub("", str(error).strip())
            raise InvalidConstraintError(f"structured_outputs: the {kind.value} does not compile: {reason}") from None

    def matcher(self, grammar: Any, params: SamplingParams) -> Matcher:
        """A matcher at the beginning of the output; the request's stop tokens end it, or the tokenizer's if it has none."""
        import xgrammar  # noqa: PLC0415

        wanted = {*params.all_stop_token_ids, *(params.stop_token_ids or ())}
        if params.eos_token_id is not None:
            wanted.add(params.eos_token_id)
        stops = sorted(token for token in wanted if 0 <= token < self.vocab_size) or self._stops
        if isinstance(grammar, GuidanceGrammar):
            return Matcher(grammar.matcher(stops), stops)
        try:
            return Matcher(xgrammar.GrammarMatcher(grammar, override_stop_tokens=stops or None), stops)
        except (RuntimeError, ValueError):
            return Matcher(None, stops)

    def _ready(self) -> Any:
        with self._lock:
            if self._compiler is None:
                # Late: both take seconds, and most engines never need them.
                import transformers  # noqa: PLC0415
                import xgrammar  # noqa: PLC0415

                self._tokenizer = tokenizer = transformers.AutoTokenizer.from_pretrained(self._folder)
                info = xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=self.vocab_size)
                self._stops = list(info.stop_token_ids)
                starts, ends, cuts = (tuple(_ids(tokenizer, text) for text in texts) for texts in self._texts)
                self.markers = Markers(starts, ends, cuts[0] if cuts else ()) if ends else None
                # One thread: the cores belong to the model. What is worth keeping is cached by those who call this.
                self._compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
            return self._compiler

    def _for_guidance(self) -> Any:
        with self._lock:
            if self._guidance_tokenizer is None:
                self._guidance_tokenizer = guidance_tokenizer(self._tokenizer, self.vocab_size)
            return self._guidance_tokenizer


def _ids(tokenizer: Any, text: str) -> tuple[int, ...]:
    return tuple(tokenizer.encode(text, add_special_tokens=False))
