"""What engines are told about reasoning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fastfront.config import ParserOptions, ServeConfig
from fastfront.errors import SetupError
from fastfront.openai.reasoning.engine_flags import engine_flags
from fastfront.openai.tools.registry import REASONING_PARSERS

QWEN = REASONING_PARSERS["qwen3"]
MARKERS = ["--reasoning-start", "<think>", "--reasoning-end", "</think>"]
CUT = "Enough.</think>"


def config(engine: Any = "native", **options: Any) -> ServeConfig:
    words = options.pop("engine_args", ())
    parsers = ParserOptions(reasoning="qwen3", **options)
    return ServeConfig("m", Path("m"), ("m",), engine=engine, engine_args=words, parsers=parsers)


CASES: list[tuple[ServeConfig, list[str]]] = [
    (config(), MARKERS),
    (config(reasoning_cut=CUT), [*MARKERS, "--reasoning-cut", CUT]),
    (config(reasoning_start="<t>"), [*MARKERS[:2], "--reasoning-start", "<t>", *MARKERS[2:]]),
    (config("mock"), []),
    (config("vllm"), ["--reasoning-parser", "qwen3"]),
    (config("vllm", reasoning_cut=CUT),
     ["--reasoning-parser", "qwen3", "--reasoning-config", json.dumps({"reasoning_end_str": CUT})]),
    (config("vllm", engine_args=("--reasoning-parser=glm45",)), []),
]  # fmt: skip


@pytest.mark.parametrize(("given", "flags"), CASES)
def test_flags_of_engines(given: ServeConfig, flags: list[str]) -> None:
    assert engine_flags(given, QWEN, REASONING_PARSERS) == flags
    assert engine_flags(given, None, REASONING_PARSERS) == []


def test_a_cut_must_end_reasoning() -> None:
    with pytest.raises(SetupError, match="reasoning_end_str"):
        engine_flags(config(reasoning_cut="Enough."), QWEN, REASONING_PARSERS)


def test_parsers_of_ones_own_are_not_vllms() -> None:
    class Own(QWEN):  # type: ignore[misc, valid-type]
        pass

    assert engine_flags(config(), Own, REASONING_PARSERS) == MARKERS
    assert engine_flags(config("vllm"), Own, {}) == []


@pytest.mark.parametrize("name", [name for name, parser in REASONING_PARSERS.items() if parser.reads_calls])
def test_parsers_without_markers(name: str) -> None:
    assert engine_flags(config(reasoning_cut=CUT), REASONING_PARSERS[name], REASONING_PARSERS) == []
