"""Request bodies: random prompts of common words, or prompts from a file."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.load.options import Load, LoadError

WORDS = tuple((Path(__file__).parent / "words.txt").read_text().split())

VARIED = ["with", "that", "this", "from"]


def bodies(load: Load) -> Iterator[str]:
    """The JSON lines to send in turn. Raises LoadError for a prompts file that has none or other content."""
    if load.prompts is None:
        for number, prompt in enumerate(random_prompts(load.distinct, load.prompt_tokens, load.seed)):
            yield body(load, prompt, _mixed(load, number))
        return
    count = 0
    try:
        with load.prompts.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield body(load, _prompt(line, f"{load.prompts}:{number}"), _mixed(load, count))
                    count += 1
    except OSError as error:
        raise LoadError(f"prompts: {error}") from error
    if count == 0:
        raise LoadError(f"prompts: {load.prompts} is empty")


def random_prompts(count: int, words: int, seed: int) -> Iterator[str]:
    """So many texts of so many common words, the same for the same seed; see `vary_at` for their beginning."""
    rng = random.Random(seed)
    for _ in range(count):
        yield " ".join((VARIED + rng.choices(WORDS, k=words))[:words])


def vary_at(load: Load) -> int | None:
    """Where in every body the generator is to put other words of `VARIED`'s length with each request; None: nowhere.

    No prompt comes twice then, and no two begin alike, as long as there are 64 ** 4 of them.
    """
    if not load.unique or load.prompts is not None or load.bodies is not None or load.prompt_tokens < len(VARIED):
        return None
    at = body(load, " ".join(VARIED)).encode().find(" ".join(VARIED).encode())
    return at if at > 0 else None  # extra fields may have replaced the prompt


def _prompt(line: str, where: str) -> Any:
    try:
        found = json.loads(line)
    except ValueError as error:
        raise LoadError(f"prompts: {where}: {error}") from error
    if isinstance(found, dict):
        for key in ("messages", "prompt"):
            if key in found:
                return found[key]
    raise LoadError(f"prompts: {where}: neither `prompt` nor `messages`")


def _mixed(load: Load, number: int) -> Mapping[str, Any]:
    return load.mix[number % len(load.mix)] if load.mix else {}


def body(load: Load, prompt: Any, more: Mapping[str, Any] | None = None) -> str:
    """One request: `prompt` is a text, or a list of messages for a chat; `more` fields come last."""
    fields: dict[str, Any] = {}
    if load.model is not None:
        fields["model"] = load.model
    if load.path.endswith("/chat/completions"):
        fields["messages"] = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    else:
        fields["prompt"] = prompt
    fields["max_tokens"] = load.max_tokens
    if load.ignore_eos:
        fields["ignore_eos"] = True
    if load.stream:
        fields |= {"stream": True, "stream_options": {"include_usage": True}}
    if load.return_token_ids:
        fields["return_token_ids"] = True
    fields |= {**load.extra, **(more or {})}
    return json.dumps({key: value for key, value in fields.items() if value is not None}, ensure_ascii=False)
