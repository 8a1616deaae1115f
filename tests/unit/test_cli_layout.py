"""Flags about engines and ranks: what goes together, what is refused and by which name, and what is planned."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from fastfront.config import ServeConfig
from fastfront.engine_client.commands import engine_command, headless_command
from fastfront.engine_client.layout import describe, tree
from tests.unit.support import config_from


def config(*words: str) -> ServeConfig:
    return config_from("smollm2", *words)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("--headless --port 5", "--port"),
        ("--headless --host 0.0.0.0", "--host"),
        ("--headless --api-key x", "--api-key"),
        ("--headless --lanes 2", "--lanes"),
        ("--headless --chat-template x", "--chat-template"),
        ("--headless --enable-auto-tool-choice --tool-call-parser hermes", "--enable-auto-tool-choice"),
        ("--headless --data-parallel-size-local 0", "--data-parallel-size-local"),
        ("--headless -dp 2 --data-parallel-start-rank 2", "--data-parallel-start-rank"),
        ("--headless -dp 2 -dpl 2 -dpr 1", "--data-parallel-start-rank"),
        ("-dp 2 --data-parallel-start-rank 1", "--headless"),
        ("-dp 2 --data-parallel-size-local 3", "--data-parallel-size-local"),
        ("-dpl 0 --engine-restarts 1", "--engine-restarts"),
        ("-dpl 0 --engine-python python3", "--engine-python"),
        ("-dpl 0 --engine-args=--x", "--engine-args"),
        ("-dpl 0 -- --x", "--:"),
        ("--engine mock --tensor-parallel-size 2", "--tensor-parallel-size"),
        ("--step-ms 5", "--step-ms goes with --engine mock, not native"),
        ("--headless --step-ms 5 --data-parallel-address 10.0.0.1 --data-parallel-rpc-port 5", "--step-ms goes with"),
        ("--data-parallel-rank 1", "--data-parallel-start-rank"),
    ],
)
def test_what_does_not_go_together_is_refused_by_name(
    words: str, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        config(*words.split())
    assert left.value.code == 2
    assert named in capsys.readouterr().err


def test_engine_flags_behind_two_dashes() -> None:
    assert config("--engine-args", "--a 'b c'", "--", "--d", "--port", "1").engine_args == ("--a", "b c", "--d", "--port", "1")


@pytest.mark.parametrize(
    ("words", "port"),
    [
        ("", 29550),
        ("--engine vllm", 0),
        ("--engine vllm -dpp 7", 7),
        ("--engine vllm -dp 2 -dpl 1", 29550),
        ("--engine vllm --headless", 29550),
        ("-dpl 0", 29550),
    ],
)
def test_the_port_is_known_where_somebody_else_has_to_know_it(words: str, port: int) -> None:
    assert config(*words.split()).data_parallel_rpc_port == port


def test_headless_engines_are_those_from_the_first_rank_on() -> None:
    found = config("--headless", "-dp", "4", "-dpr", "3", "--dtype", "float32")
    assert (found.data_parallel_start_rank, found.data_parallel_size_local) == (3, 1)
    command = headless_command(found, "PY", 3)
    assert command[2] == "fastfront::keeper-3"
    assert command[3:6] == ["PY", "-m", "engine"]
    assert command[command.index("--data-parallel-rank") + 1] == "3"
    assert command[-2:] == ["--dtype", "float32"]


def test_vllm_ranks_are_told_where_the_frontend_is() -> None:
    found = config("--engine", "vllm", "-dp", "2", "-tp", "2", "--", "--enforce-eager")
    command = engine_command(found, "PY", 1, "tcp://[::1]:41", 100)
    assert command[command.index("--data-parallel-address") + 1] == "::1"
    assert command[command.index("--data-parallel-rpc-port") + 1] == "41"
    assert command[command.index("--data-parallel-start-rank") + 1] == "1"
    assert command[-3:] == ["--tensor-parallel-size", "2", "--enforce-eager"]


def test_vllm_reads_the_same_tokenizer() -> None:
    for kind, words in (("vllm", ["--tokenizer-mode", "hf"]), ("native", [])):
        command = engine_command(config("--engine", kind, "--tokenizer-mode", "hf"), "PY", 0, "tcp://[::1]:41", 100)
        assert [word for word in command if word in ("--tokenizer-mode", "hf")] == words
    command = engine_command(dataclasses.replace(config("--engine", "vllm"), tokenizer=Path("/t")), "PY", 0, "tcp://a:41", 100)
    assert command[command.index("--tokenizer") + 1] == "/t"


def test_both_engines_are_told_of_overrides() -> None:
    for kind in ("native", "vllm"):
        words = engine_command(config("--engine", kind, "--hf-overrides.a.b", "1"), "PY", 0, "tcp://[::1]:41", 100)
        assert words[words.index("--hf-overrides") + 1] == '{"a": {"b": 1}}'


def test_both_engines_are_told_what_logprobs_show() -> None:
    for kind in ("native", "vllm"):
        words = engine_command(config("--engine", kind, "--logprobs-mode", "raw_logits"), "PY", 0, "tcp://[::1]:41", 100)
        assert words[words.index("--logprobs-mode") + 1] == "raw_logits"


def test_the_tree_as_text() -> None:
    assert describe(config("-dp", "2", "--host", "::1")).splitlines() == [
        "fastfront serve smollm2 [::1]:8000",
        "├─ fastfront::engine-core-0",
        "└─ fastfront::engine-core-1",
        "3 processes: 1 frontend, 2 engines, 0 workers",
    ]


@pytest.mark.parametrize(("words", "workers"), [("", 0), ("-- --distributed-executor-backend mp", 1), ("-- --threads mp", 0)])
def test_a_single_worker_is_a_process_of_its_own_if_asked_for(words: str, workers: int) -> None:
    assert len(tree(config(*words.split())).titles()) == 2 + workers


def test_workers_are_in_the_tree_and_sockets_too() -> None:
    two = config("--uds", "/x", "-dp", "2")
    assert tree(dataclasses.replace(two, tensor_parallel_size=2)).titles() == [
        "fastfront serve smollm2 unix:/x",
        "fastfront::engine-core-0", "fastfront::worker-0-0", "fastfront::worker-0-1",
        "fastfront::engine-core-1", "fastfront::worker-1-0", "fastfront::worker-1-1",
    ]  # fmt: skip
