"""What is checked of the engine, as one table: tests of each way to cut work into steps, each architecture, each kind of check.

    .venv-engine/bin/python -m tests.engine.summary [--without-servers] [pytest options]

Runs the tests that the table names, and leaves with pytest's status. `--without-servers` leaves out those that start servers.
A row whose tests are gone makes the status 1: the table would say less than it seems to.
"""

from __future__ import annotations

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import NamedTuple

import pytest

from tests.engine.conftest import ROOT

ENGINE = "tests/engine"
MATRIX = re.compile(r"test_parity\.py::test_equals_generate\[(?P<kind>\w+)-(?P<mode>[\w ]+)\]")


class Row(NamedTuple):
    """A line of the table: what is checked, and the tests that do it."""

    what: str
    path: str
    tests: str = ""
    servers: bool = False


ROWS = (
    Row("tokens of generate: steps under way, caching, budget, blocks, all combined", "test_parity.py", "in_every_mode"),
    Row("tokens of generate: block sizes, one at a time", "test_parity.py", "any_block_size|one_sequence_at_a_time"),
    Row("tokens of generate: without the compiled kernels", "test_parity.py", "without_kernels"),
    Row("tokens of generate: tensor parallel 2, each architecture", "test_tensor_parallel.py", "two_ranks_give"),
    Row("tokens of generate: tensor parallel 2, chunked, preempted, cached", "test_tensor_parallel.py", "chunked_preempted"),
    Row("tokens of one rank: tensor parallel 2, sampled; SmolLM2", "test_tensor_parallel.py", "sampled_tokens|smollm2"),
    Row("tokens of generate: SmolLM2 over the wire", "test_smollm2.py"),
    Row("tokens of generate: over the wire, cached, preempted, after sleep", "test_core.py", "generate|caching|preempt|slept"),
    Row("tokens of generate: recorded steps and attention by a kernel", "test_gpu_parts.py", "steps_and_a_kernel"),
    Row("GPUs with stand-ins: memory, devices, what is recorded, the check", "test_gpu_parts.py", "^(?!.*steps_and_a_kernel)"),
    Row("paged attention by Triton (interpreted without a GPU)", "test_triton_attention.py"),
    Row("logits of the fused model, each architecture", "test_lean.py"),
    Row("compiled kernels against torch", "test_kernels.py"),
    Row("two steps in flight give the answers of one", "test_async.py"),
    Row("GGUF: shapes, tokenizer, tokens; broken files refused", "convert"),
    Row("weights: missing, truncated, wrong files refused by name", "test_files.py"),
    Row("property: scheduler and cache under random add, abort, finish, preempt", "test_scheduler.py", "TestEngine"),
    Row("scheduler and stop rules", "test_scheduler.py", "^(?!TestEngine)"),
    Row("prefix cache and priorities", "test_prefix_cache.py"),
    Row("property: whatever stands in a request's fields hurts no other", "test_survival.py"),
    Row("protocol: recorded messages, truncated and random bytes", "test_protocol.py"),
    Row("distributions of sampled tokens (chi-square)", "test_distributions.py", "test_distribution|notices"),
    Row("a seeded request in any company", "test_distributions.py", "any_company"),
    Row("sampler", "test_sampling.py"),
    Row("grammars, masks, reasoning", "test_constraints.py|test_structured.py|test_reasoning.py"),
    Row(
        "busy loop, drain, pauses, refusals",
        "test_busy_loop.py|test_pauses.py|test_input_thread.py|test_core.py",
        "^(?!.*(generate|caching|preempt|slept))",
    ),
    Row("shared-memory ring", "test_ring.py"),
    Row("workers: replies, death, leaving", "test_mp.py"),
    Row("tensor parallel 2 and data parallel 2 through servers; kills", "tests/interop/test_parallel.py", servers=True),
)


def matches(row: Row, nodeid: str) -> bool:
    """Whether a test belongs to a row."""
    path, _, name = nodeid.partition("::")
    wanted = row.path if row.path.startswith("tests/") else f"{ENGINE}/({row.path})"
    return re.match(rf"{wanted}(/|$)", path) is not None and re.search(row.tests, name) is not None


class Recorder:
    """Pytest plugin: how each test ended."""

    def __init__(self) -> None:
        self.ends: dict[str, str] = {}
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A phase of a test is over."""
        self.seconds[report.nodeid] += report.duration
        if report.when == "call" or report.outcome != "passed":
            self.ends[report.nodeid] = report.outcome


def matrix(ends: dict[str, str]) -> list[str]:
    """Architectures and ways to cut the work, as Markdown."""
    cells: dict[str, dict[str, str]] = {}
    for nodeid, end in ends.items():
        if found := MATRIX.search(nodeid):
            cells.setdefault(found["kind"], {})[found["mode"]] = {"passed": "ok"}.get(end, end)
    modes = list(dict.fromkeys(mode for row in cells.values() for mode in row))
    lines = ["| tokens of generate | " + " | ".join(modes) + " |", "|---" * (len(modes) + 1) + "|"]
    return lines + [f"| {kind} | " + " | ".join(row.get(mode, "-") for mode in modes) + " |" for kind, row in cells.items()]


def table(ends: dict[str, str], seconds: Mapping[str, float], rows: tuple[Row, ...]) -> tuple[list[str], bool]:
    """The other rows as Markdown, and whether each of them has tests."""
    lines = ["| what is checked | passed | failed | skipped | s |", "|---|---|---|---|---|"]
    complete = True
    for row in rows:
        mine = [nodeid for nodeid in ends if matches(row, nodeid)]
        complete = complete and bool(mine)
        counts = Counter(ends[nodeid] for nodeid in mine)
        spent = sum(seconds[nodeid] for nodeid in mine)
        lines.append(f"| {row.what} | {counts['passed']} | {counts['failed']} | {counts['skipped']} | {spent:.1f} |")
    return lines, complete


def main(argv: list[str]) -> int:
    servers = "--without-servers" not in argv
    options = [option for option in argv if option != "--without-servers"]
    rows = tuple(row for row in ROWS if servers or not row.servers)
    paths = [ENGINE, *(row.path for row in rows if row.servers)]
    recorder = Recorder()
    status = pytest.main(["-q", "--rootdir", str(ROOT), *(str(ROOT / path) for path in paths), *options], plugins=[recorder])
    lines, complete = table(recorder.ends, recorder.seconds, rows)
    print("\n".join(["", *matrix(recorder.ends), "", *lines]))
    return int(status) or (0 if complete else 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
