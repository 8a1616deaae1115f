"""`--engine vllm` starts and supervises vLLM's engine cores; here a package of that name stands for vLLM."""

from __future__ import annotations

import json
import os
import secrets
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.ports import free_port
from tests.support.fixtures import StartServer
from tests.support.paths import ENGINE_PYTHON, ROOT, SMOLLM2
from tests.support.processes import session_members, shared_memory, title, wait_gone
from tests.support.server import Server
from tests.support.waiting import wait_for

LIMIT_S = 60.0
FAKE = ROOT / "tests" / "support" / "fake_vllm"


@pytest.fixture
def env(tmp_path: Path) -> Iterator[dict[str, str]]:
    """With the stand-in on the import path. Its shared memory must be gone in the end: to be named before `start`."""
    name = f"fastfront-test-{secrets.token_hex(6)}"
    yield {"PYTHONPATH": str(FAKE), "FAKE_VLLM_NOTES": str(tmp_path), "FAKE_VLLM_SEGMENT": name}
    wait_for(lambda: not [segment for segment in shared_memory() if name in segment], "the end of shared memory", LIMIT_S)


def flags(*more: str) -> list[str]:
    return ["--engine", "vllm", "--engine-python", str(ENGINE_PYTHON), *more]


def pids(server: Server, beginning: str) -> list[int]:
    return [pid for pid in session_members(server.pid) if title(pid).startswith(beginning)]


def test_ranks_are_started_with_their_flags(env: dict[str, str], start: StartServer, tmp_path: Path) -> None:
    server = start(
        *flags("--data-parallel-size", "2", "--max-model-len", "512", "--kv-cache-memory-bytes", "1G"),
        "--", "--enforce-eager", mock=None, env=env,
    ).wait_ready()  # fmt: skip
    for rank in range(2):
        notes = json.loads((tmp_path / f"vllm-{rank}.json").read_text())
        assert Path(notes["model"]) == SMOLLM2
        assert notes["others"] == ["--max-model-len", "512", "--kv-cache-memory-bytes", "1G", "--enforce-eager"]
        assert notes["path"] == str(FAKE)  # nothing of ours is put on vLLM's import path
        assert len(pids(server, f"fastfront::vllm-engine-{rank}")) == 1
    assert all(server.completion(max_tokens=3).json()["usage"]["completion_tokens"] == 3 for _ in range(4))
    assert server.stop() == 0


@pytest.mark.parametrize("victim", ["fastfront::vllm-engine-0", "fastfront::mock-engine-0"])
def test_a_rank_is_started_again(env: dict[str, str], start: StartServer, victim: str) -> None:
    """Whichever of its processes is killed, the others of that rank go too."""
    server = start(*flags("--data-parallel-size", "2", "--engine-restarts", "1"), mock=None, env=env).wait_ready()
    engine = pids(server, "fastfront::mock-engine-0")
    os.kill(pids(server, victim)[0], signal.SIGKILL)
    wait_for(lambda: "engine 0 is ready again" in server.log(), "the engine to come again", LIMIT_S)
    wait_for(lambda: not set(engine) & set(session_members(server.pid)), "the end of the former engine", LIMIT_S)
    assert len(pids(server, "fastfront::mock-engine-")) == 2
    assert all(server.completion(max_tokens=1).status_code == 200 for _ in range(4))


def test_nothing_is_left_when_the_frontend_is_killed(env: dict[str, str], start: StartServer) -> None:
    """The engines stand for some that do not look whether their frontend is there."""
    server = start(*flags(), mock=None, env=env).wait_ready()
    assert len(session_members(server.pid)) == 5  # with the keeper and a tracker of shared memory
    server.kill()
    wait_gone(server.pid, LIMIT_S)


def test_an_interpreter_without_vllm(start: StartServer, tmp_path: Path) -> None:
    server = start(*flags(), mock=None)
    assert server.exits(LIMIT_S) == 1
    assert "engine 0" in server.log()
    assert "vllm" in server.log()
    server = start("--engine", "vllm", mock=None, env={"FASTFRONT_CACHE": str(tmp_path)}, model=SMOLLM2)
    assert server.exits(LIMIT_S) == 1
    assert "--engine-python" in server.log()


@pytest.fixture
def mixture(tmp_path: Path) -> Path:
    """A mixture of experts, as far as the frontend is concerned."""
    model = tmp_path / "mixture"
    model.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (model / name).symlink_to(SMOLLM2 / name)
    config = json.loads((SMOLLM2 / "config.json").read_text()) | {"num_local_experts": 4}
    (model / "config.json").write_text(json.dumps(config))
    return model


def test_ranks_that_step_together_go_together(env: dict[str, str], start: StartServer, mixture: Path) -> None:
    """A mixture of experts: without one of its ranks the others cannot take a step."""
    server = start(*flags("--data-parallel-size", "2"), mock=None, env=env, model=mixture).wait_ready()
    assert all(server.completion(max_tokens=3).json()["usage"]["completion_tokens"] == 3 for _ in range(4))
    os.kill(pids(server, "fastfront::mock-engine-0")[0], signal.SIGKILL)
    assert server.exits(LIMIT_S) == 1
    assert "no engine is left" in server.log()


def test_frontends_whose_ranks_step_together_start_together(env: dict[str, str], start: StartServer, mixture: Path) -> None:
    port = str(free_port())
    others = ("--data-parallel-size", "2", "--data-parallel-rpc-port", port)
    second = start(*flags(*others, "--data-parallel-rank", "1"), mock=None, env=env, model=mixture)
    head = start(*flags(*others, "--data-parallel-rank", "0"), mock=None, env=env, model=mixture)
    for server in (head, second):
        server.wait_ready()
        assert [server.completion(max_tokens=3).json()["usage"]["completion_tokens"] for _ in range(2)] == [3, 3]
    assert "engine 1 is ready" in head.log()
    again = start(*flags(*others, "--data-parallel-rank", "1", "--engine-ready-timeout", "3"), mock=None, env=env, model=mixture)
    assert again.exits(LIMIT_S) == 1
    assert "no frontend has answered for rank 1" in again.log()
    wait_for(lambda: "engine 1: ranks of a mixture of experts start together" in head.log(), "the head to say so", LIMIT_S)
    head.kill()
    wait_gone(head.pid, LIMIT_S)
    assert second.get("/health").status_code == 200
