"""Logprobs of a beam's tokens, in the shapes of chats and completions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fastfront.openai.beams.search import Beam, NextTokens
from fastfront.render.tokenizer import TextTokenizer

Object = dict[str, Any]
TokenText = Callable[[int], str]


def token_text(tokenizer: TextTokenizer, as_ids: bool) -> TokenText:
    """How a token is shown: by itself, without what stands before it."""
    return (lambda token: f"token_id:{token}") if as_ids else (lambda token: tokenizer.decode([token]))


def chat_entries(beam: Beam, most: int, text: TokenText) -> list[Object]:
    """An entry for each token, with at most that many alternatives (-1: all)."""
    return [_entry(token, step, most, text) for token, step in zip(beam.tokens, beam.steps, strict=False)]


def _entry(token: int, step: NextTokens, most: int, text: TokenText) -> Object:
    others = list(step.items()) if most < 0 else list(step.items())[:most]
    alternatives = [_alternative(*item, text) for item in others]
    return {"token": text(token), "logprob": step[token], "bytes": None, "top_logprobs": alternatives}


def _alternative(token: int, logprob: float, text: TokenText) -> Object:
    shown = text(token)
    return {"token": shown, "logprob": logprob, "bytes": list(shown.encode("utf-8", "replace"))}


def completion_lists(beam: Beam, most: int, text: TokenText) -> Object:
    """The four lists of a completion's logprobs; a token's map has at most one more than `most` (-1: all)."""
    tokens = [text(token) for token in beam.tokens]
    return {
        "text_offset": offsets(tokens),
        "token_logprobs": [step[token] for token, step in zip(beam.tokens, beam.steps, strict=False)],
        "tokens": tokens,
        "top_logprobs": [_map(step, most, text) for _, step in zip(beam.tokens, beam.steps, strict=False)],
    }


def offsets(tokens: Sequence[str]) -> list[int]:
    """Where each of the tokens begins in the text that they make."""
    found, at = [], 0
    for token in tokens:
        found.append(at)
        at += len(token)
    return found


def _map(step: NextTokens, most: int, text: TokenText) -> Object:
    items = list(step.items())
    return {text(token): logprob for token, logprob in (items if most < 0 else items[: most + 1])}
