"""The two sides of the matrix: frontends without engines of their own, and engines that join a frontend."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.peers.base import SERVED
from tools.setup.paths import Paths

MAX_LEN = 2048
_QUIET = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1"}
_PEERS = "not installed: make bench-peers"


@dataclass(frozen=True, slots=True)
class Places:
    """What commands need to know: where programs and the model are, and the ports of one cell."""

    paths: Paths
    model: Path
    port: int = 0
    rpc_port: int = 0


@dataclass(frozen=True, slots=True)
class Side:
    """A frontend or an engine. `program` must exist for it to be had."""

    name: str
    title: str
    program: Callable[[Paths], Path]
    command: Callable[[Places], list[str]]
    advice: str
    env: Mapping[str, str] = field(default_factory=dict)

    def problem(self, paths: Paths) -> str | None:
        """Why it cannot be had here."""
        return None if os.access(self.program(paths), os.X_OK) else self.advice


def _vllm_python(paths: Paths) -> Path:
    return paths.peers / "vllm" / "bin" / "python"


def _joining(places: Places) -> list[str]:
    return ["--data-parallel-address", "127.0.0.1", "--data-parallel-rpc-port", str(places.rpc_port)]


def _front(program: list[str], *more: str) -> Callable[[Places], list[str]]:
    def command(places: Places) -> list[str]:
        flags = ["serve", str(places.model), "--served-model-name", SERVED, "--host", "127.0.0.1", "--port", str(places.port)]
        flags += ["--data-parallel-size-local", "0", "--max-model-len", str(MAX_LEN), *_joining(places), *more]
        start = [word.format(root=places.paths.root, peers=places.paths.peers) for word in program]
        return [*start, *flags]

    return command


def _mock(places: Places) -> list[str]:
    command = [str(places.paths.engine_venv / "bin" / "python"), "-m", "engine.mock", "--headless", "--linger-s", "0"]
    return [*command, "--tokens", "echo", "--step-ms", "1", "--max-model-len", str(MAX_LEN), *_joining(places)]


def _ours(places: Places) -> list[str]:
    command = [str(places.paths.engine_venv / "bin" / "python"), "-m", "engine", str(places.model), "--headless"]
    return [*command, "--max-model-len", str(MAX_LEN), "--max-num-seqs", "32", *_joining(places)]


def _vllm(places: Places) -> list[str]:
    command = [str(_vllm_python(places.paths)), "-m", "vllm.entrypoints.cli.main", "serve", str(places.model), "--headless"]
    command += ["--data-parallel-size", "1", "--data-parallel-size-local", "1", "--data-parallel-start-rank", "0"]
    return [*command, "--max-model-len", str(MAX_LEN), "--max-num-seqs", "32", "--enforce-eager", *_joining(places)]


FRONTENDS = (
    Side(
        "fastfront", "fastfront", lambda paths: paths.venv / "bin" / "fastfront", _front(["{root}/.venv/bin/fastfront"]),
        "not set up: make setup",
    ),
    Side(
        "vllm-python", "vLLM Python", _vllm_python,
        _front(["{peers}/vllm/bin/python", "-m", "vllm.entrypoints.cli.main"], "--api-server-count", "1"), _PEERS, _QUIET,
    ),
    Side(
        "vllm-rust", "vLLM Rust", lambda paths: paths.peers / "vllm-rs", _front(["{peers}/vllm-rs"]), _PEERS, _QUIET,
    ),
)  # fmt: skip
ENGINES = (
    Side("mock", "mock engine", lambda paths: paths.engine_venv / "bin" / "python", _mock, "not set up: make setup"),
    Side("ours", "our engine", lambda paths: paths.engine_venv / "bin" / "python", _ours, "not set up: make setup"),
    Side("vllm", "vLLM's engine", _vllm_python, _vllm, _PEERS, {**_QUIET, "VLLM_CPU_KVCACHE_SPACE": "1"}),
)
