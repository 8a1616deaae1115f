"""Tensor and data parallel through the frontend: what starts is what was planned, answers are the same, kills leave nothing."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

import pytest

from tests.support import fault_matrix
from tests.support.metrics import metric
from tests.support.paths import FASTFRONT, environment
from tests.support.processes import session_members, title
from tests.support.server import COMPLETIONS, Server

pytestmark = pytest.mark.slow
COMMON = ("--max-model-len", "512", "--num-gpu-blocks-override", "256", "--dtype", "float32", "--served-model-name", "m")
ASK = {"model": "m", "prompt": "Once upon a time", "max_tokens": 8, "temperature": 0, "ignore_eos": True}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fault_matrix.tiny_folder(tmp_path_factory.mktemp("tiny"))


def planned(model: Path, *flags: str) -> list[str]:
    """Titles of a dry run, the frontend's without its port."""
    command = [str(FASTFRONT), "serve", str(model), "--host", "127.0.0.1", "--port", "0", *flags, "--dry-run"]
    words = [word for word in command if word != "--"]
    out = subprocess.run(words, env=environment(), capture_output=True, text=True, check=True, timeout=60).stdout
    return [line.lstrip("│├└─ ") for line in out.splitlines() if "fastfront" in line]


def started(server: Server) -> list[str]:
    return [title(pid) for pid, state in session_members(server.pid).items() if state not in "ZX"]


def same(plan: list[str], found: list[str]) -> bool:
    """Every process is planned, and every planned one is there; helpers of Python's multiprocessing do not count."""
    own = sorted(name for name in found if name.startswith("fastfront"))
    return len(own) == len(plan) and all(name.startswith(wanted) for name, wanted in zip(own, sorted(plan), strict=True))


@pytest.mark.parametrize(("ranks", "engines"), [(1, 2), (2, 1)])
def test_what_is_planned_starts_and_answers_are_the_same(tmp_path: Path, model: Path, ranks: int, engines: int) -> None:
    flags = ("--tensor-parallel-size", str(ranks), "--data-parallel-size", str(engines), *COMMON)
    plan = planned(model, *flags)
    assert len(plan) == 1 + engines * (1 + (ranks if ranks > 1 else 0))
    with Server(tmp_path, *flags, "--", "--threads", "1", model=model) as server:
        server.wait_ready(300)
        found = started(server)
        assert same(plan, found), (plan, found)
        texts = {server.post(COMPLETIONS, ASK).json()["choices"][0]["text"] for _ in range(2 * engines)}
        assert len(texts) == 1
        assert server.stop() == 0


def test_a_frontend_for_each_rank(tmp_path: Path, model: Path) -> None:
    """What is planned starts, answers are the same, metrics have the rank."""
    with contextlib.ExitStack() as stack:
        servers = []
        for rank in (0, 1):
            folder = tmp_path / str(rank)
            folder.mkdir()
            flags = ("--data-parallel-size", "2", "--data-parallel-rank", str(rank), *COMMON)
            plan = planned(model, *flags)
            assert plan[1:] == [f"fastfront::engine-core-{rank}"]
            servers.append((stack.enter_context(Server(folder, *flags, "--", "--threads", "1", model=model)), plan))
        texts = set()
        for rank, (server, plan) in enumerate(servers):
            server.wait_ready(300)
            assert same(plan, started(server))
            texts.add(server.post(COMPLETIONS, ASK).json()["choices"][0]["text"])
            assert metric(server, "vllm:generation_tokens_total", engine=str(rank)) == 8
        assert len(texts) == 1


def test_processes_are_killed(tmp_path: Path, model: Path) -> None:
    """A worker and the frontend; `python -m tests.support.fault_matrix` does it with every kind."""
    before = fault_matrix.segments()
    with Server(tmp_path, *fault_matrix.FLAGS, model=model) as server:
        server.wait_ready(300)
        plan, found = planned(model, *fault_matrix.FLAGS[:-3]), started(server)
        assert len(plan) == 7
        assert same(plan, found), (plan, found)
        worker, frontend = fault_matrix.run(server, before, (fault_matrix.VICTIMS[0], fault_matrix.VICTIMS[-1]))
    assert (worker.its_streams, worker.other_streams, worker.health) == ("error event, [DONE]", "whole", "200, 200"), worker
    assert frontend.its_streams.startswith("cut off")
    for row in (worker, frontend):
        assert (row.processes_left, row.shared_memory_left, row.sockets_left) == (0, 0, 0), row
