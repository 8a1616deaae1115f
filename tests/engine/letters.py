"""Constraints on a tiny vocabulary: a tokenizer whose tokens are single characters, and a stand-in for a compiler."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np

from engine.protocol import SamplingParams
from engine.structured.constraint import Constraint, InvalidConstraintError
from engine.structured.matcher import Matcher
from engine.structured.reasoning import Markers

SPECIAL = ["<pad>", "<bos>", "<eos>"]
EOS = 2
FIRST = 32
"""Characters 32..126 are the tokens 3..97."""


def encode(text: str) -> list[int]:
    return [ord(character) - FIRST + len(SPECIAL) for character in text]


def decode(tokens: list[int]) -> str:
    return "".join(chr(token - len(SPECIAL) + FIRST) for token in tokens if token >= len(SPECIAL))


def save_tokenizer(folder: Path) -> None:
    """Make it the tokenizer of a model folder."""
    import tokenizers  # noqa: PLC0415 - only for those who ask
    import transformers  # noqa: PLC0415

    # Byte-level tokenizers write a space as U+0120.
    characters = ["\u0120", *map(chr, range(FIRST + 1, 127))]
    vocab = {token: index for index, token in enumerate([*SPECIAL, *characters])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=SPECIAL[0], bos_token=SPECIAL[1], eos_token=SPECIAL[2]
    )
    fast.save_pretrained(folder)


class Word:
    """Stands in for a compiled grammar: exactly this text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.memory_size_bytes = 100


class _Spelling:
    """What a Matcher needs of xgrammar's, for one word of tokens in a row."""

    def __init__(self, tokens: list[int], stop: int) -> None:
        self._left = [*tokens, stop]

    def is_terminated(self) -> bool:
        return not self._left

    def fill_next_token_bitmask(self, masks: Any, row: int) -> None:
        masks.view(np.uint32)[row, self._left[0] // 32] |= np.uint32(1 << self._left[0] % 32)

    def accept_token(self, token: int) -> bool:
        return bool(self._left) and token == self._left.pop(0)


class Letters:
    """Stands in for the compiler: regex X allows the text X. Compiles while `gate` is set."""

    vocab_size = 128
    markers: Markers | None = None

    def __init__(self, later: Markers | None = None) -> None:
        """`later` are the markers from the first use on."""
        self._later = later
        self.reasons = later is not None
        self.gate = threading.Event()
        self.gate.set()
        self.compiled: list[str] = []

    def prepare(self) -> None:
        assert self.gate.wait(30)
        self.markers = self._later

    def compile(self, constraint: Constraint) -> Word:
        assert self.gate.wait(30)
        self.markers = self._later or self.markers
        self.compiled.append(constraint.text)
        if constraint.text == "bad":
            raise InvalidConstraintError("no good")
        return Word(constraint.text)

    def matcher(self, grammar: Word, params: SamplingParams) -> Matcher:
        return Matcher(_Spelling(encode(grammar.text), EOS), [EOS])
