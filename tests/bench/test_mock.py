"""The measurement of what the mock engine costs."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from bench.mock import main, outputs


@pytest.mark.parametrize("count", [0, 1, 15, 16, 70_000])
def test_outputs_of_a_message_are_counted(count: int) -> None:
    assert outputs(msgspec.msgpack.encode([0, [None] * count, None, 1.0])) == count


def test_it_measures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.json"
    assert main(["--streams", "3,40", "--step-ms", "1,0", "--seconds", "0.2", "--json", str(out)]) == 0
    found = json.loads(out.read_text())
    kinds = [(cost["what"], cost["step_ms"]) for cost in found]
    streams = ("3 streams", "40 streams", "128 streams, 5 logprobs")
    assert kinds == [*((what, step_ms) for step_ms in (1, 0) for what in streams), ("requests", 0)]
    assert all(cost["per_second"] > 0 and cost["cpu_us"] > 0 and cost["cores"] > 0 for cost in found)
    assert len(capsys.readouterr().out.splitlines()) == 2 + len(kinds)
