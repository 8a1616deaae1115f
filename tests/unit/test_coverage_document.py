"""docs/api_coverage.md names tests that exist, and every case of its list has one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs/api_coverage.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`([\w/]+\.py)::(test_\w+)`", TEXT)))


@pytest.mark.parametrize(("file", "name"), NAMED, ids=lambda part: str(part))
def test_a_named_test_exists(file: str, name: str) -> None:
    source = (ROOT / "tests" / file).read_text(encoding="utf-8")
    assert re.search(rf"^(async )?def {name}\(", source, re.MULTILINE), f"{file} has no {name}"


def test_every_row_of_every_table_names_one() -> None:
    tables = TEXT.split("## Where answers differ")[0]
    rows = [line for line in tables.split("\n") if line.startswith("| ") and not line.startswith(("| row |", "| case |"))]
    assert len(rows) > 100
    assert [line for line in rows if "::test_" not in line] == []
