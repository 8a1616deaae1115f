"""Flags about engines and ranks: what goes together, what is refused and by which name, and what is planned."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from fastfront.config import ServeConfig
from fastfront.engine_client.addresses import engine_addresses
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
        ("--headless -dp 2 --data-parallel-rank 1", "--data-parallel-start-rank"),
        ("--headless -dp 2 --data-parallel-hybrid-lb", "--data-parallel-hybrid-lb"),
        ("--data-parallel-rank 0", "--data-parallel-rank needs a --data-parallel-size of several"),
        ("-dp 2 -dpn 2", "--data-parallel-rank 2 is not below --data-parallel-size 2"),
        ("-dp 2 -dpe", "--data-parallel-external-lb needs --data-parallel-rank"),
        ("-dp 2 -dpn 1 -dpl 2", "--data-parallel-size-local 2"),
        ("-dp 2 -dpn 1 -dph -dpl 1", "--data-parallel-rank (a frontend for each rank) and --data-parallel-hybrid-lb"),
        ("-dp 2 -dpe -dpr 1 -dpl 1", "--data-parallel-external-lb (a frontend for each rank) and --data-parallel-start-rank"),
        ("-dp 2 -dph", "--data-parallel-hybrid-lb needs --data-parallel-size-local"),
        ("-dp 2 -dph -dpl 0", "--data-parallel-size-local 0"),
        ("-dp 4 -dpl 2 -dpr 3", "--data-parallel-start-rank 3 and 2 engines"),
        ("-dp 4 -dpl 2 -dph --no-data-parallel-hybrid-lb -dpr 3", "--data-parallel-start-rank 3 and 2 engines"),
        ("-dp 2 --data-parallel-backend ray", "--data-parallel-backend"),
        ("-dp 2 -dpb=ray", "--data-parallel-backend"),
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
    assert found.local_ranks == range(3, 4)
    command = headless_command(found, "PY", 3)
    assert command[2] == "fastfront::keeper-3"
    assert command[3:6] == ["PY", "-m", "engine"]
    assert command[command.index("--data-parallel-rank") + 1] == "3"
    assert command[command.index("--local-index") + 1] == "0"
    assert command[-2:] == ["--dtype", "float32"]


def test_vllm_ranks_are_told_where_the_frontend_is() -> None:
    found = config("--engine", "vllm", "-dp", "2", "-tp", "2", "--", "--enforce-eager")
    command = engine_command(found, "PY", 1, "tcp://[::1]:41", 100)
    assert command[command.index("--data-parallel-address") + 1] == "::1"
    assert command[command.index("--data-parallel-rpc-port") + 1] == "41"
    assert command[command.index("--data-parallel-start-rank") + 1] == "1"
    assert command[-3:] == ["--tensor-parallel-size", "2", "--enforce-eager"]


def test_only_vllm_has_to_be_told_that_it_may_sleep() -> None:
    for kind in ("native", "vllm"):
        command = engine_command(config("--engine", kind, "--enable-sleep-mode"), "PY", 0, "tcp://[::1]:41", 100)
        assert ("--enable-sleep-mode" in command) == (kind == "vllm")


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


def test_engines_are_told_what_is_to_be_measured() -> None:
    def words(*flags: str) -> str:
        return " ".join(engine_command(config(*flags), "PY", 0, "tcp://[::1]:41", 100))

    blocks = ("--kv-cache-metrics", "--kv-cache-metrics-sample", "0.5")
    for kind in ("native", "vllm"):
        assert "--kv-cache-metrics-sample 0.5 --kv-cache-metrics" in words("--engine", kind, *blocks)
        assert "kv-cache-metrics" not in words("--engine", kind, "--kv-cache-metrics-sample", "0.5")
    assert words("--engine", "vllm", "--enable-mfu-metrics", "--cudagraph-metrics").endswith(
        "--enable-mfu-metrics --cudagraph-metrics"
    )


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


@pytest.mark.parametrize(
    ("words", "balancing", "local", "served"),
    [
        ("", "internal", range(1), range(1)),
        ("-dp 4", "internal", range(4), range(4)),
        ("-dp 4 -dpl 2", "internal", range(2), range(4)),
        ("-dp 4 -dpl 0", "internal", range(0), range(4)),
        ("-dp 4 -dpl 2 --data-parallel-hybrid-lb", "hybrid", range(2), range(2)),
        ("-dp 4 -dpl 2 --data-parallel-start-rank 2", "hybrid", range(2, 4), range(2, 4)),
        ("-dp 4 -dpl 2 -dph -dpr 1", "hybrid", range(1, 3), range(1, 3)),
        ("-dp 4 -dpl 4 -dph -dpr 0", "internal", range(4), range(4)),
        ("-dp 4 -dpl 1 -dpr 3", "external", range(3, 4), range(3, 4)),
        ("-dp 4 -dpl 1 -dph", "external", range(1), range(1)),
        ("-dp 4 --data-parallel-rank 3", "external", range(3, 4), range(3, 4)),
        ("-dp 4 -dpn 0 -dpl 1 -dpe", "external", range(1), range(1)),
        ("-dp 4 --data-parallel-backend mp -dpb=mp", "internal", range(4), range(4)),
    ],
)
def test_the_ranks_a_frontend_starts_and_serves(words: str, balancing: str, local: range, served: range) -> None:
    found = config(*words.split())
    assert (found.data_parallel_lb, found.local_ranks, found.ranks) == (balancing, local, served)


def test_a_frontend_for_some_of_the_ranks_as_text() -> None:
    assert describe(config("-dp", "4", "-dpl", "2", "-dpr", "2")).splitlines() == [
        "fastfront serve smollm2 0.0.0.0:8000",
        "├─ fastfront::engine-core-2",
        "└─ fastfront::engine-core-3",
        "3 processes: 1 frontend, 2 engines, 0 workers",
        "ranks 2 to 3 are served here, the others of 4 by frontends of their own",
    ]
    assert describe(config("-dp", "4", "-dpn", "3")).splitlines()[-1].startswith("rank 3 is served here")


@pytest.mark.parametrize("words", ["-dp 4 -dpl 2 -dpr 2", "-dp 2 -dpn 1"])
def test_engines_of_such_a_frontend_are_joined_here(words: str) -> None:
    """Whatever the address of the deployment: its ranks know nothing of each other."""
    head = ["--data-parallel-address", "10.1.2.3", "--data-parallel-rpc-port", "4"]
    assert engine_addresses(config(*words.split(), *head)).handshake.startswith("ipc:")
    assert engine_addresses(config(*words.split(), *head, "--engine", "vllm")).handshake == "tcp://127.0.0.1:*"


@pytest.fixture
def mixture(tmp_path: Path) -> str:
    """A mixture of experts, as far as flags are concerned."""
    (tmp_path / "config.json").write_text('{"num_local_experts": 4}')
    return str(tmp_path)


@pytest.mark.parametrize(
    ("words", "together"),
    [
        ("-dp 2 --engine vllm", True),
        ("-dp 2 -dpl 1 --engine vllm", True),
        ("-dp 2 -dpl 0", True),
        ("-dp 2 -dpn 1 --engine vllm", True),
        ("-dp 4 -dpl 2 -dpr 2 --engine vllm", True),
        ("--engine vllm", False),
        ("-dp 2 --engine vllm --headless", False),
        ("-dp 2", False),
        ("-dp 2 -dpn 1", False),
        ("-dp 2 --engine mock", False),
    ],
)
def test_ranks_of_a_mixture_step_together_in_vllm(words: str, together: bool, mixture: str) -> None:
    assert config_from(mixture, *words.split()).steps_together is together
    assert not config(*words.split()).steps_together


def test_ranks_that_step_together_are_not_started_again(mixture: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        config_from(mixture, "-dp", "2", "--engine", "vllm", "--engine-restarts", "1")
    assert "--engine-restarts: ranks of a mixture of experts" in capsys.readouterr().err


def test_ranks_that_step_together_join_the_first_frontend(mixture: str) -> None:
    words = ["-dp", "4", "-dpl", "2", "--engine", "vllm", "-dpa", "10.1.2.3", "-dpp", "4", "-dpr"]
    head, other = config_from(mixture, *words, "0"), config_from(mixture, *words, "2")
    assert engine_addresses(head).handshake == "tcp://10.1.2.3:4"
    assert engine_addresses(other).handshake == "tcp://127.0.0.1:*"
    assert describe(head).splitlines()[-1] == "all step together: the others join at 10.1.2.3:4"
    assert describe(other).splitlines()[-1] == "all step together: these join at 10.1.2.3:4"
