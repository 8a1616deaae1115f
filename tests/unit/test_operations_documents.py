"""What docs/tuning.md and docs/operations.md say exists, and what exists is said."""

from __future__ import annotations

import re
from argparse import ArgumentParser
from pathlib import Path

from fastfront.cli import serve, top

ROOT = Path(__file__).resolve().parents[2]
OPERATIONS = (ROOT / "docs/operations.md").read_text()
TUNING = (ROOT / "docs/tuning.md").read_text()
OWN = (
    "--request-threads", "--lanes", "--max-connections", "--keep-alive", "--max-body-bytes", "--engine-python",
    "--engine-args", "--step-ms",
)  # fmt: skip
# Of others' command lines.
FOREIGN = {
    "--api-server-count", "--data-parallel-backend", "--device", "--disconnect-timeout", "--pipeline-parallel-size", "--threads",
    "--help",
}  # fmt: skip


def flags() -> set[str]:
    parser = ArgumentParser(allow_abbrev=False)
    serve.add_arguments(parser)
    top.add_arguments(parser)
    return set(parser._option_string_actions)


def test_every_flag_in_the_documents_exists() -> None:
    named = set(re.findall(r"--[a-z][a-z-]+", OPERATIONS + TUNING))
    assert named - FOREIGN <= flags()


def test_flags_that_only_this_server_has_are_explained() -> None:
    assert [flag for flag in OWN if flag not in TUNING] == []
    assert set(OWN) <= flags()


def test_every_variable_that_is_read_is_listed_and_the_other_way_round() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "fastfront").rglob("*.py"))
    read = set(re.findall(r"\b(?:VLLM|FASTFRONT|OTEL)_[A-Z_]+[A-Z]\b", sources))
    listed = set(re.findall(r"^\| `([A-Z_]+)` \|", OPERATIONS, re.M)) - {"HF_TOKEN"}
    assert read == listed
