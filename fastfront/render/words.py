"""Encoding text word by word, with the ids of words that came before kept.

Byte-level BPE cuts a text into pre-tokens first, by a regular expression, and works on each by itself. All expressions that
are known here begin a new pre-token at a space that an ASCII letter follows: letters take in one character before them, and
nothing but a run of spaces goes on across a space. So a text can be cut there without changing its ids, and words repeat.
"""

from __future__ import annotations

import re
import threading
from typing import Any

from tokenizers import Tokenizer
from tokenizers.models import BPE

from fastfront._speedups.token_ids import join_words, pack, unpack
from fastfront.render.tokenizer import component_state

MOST_WORDS = 16_384  # of a generation
MOST_CHARS = 32  # of a word that is kept
FEW_WORDS = 3  # a text with fewer is encoded as it is
MOST_NEW = 16  # unknown words that are encoded by themselves; beyond them and beyond a quarter, the text is encoded as a whole
_LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN = _LLAMA_3.replace("{1,3}", "")
_O200K = (  # gpt-oss
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_DEEPSEEK_V3 = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^RN\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[RN]*|"""
    r"""\s*[RN]+|\s+(?!\S)|\s+"""
).replace("RN", "\r\n")  # which its file writes out
_KNOWN_SPLITS = frozenset({_LLAMA_3, _QWEN, _O200K, _DEEPSEEK_V3})
_HARMLESS_SPLITS = frozenset({r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"})  # they cut more, elsewhere
_CUT = re.compile(r"(?<=[A-Za-z0-9.,;:!?)\"'])(?= [A-Za-z])")
_ENDS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.,;:!?)\"'")
_STARTS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
_PROBE = "It's 12 o'clock, 345 sharp; (don't\n\n  wait)  Ünïcode wörds 日本 語 and \t tabs  x\u0301 y end. A B'C d\u00a0e\u2003f"


class Words:
    """Packed ids of words: of a text's first ones as they are, of others without the space before them. A word is only in here
    if a text may be cut before and behind it wherever it stands."""

    __slots__ = ("first", "later")

    def __init__(self) -> None:
        self.first: dict[str, bytes] = {}
        self.later: dict[str, bytes] = {}


class WordEncoder:
    """Encodes texts without tokens around them: always the ids that the tokenizer gives. Shared by all request threads.

    Words are kept in two generations: what is used moves to the younger, and when that is full the older is dropped. Both
    attributes are replaced under the lock and read without it. `useful` is False if this tokenizer's texts cannot be cut.
    """

    __slots__ = ("_batch", "_encode", "_lock", "_old", "_young", "useful")

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._batch = tokenizer.encode_batch_fast
        self._encode = tokenizer.encode
        self._young = Words()
        self._old = Words()
        self._lock = threading.Lock()
        self.useful = can_be_cut(tokenizer)
        if self.useful:
            self.useful = all(self.packed(_PROBE) == self._whole(_PROBE) for _ in range(2))

    def encode(self, text: str) -> list[int]:
        """The text's token ids."""
        return unpack(self.packed(text))

    def packed(self, text: str) -> bytes:
        """The same, packed."""
        if not self.useful or text.count(" ") < FEW_WORDS - 1:
            return self._whole(text)
        young = self._young
        known = join_words(text, young.first, young.later)
        return self._in_pieces(text) if known is None else known

    def _whole(self, text: str) -> bytes:
        return pack(self._encode(text, None, False, False).ids)

    def _in_pieces(self, text: str) -> bytes:
        """Encodes the words that are not known by themselves, unless they are many."""
        pieces = _CUT.split(text)
        known: dict[str, bytes] = {}  # by piece; a text's first one may begin with a space too, and has the same ids then
        new: dict[str, None] = {}
        for place, piece in enumerate(pieces):
            ids = self._kept(piece, place > 0)
            if ids is None:
                new[piece] = None
            else:
                known[piece] = ids
        many = len(new) > MOST_NEW and 4 * len(new) > len(pieces)
        some = [piece for piece in new if len(piece) <= MOST_CHARS][:MOST_NEW] if many else list(new)
        for piece, encoding in zip(some, self._batch(some, add_special_tokens=False), strict=True):
            known[piece] = pack(encoding.ids)
            if len(piece) <= MOST_CHARS:
                self._keep(piece, piece is not pieces[0], known[piece])
        if many:
            return self._whole(text)
        return b"".join(map(known.__getitem__, pieces))

    def _kept(self, piece: str, later: bool) -> bytes | None:
        """What is known of a piece; from now on in the younger generation."""
        key = piece[1:] if later else piece
        for generation in (self._young, self._old):
            words = generation.later if later else generation.first
            if key in words:
                ids = words[key]
                if generation is not self._young:
                    self._keep(piece, later, ids)
                return ids
        return None

    def _keep(self, piece: str, later: bool, ids: bytes) -> None:
        key = piece[1:] if later else piece
        if " " in key or key[-1:] not in _ENDS or (later and key[0] not in _STARTS):
            return
        with self._lock:
            young = self._young
            if len(young.first) + len(young.later) >= MOST_WORDS:
                self._old, self._young = young, Words()
            (self._young.later if later else self._young.first)[key] = ids


def can_be_cut(tokenizer: Tokenizer) -> bool:
    """Whether a space between a letter, digit or mark and an ASCII letter always begins a pre-token."""
    state = component_state(tokenizer.pre_tokenizer)
    parts = state["pretokenizers"] if state.get("type") == "Sequence" else [state]
    kinds = [_kind(part) for part in parts]
    return (
        "words" in kinds
        and "other" not in kinds
        and isinstance(tokenizer.model, BPE)
        and not tokenizer.model.dropout
        and _keeps_spaces(component_state(tokenizer.normalizer))
        and not any(
            token.lstrip or token.rstrip or token.single_word or _CUT.search(token.content)
            for token in tokenizer.get_added_tokens_decoder().values()
        )
    )


def _kind(part: dict[str, Any]) -> str:
    match part.get("type"):
        case "Digits":
            return "harmless"
        case "ByteLevel" if not part.get("add_prefix_space"):
            return "words" if part.get("use_regex") else "harmless"
        case "Split" if part.get("behavior") == "Isolated" and not part.get("invert"):
            pattern = part["pattern"].get("Regex")
            return "words" if pattern in _KNOWN_SPLITS else "harmless" if pattern in _HARMLESS_SPLITS else "other"
        case _:
            return "other"


def _keeps_spaces(normalizer: dict[str, Any]) -> bool:
    """NFC composes nothing with a space, and leaves ASCII alone."""
    if normalizer.get("type") == "Sequence":
        return all(_keeps_spaces(part) for part in normalizer["normalizers"])
    return normalizer.get("type") in (None, "NFC")
