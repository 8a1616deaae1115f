"""A call that there is no memory for, once it is with its lane."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.native.conftest import Model
from tests.support.paths import ROOT


@pytest.mark.parametrize("case", ["whole", "stream", "next"])
def test_a_call_without_memory_is_answered_and_nothing_of_it_stays(qwen3: Model, case: str) -> None:
    """What is asserted is in `tests.native.short_of_memory`."""
    command = [sys.executable, "-m", "tests.native.short_of_memory", case]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
