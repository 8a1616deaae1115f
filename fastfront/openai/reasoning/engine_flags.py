"""What engines are told about the model's reasoning: constraints hold after it, and budgets end it."""

from __future__ import annotations

import json
from collections.abc import Mapping

from fastfront.config import ParserOptions, ServeConfig
from fastfront.errors import SetupError
from fastfront.openai.reasoning.base import ReasoningParser

Parser = type[ReasoningParser]


def engine_flags(config: ServeConfig, parser: Parser | None, names: Mapping[str, Parser]) -> list[str]:
    """Flags for engines that are started here; `names` are the parsers that vLLM has too. Raises SetupError for a bad cut."""
    options = config.parsers
    if parser is None:
        return []
    if config.engine == "vllm":
        if any(word.startswith("--reasoning-parser") for word in config.engine_args):
            return []
        asked = options.reasoning if options.reasoning in names else None
        name = asked or next((name for name, known in names.items() if known is parser), None)
        if name is None:
            return []
        words = {"reasoning_start_str": options.reasoning_start, "reasoning_end_str": options.reasoning_cut}
        shown = {key: text for key, text in words.items() if text}
        return ["--reasoning-parser", name, *(["--reasoning-config", json.dumps(shown)] if shown else [])]
    if config.engine != "native" or not bounds_reasoning(parser):
        return []
    starts = [*parser.opens, *([options.reasoning_start] if options.reasoning_start else [])]
    flags = [word for text in dict.fromkeys(starts) for word in ("--reasoning-start", text)]
    flags += [word for text in parser.closes for word in ("--reasoning-end", text)]
    if options.reasoning_cut:
        if not options.reasoning_cut.endswith(parser.closes):
            raise SetupError(f"--reasoning-config: reasoning_end_str must end with {' or '.join(map(repr, parser.closes))}")
        flags += ["--reasoning-cut", options.reasoning_cut]
    return flags


def told_markers(options: ParserOptions) -> bool:
    """Whether vLLM's engines are told how reasoning begins and ends, whatever the parser."""
    return bool(options.reasoning_start and options.reasoning_cut)


def bounds_reasoning(parser: type[ReasoningParser] | None) -> bool:
    """Whether this project's engine can see where such reasoning ends, and so end it."""
    return parser is not None and bool(parser.closes) and not parser.reads_calls
