"""Encoding chats piece by piece, so that what was tokenized for an earlier request is not tokenized again.

A tokenizer cuts a text at its special tokens first and works on each piece by itself. Pieces repeat: the system
prompt in every request, a chat's earlier turns in each of its later ones. Their ids are kept. What is new is encoded word by word
where the tokenizer allows it (fastfront.render.words).
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterable
from typing import Any

from tokenizers import AddedToken, Tokenizer

from fastfront._speedups.token_ids import Marks, pack, unpack
from fastfront.render.tokenizer import TextTokenizer, component_state
from fastfront.render.words import WordEncoder

_MAX_PIECE_CHARS = 1 << 16
_GENERATION_BYTES = 4 << 20
_ENTRY_BYTES = 256  # of a dictionary entry with its two objects, besides what they hold
# Pre-tokenizers that treat a piece alike wherever it stands in the text.
_LOCAL = frozenset({"ByteLevel", "Split", "Digits", "Punctuation", "Whitespace", "WhitespaceSplit", "BertPreTokenizer"})


class SegmentEncoder:
    """Encodes texts without tokens around them: always the ids that `TextTokenizer.encode(text, False)` gives.

    Shared by all request threads. Two generations of kept pieces: what is used moves to the younger, and when that is
    full the older is dropped; both attributes are replaced under the lock and read without it.
    """

    __slots__ = ("_cut", "_filled_bytes", "_head", "_lock", "_old", "_plain", "_tail", "_words", "_young", "marks")

    def __init__(self, tokenizer: TextTokenizer, texts: Iterable[str]) -> None:
        """Cut at those special tokens that occur in one of the texts (the chat template's, say)."""
        # Requests run in parallel as it is; the library would start threads of its own for every batch.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        self._plain = tokenizer
        self._head, self._tail = pack(tokenizer.prefix_ids), pack(tokenizer.suffix_ids)
        self._words = WordEncoder(tokenizer.raw)
        self._young: dict[str, bytes] = {}
        self._old: dict[str, bytes] = {}
        self._filled_bytes = 0
        self._lock = threading.Lock()
        ids = cutting_tokens(tokenizer.raw, texts)
        split = re.compile("(" + "|".join(map(re.escape, ids)) + ")").split
        self._cut = Marks(ids, split) if ids else None
        if ids and not self._agrees(list(ids)):
            self._cut = None
        self.marks = frozenset(ids) if self._cut is not None else frozenset()

    def encode(self, text: str) -> list[int]:
        """The text's token ids."""
        return unpack(self.packed(text))

    def packed(self, text: str) -> bytes:
        """The same, packed."""
        cut = self._cut
        packed = None if cut is None else cut.encode(text, self._young, self._fetch)
        return self._words.packed(text) if packed is None else packed

    def encode_wrapped(self, text: str) -> list[int]:
        """The same with the tokens that the tokenizer puts around a text."""
        return unpack(self.packed_wrapped(text))

    def packed_wrapped(self, text: str) -> bytes:
        """The same, packed."""
        if not self._plain.wraps:
            return pack(self._plain.encode(text, True))
        if not self._head and not self._tail:
            return self.packed(text)
        return self._head + self.packed(text) + self._tail

    def _fetch(self, piece: str) -> bytes:
        """Packed ids of a piece that is not in the younger generation."""
        old = self._old
        if piece in old:  # never .get(): see docs/structures.md, rules between threads
            kept = old[piece]
        else:
            kept = self._words.packed(piece)
            if len(piece) > _MAX_PIECE_CHARS:
                return kept
        with self._lock:
            if piece not in self._young:
                self._filled_bytes += len(piece) + len(kept) + _ENTRY_BYTES
                if self._filled_bytes > _GENERATION_BYTES:
                    self._old, self._young, self._filled_bytes = self._young, {}, 0
                self._young[piece] = kept
        return kept

    def _agrees(self, marks: list[str]) -> bool:
        """Whether a text full of borders is encoded alike in pieces and as a whole."""
        text = "".join(f"{mark}a {mark} b\n{mark}\n\n{mark}C, d {mark}" for mark in marks) + " end"
        return all(self.encode(form) == self._plain.encode(form, False) for form in (text, "ä" + text))


def cutting_tokens(tokenizer: Tokenizer, texts: Iterable[str]) -> dict[str, int]:
    """The special tokens in the texts at which any text can be cut without changing its ids.

    None if the tokenizer's work on a piece depends on what stands before it.
    """
    if not _is_local(component_state(tokenizer.pre_tokenizer)):
        return {}
    added: dict[int, AddedToken] = tokenizer.get_added_tokens_decoder()
    every = [token.content for token in added.values()]
    sources = list(texts)
    found: dict[str, int] = {}
    for number, token in added.items():
        if not token.special or token.lstrip or token.rstrip or token.single_word:
            continue
        if token.normalized and tokenizer.normalizer is not None:
            continue
        if any(token.content in source for source in sources) and not _overlaps(token.content, every):
            found[token.content] = number
    return found


def _overlaps(mark: str, tokens: Iterable[str]) -> bool:
    """Whether the mark and another token can share characters of a text."""
    heads = tuple(mark[:end] for end in range(1, len(mark)))
    tails = tuple(mark[start:] for start in range(1, len(mark)))
    return any(
        token != mark and (mark in token or token in mark or token.endswith(heads) or token.startswith(tails))
        for token in tokens
    )


def _is_local(state: dict[str, Any]) -> bool:
    kind = state.get("type")
    if kind == "Sequence":
        return all(_is_local(part) for part in state["pretokenizers"])
    if kind == "Metaspace":
        return state.get("prepend_scheme") in ("always", "never")
    return kind is None or kind in _LOCAL
