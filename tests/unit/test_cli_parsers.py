"""The flags that choose parsers."""

from __future__ import annotations

from pathlib import Path

from fastfront.config import ParserOptions
from tests.unit.support import config_from


def test_no_parsers_by_default(tiny_folder: Path) -> None:
    assert config_from(str(tiny_folder)).parsers == ParserOptions()


def test_all_of_them(tiny_folder: Path) -> None:
    found = config_from(
        str(tiny_folder), "--enable-auto-tool-choice", "--tool-call-parser", "own", "--reasoning-parser", "auto",
        "--tool-parser-plugin", "a.py", "--reasoning-parser-plugin", "a.py", "--tool-strict-level", "function",
        "--exclude-tools-when-tool-choice-none",
    ).parsers  # fmt: skip
    assert found == ParserOptions("own", "auto", (Path("a.py"),), "function", True)


def test_a_parser_alone_does_not_enable_tool_choice(tiny_folder: Path) -> None:
    assert config_from(str(tiny_folder), "--tool-call-parser", "hermes").parsers.tools is None
