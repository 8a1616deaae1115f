"""What a tokenizer's decoder does to one token, read from its JSON description.

Only decoders that work token by token (apart from joining bytes) get a plan; for all others `plan_for` returns None and
the tokenizer itself has to decode.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tokenizers import Tokenizer

Text = str | None
"""Text of one token id; None for an id without a token."""

_CLEANUPS = (
    (" .", "."),
    (" ?", "?"),
    (" !", "!"),
    (" ,", ","),
    (" ' ", "'"),
    (" n't", "n't"),
    (" 'm", "'m"),
    (" do not", " don't"),
    (" 's", "'s"),
    (" 've", "'ve"),
    (" 're", "'re"),
)


@dataclass(frozen=True, slots=True)
class DecoderPlan:
    """`texts` and `first_texts` turn all tokens into their texts elsewhere in a sequence and at its start.

    kind "byte_level": tokens are spelled in the byte alphabet; no texts. "pieces": `byte_runs` says whether <0xXX>
    pieces are bytes, `strip` whether one leading space of the whole output is dropped.
    """

    kind: Literal["byte_level", "pieces", "words"]
    byte_runs: bool = False
    strip: bool = False
    replace: tuple[str, str] | None = None
    metaspace: tuple[str, bool] | None = None
    wordpiece: tuple[str, bool] | None = None

    def texts(self, tokens: Sequence[Text]) -> Sequence[Text]:
        """Text of each token where it is not the first."""
        if self.replace is not None:
            old, new = self.replace
            return [token and token.replace(old, new) for token in tokens]
        if self.metaspace is not None:
            return [token and token.replace(self.metaspace[0], " ") for token in tokens]
        if self.wordpiece is None:
            return [None if token is None else " " + token for token in tokens]
        prefix, cleanup = self.wordpiece
        size = len(prefix)
        joined = [
            None if token is None else token[size:] if token.startswith(prefix) else " " + token for token in tokens
        ]
        return [_cleaned(text) for text in joined] if cleanup else joined

    def first_texts(self, tokens: Sequence[Text]) -> Sequence[Text] | None:
        """Text of each token where it is the first of its sequence; None if that makes no difference."""
        if self.metaspace is not None:
            mark, drop = self.metaspace
            return [token and token.replace(mark, "") for token in tokens] if drop else None
        if self.kind == "words":
            cleanup = self.wordpiece is not None and self.wordpiece[1]
            return [_cleaned(token) for token in tokens] if cleanup else tokens
        return None


def _cleaned(text: Text) -> Text:
    if text and " " in text:
        for old, new in _CLEANUPS:
            text = text.replace(old, new)
    return text


def plan_for(tokenizer: Tokenizer) -> DecoderPlan | None:
    """The plan for the tokenizer's decoder, or None if only the tokenizer can decode."""
    if tokenizer.decoder is None:
        return DecoderPlan("words")
    try:
        state: bytes = tokenizer.decoder.__getstate__()
    except Exception:  # a decoder written in Python has no description
        return None
    return _plan(json.loads(state))


def _plan(decoder: dict[str, Any]) -> DecoderPlan | None:
    match decoder:
        case {"type": "Sequence", "decoders": [only]}:
            return _plan(only)
        case {"type": "ByteLevel"}:
            return DecoderPlan("byte_level")
        case {"type": "Sequence", "decoders": [{"type": "ByteLevel"}, {"type": "Fuse"}]}:
            return DecoderPlan("byte_level")
        case {"type": "Metaspace", "replacement": str(mark)}:
            if "prepend_scheme" not in decoder:
                return None
            return DecoderPlan("pieces", metaspace=(mark, decoder["prepend_scheme"] != "never"))
        case {"type": "WordPiece", "prefix": str(prefix), "cleanup": bool(cleanup)}:
            return DecoderPlan("words", wordpiece=(prefix, cleanup))
        case {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": str(old)}, "content": str(new)},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                *rest,
            ],
        } if old:
            match rest:
                case []:
                    return DecoderPlan("pieces", byte_runs=True, replace=(old, new))
                case [{"type": "Strip", "content": " ", "start": 1, "stop": 0}]:
                    return DecoderPlan("pieces", byte_runs=True, strip=True, replace=(old, new))
    return None


def has_byte_runs(tokenizer: Tokenizer) -> bool:
    """Whether <0xXX> tokens may be bytes for this tokenizer's decoder."""
    try:
        return tokenizer.decoder is not None and b"ByteFallback" in tokenizer.decoder.__getstate__()
    except Exception:  # a decoder written in Python: nothing is known about it
        return True
