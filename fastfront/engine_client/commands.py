"""Command lines of the engines that a server starts."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from fastfront.config import LoraOptions, ServeConfig, cache_folder
from fastfront.engine_client.layout import value_of
from fastfront.errors import SetupError

PROJECT = Path(__file__).resolve().parents[2]
KEEPER = PROJECT / "engine" / "keeper.py"
VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
PEERS = Path("peers", "vllm", "bin", "python")  # below the cache, as `make bench-peers` makes it


def find_engine_python(config: ServeConfig) -> str:
    """The interpreter engines run on: --engine-python, else what set-up has made for that kind of engine.

    Raises SetupError saying what to do.
    """
    if config.engine == "vllm" and config.engine_python is None:
        python = cache_folder() / PEERS
        if python.exists():
            return str(python)
        raise SetupError("--engine vllm: name an interpreter that has vLLM with --engine-python, or run `make bench-peers`")
    return default_engine_python(config.engine_python)


def default_engine_python(named: str | None) -> str:
    """The interpreter of the engine's own code: the one named, else what set-up has made. SetupError says what to do."""
    if named is not None:
        found = shutil.which(named)
        if found is None:
            raise SetupError(f"--engine-python {named}: no such program")
        return found
    beside = PROJECT / ".venv-engine" / "bin" / "python"
    if beside.exists():
        return str(beside)
    raise SetupError(
        f"no engine environment at {beside.parent.parent}: run `make setup`, or name an interpreter with --engine-python"
    )


def engine_command(config: ServeConfig, python: str, index: int, handshake: str, vocabulary_size: int) -> list[str]:
    """The command line of one local engine that joins at `handshake`."""
    if config.engine == "mock":
        command = [python, "-m", "engine.mock", "--handshake", handshake, "--local", "--index", str(index)]
        command += ["--step-ms", f"{config.step_ms:g}", "--vocab", str(vocabulary_size)]
        if config.max_model_len is not None:
            command += ["--max-model-len", str(config.max_model_len)]
        return [*command, *lora_words(config.lora), *config.engine_args]
    if config.engine == "vllm":
        host, _, port = handshake.removeprefix("tcp://").rpartition(":")
        return kept(python, f"fastfront::vllm-engine-{index}", vllm_command(config, python, index, host.strip("[]"), port))
    return native_command(config, python, index, ["--handshake", handshake])


def headless_command(config: ServeConfig, python: str, index: int) -> list[str]:
    """The command line of one engine for a frontend elsewhere, which ends with the process that starts it."""
    where = ["--data-parallel-address", config.data_parallel_address]
    where += ["--data-parallel-rpc-port", str(config.data_parallel_rpc_port)]
    if config.engine == "mock":
        command = [python, "-m", "engine.mock", "--headless", "--index", str(index), *where]
        command += ["--step-ms", f"{config.step_ms:g}", *lora_words(config.lora), *config.engine_args]
    elif config.engine == "vllm":
        port = str(config.data_parallel_rpc_port)
        command = vllm_command(config, python, index, config.data_parallel_address, port)
    else:
        command = native_command(config, python, index, ["--headless", *where])
    return kept(python, f"fastfront::keeper-{index}", command)


def native_command(config: ServeConfig, python: str, index: int, where: list[str]) -> list[str]:
    """This project's engine; `where` are the flags that say whom it joins."""
    command = [python, "-m", "engine", str(config.model_path), *where, "--data-parallel-rank", str(index)]
    if config.local_ranks.start:
        command += ["--local-index", str(config.local_ranks.index(index))]
    return [*command, *_options(config, {"--kv-cache-memory": config.kv_cache_memory}), *config.engine_args]


def vllm_command(config: ServeConfig, python: str, index: int, host: str, port: str) -> list[str]:
    """One rank of vLLM's engine cores without a frontend. A command for each rank, so that one can be lost and started alone."""
    command = [python, "-m", "vllm.entrypoints.cli.main", "serve", str(config.model_path), "--headless"]
    command += ["--data-parallel-size", str(config.data_parallel_size), "--data-parallel-size-local", "1"]
    command += ["--data-parallel-start-rank", str(index)]
    command += ["--data-parallel-address", host, "--data-parallel-rpc-port", port]
    more = {"--kv-cache-memory-bytes": config.kv_cache_memory}
    more["--tokenizer-mode"] = config.tokenizer_mode if config.tokenizer_mode != "auto" else None
    more["--tokenizer"] = None if config.tokenizer is None else str(config.tokenizer)  # its grammars need the tokens' texts
    words = [*command, *_options(config, more)]
    wanted = (
        ("--enable-mfu-metrics", config.metrics.work), ("--cudagraph-metrics", config.metrics.graphs),
        ("--enable-sleep-mode", config.sleep_mode),
    )  # fmt: skip
    words += [flag for flag, on in wanted if on]
    return [*words, *config.engine_args]


def kept(python: str, title: str, command: list[str]) -> list[str]:
    """The command under a process that leaves nothing of it behind."""
    return [python, str(KEEPER), title, *command]


def _options(config: ServeConfig, more: Mapping[str, object | None]) -> list[str]:
    """Flags that this project's engine and vLLM's share."""
    options: dict[str, object | None] = {
        "--max-model-len": config.max_model_len,
        "--max-num-seqs": config.max_num_seqs,
        "--max-num-batched-tokens": config.max_num_batched_tokens,
        "--block-size": config.block_size,
        "--num-gpu-blocks-override": config.num_gpu_blocks_override,
        "--dtype": config.dtype if config.dtype != "auto" else None,
        "--tensor-parallel-size": config.tensor_parallel_size if config.tensor_parallel_size > 1 else None,
        "--gpu-memory-utilization": config.gpu_memory_utilization,
        "--scheduling-policy": config.scheduling_policy,
        "--seed": config.seed,
        "--speculative-config": None if config.speculative is None else json.dumps(config.speculative),
        "--per-request-spec-decode-metrics": config.draft_metrics if config.draft_metrics != "none" else None,
        "--hf-overrides": json.dumps(config.hf_overrides) if config.hf_overrides else None,
        "--logprobs-mode": config.logprobs_mode if config.logprobs_mode != "raw_logprobs" else None,
        "--kv-cache-metrics-sample": config.metrics.kv_sample,
        **more,
    }
    words = [word for name, value in options.items() if value is not None for word in (name, str(value))]
    if config.metrics.kv_sample is not None:
        words.append("--kv-cache-metrics")
    for name, wanted in (("enable-prefix-caching", config.enable_prefix_caching), ("async-scheduling", config.async_scheduling)):
        if wanted is not None:
            words.append(f"--{name}" if wanted else f"--no-{name}")
    return words + lora_words(config.lora)


def lora_words(lora: LoraOptions) -> list[str]:
    """Flags about adapters, which all engines share."""
    numbers = {"--max-loras": lora.max_loras, "--max-lora-rank": lora.max_lora_rank, "--max-cpu-loras": lora.max_cpu_loras}
    given = [word for name, value in numbers.items() if value is not None for word in (name, str(value))]
    return ["--enable-lora", *given] if lora.enabled else []


def engine_environment(config: ServeConfig, rank: int) -> dict[str, str]:
    """This process's environment, with the checkout on the import path when that is where `engine` lies.

    Not for vLLM: it needs nothing of ours, and our packages' names are common ones. Raises SetupError without GPUs for the rank.
    """
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHON_GIL", "PYTHONHOME")}
    if config.engine == "vllm":
        if len(config.local_ranks) > 1:
            env |= _devices(config, rank)
    elif PROJECT.name not in ("site-packages", "dist-packages"):
        env["PYTHONPATH"] = os.pathsep.join(p for p in (str(PROJECT), env.get("PYTHONPATH", "")) if p)
    if isinstance(config.hf_token, str):
        env["HF_TOKEN"] = config.hf_token  # a command line can be read by everybody
    return env


def _devices(config: ServeConfig, rank: int) -> dict[str, str]:
    """The GPUs of one of several ranks of vLLM's: each is a server of its own, and would take the first ones."""
    stages = value_of(config.engine_args, "--pipeline-parallel-size") or value_of(config.engine_args, "-pp")
    width = config.tensor_parallel_size * (int(stages) if stages.isdecimal() else 1)
    first = config.local_ranks.index(rank) * width
    visible = os.environ.get(VISIBLE_DEVICES)
    if visible is None:
        return {VISIBLE_DEVICES: ",".join(map(str, range(first, first + width)))}
    names = [name for name in visible.split(",") if name.strip()]
    if names and len(names) < first + width:
        raise SetupError(
            f"{VISIBLE_DEVICES}={visible} are {len(names)} GPUs, but {len(config.local_ranks)} engines take {width} each"
        )
    return {VISIBLE_DEVICES: ",".join(names[first : first + width])} if names else {}
