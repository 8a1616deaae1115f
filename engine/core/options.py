"""Command line of an engine core."""

from __future__ import annotations

import argparse
import json
import re
from dataclasses import dataclass
from typing import Any, get_args

from engine.config import EngineConfig, LogprobsMode
from engine.executor.processes import layout

DEFAULT_RPC_PORT = 29550
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


@dataclass(frozen=True, slots=True)
class CoreOptions:
    """Where the frontend is, and the engine's own configuration."""

    handshake: str
    headless: bool
    engine: EngineConfig
    handshake_timeout_s: float
    disconnect_timeout_s: float
    shutdown_timeout_s: float


def parse(argv: list[str]) -> CoreOptions:
    """Parse a command line; leaves with status 2 on errors."""
    ap = argparse.ArgumentParser("python -m engine", description="Engine core: serves MODEL to a frontend.")
    ap.add_argument("model", metavar="MODEL", help="folder of a decoder-only transformers model")
    ap.add_argument("--headless", action="store_true", help="started on its own, joins a frontend elsewhere")
    ap.add_argument("--handshake", metavar="ADDRESS", help="handshake socket of the frontend, ipc:// or tcp://")
    ap.add_argument("--data-parallel-address", default="127.0.0.1", metavar="HOST", help="the frontend's host")
    ap.add_argument("--data-parallel-rpc-port", type=int, default=DEFAULT_RPC_PORT, metavar="PORT")
    ap.add_argument("--index", "--data-parallel-rank", "--data-parallel-start-rank", type=int, default=0, metavar="N")
    ap.add_argument("--local-index", type=_whole, metavar="N", help="place among this machine's engines, for its GPUs (--index)")
    ap.add_argument("--max-model-len", type=_positive, metavar="N", help="longest sequence (default: the model's)")
    ap.add_argument("--max-num-seqs", type=_positive, default=256, metavar="N", help="running requests")
    ap.add_argument("--max-num-batched-tokens", type=_positive, metavar="N", help="tokens per step")
    ap.add_argument("--block-size", type=_positive, default=16, metavar="N", help="tokens per KV block")
    ap.add_argument("--num-gpu-blocks-override", type=_positive, dest="num_blocks", metavar="N", help="KV blocks")
    ap.add_argument("--kv-cache-memory", type=_size, dest="kv_cache_bytes", metavar="BYTES", help="e.g. 2G")
    ap.add_argument(
        "--gpu-memory-utilization", type=_share, default=0.9, metavar="X", help="a GPU's share for weights, a step and KV blocks"
    )
    ap.add_argument("--enforce-eager", action="store_true", help="record no decode steps as CUDA graphs")
    ap.add_argument("--dtype", choices=("auto", "bfloat16", "float16", "float32"), default="auto")
    ap.add_argument("--device", default="auto", help="auto, cpu or cuda[:N]")
    ap.add_argument(
        "--tensor-parallel-size", "-tp", type=_positive, default=1, metavar="N", help="workers that share the model (1)"
    )
    ap.add_argument(
        "--distributed-executor-backend",
        dest="executor",
        choices=("auto", "uni", "mp"),
        default="auto",
        help="uni: the worker in this process; mp: a process for each (auto: mp if there are several)",
    )
    ap.add_argument("--seed", type=int, help="makes requests without a seed reproducible")
    ap.add_argument("--threads", type=_positive, metavar="N", help="CPU threads (default: all this process may use)")
    ap.add_argument(
        "--cpu-kernels", action=argparse.BooleanOptionalAction, default=True, help="compute with our own kernels on a CPU"
    )
    ap.add_argument("--disable-log-stats", action="store_false", dest="log_stats", help="send no stats and events")
    ap.add_argument(
        "--enable-prefix-caching", action=argparse.BooleanOptionalAction, default=True, help="share the KV of equal prefixes"
    )
    ap.add_argument("--scheduling-policy", choices=("fcfs", "priority"), default="fcfs", help="priority: lower values go first")
    ap.add_argument(
        "--async-scheduling", action=argparse.BooleanOptionalAction, default=True, help="plan a step while another is computed"
    )
    ap.add_argument(
        "--logprobs-mode", choices=get_args(LogprobsMode), default="raw_logprobs",
        help="scores that logprobs show: of the model, or as the token was drawn from them (raw_logprobs)",
    )  # fmt: skip
    ap.add_argument(
        "--speculative-config", "-sc", type=_lookup, metavar="JSON",
        help="verify in one step num_speculative_tokens that followed the last ones before: method ngram, prompt_lookup_min and "
        "prompt_lookup_max (5); then steps do not overlap",
    )  # fmt: skip
    ap.add_argument(
        "--per-request-spec-decode-metrics", choices=("none", "summary", "detailed"), default="none", dest="drafts_told",
        help="tell with a request's end how its drafts fared (none)",
    )  # fmt: skip
    ap.add_argument("--hf-overrides", type=_object, default={}, metavar="JSON", help="what config.json is to say instead")
    ap.add_argument("--kv-cache-metrics", action="store_true", help="tell what becomes of KV blocks")
    ap.add_argument("--kv-cache-metrics-sample", type=_share, default=0.01, metavar="X", help="share of blocks watched")
    ap.add_argument("--enable-lora", action=argparse.BooleanOptionalAction, default=False, help="serve LoRA adapters")
    ap.add_argument("--max-loras", type=_positive, default=1, metavar="N", help="adapters in one step (1)")
    ap.add_argument(
        "--max-lora-rank", type=int, choices=(1, 8, 16, 32, 64, 128, 256, 320, 512), default=16, metavar="N",
        help="largest rank of an adapter (16)",
    )  # fmt: skip
    ap.add_argument("--max-cpu-loras", type=_positive, metavar="N", help="adapters in memory (--max-loras)")
    for name, what in (("start", "begins"), ("end", "ends; constraints on the output hold from there on")):
        ap.add_argument(f"--reasoning-{name}", action="append", metavar="TEXT", help=f"reasoning {what}; repeatable")
    ap.add_argument("--reasoning-cut", metavar="TEXT", help="what ends reasoning beyond its budget (the first --reasoning-end)")
    ap.add_argument("--handshake-timeout", type=float, default=300.0, metavar="S", help="wait that long for the frontend")
    ap.add_argument("--disconnect-timeout", type=float, default=10.0, metavar="S", help="leave when it is gone that long")
    ap.add_argument(
        "--shutdown-timeout", type=_seconds, default=0.0, metavar="S", help="after SIGTERM let requests finish that long (0)"
    )
    values = vars(ap.parse_args(argv))
    host, port = values.pop("data_parallel_address"), values.pop("data_parallel_rpc_port")
    handshake = values.pop("handshake") or f"tcp://{f'[{host}]' if ':' in host else host}:{port}"
    for name in ("reasoning_start", "reasoning_end"):
        values[name] = tuple(values[name] or ())
        if "" in values[name]:
            ap.error(f"--{name.replace('_', '-')} must not be empty")
    if (cut := values["reasoning_cut"]) is not None and not cut.endswith(values["reasoning_end"] or "\0"):
        ap.error("--reasoning-cut must end with a --reasoning-end")
    sample = values.pop("kv_cache_metrics_sample")
    values["kv_sample"] = sample if values.pop("kv_cache_metrics") and values["log_stats"] else None
    if values["max_cpu_loras"] is not None and values["max_cpu_loras"] < values["max_loras"]:
        ap.error(f"--max-cpu-loras {values['max_cpu_loras']} is less than --max-loras {values['max_loras']}")
    values |= values.pop("speculative_config") or {}
    budget, seqs = values["max_num_batched_tokens"], values["max_num_seqs"]
    if budget is not None and budget < seqs:
        ap.error(f"--max-num-batched-tokens {budget} is less than --max-num-seqs {seqs}")
    options = CoreOptions(
        handshake=handshake,
        headless=values.pop("headless"),
        handshake_timeout_s=values.pop("handshake_timeout"),
        disconnect_timeout_s=values.pop("disconnect_timeout"),
        shutdown_timeout_s=values.pop("shutdown_timeout"),
        engine=EngineConfig(**values),
    )
    try:
        layout(options.engine)
    except ValueError as error:
        ap.error(str(error))
    return options


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return value


def _whole(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative")
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds")
    return value


def _object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError("not a JSON object")
    return value


def _lookup(text: str) -> dict[str, int]:
    config = _object(text)
    if config.pop("method", None) not in (None, "ngram") or config.pop("model", "ngram") not in ("ngram", "[ngram]"):
        raise argparse.ArgumentTypeError("this engine's only method is ngram")
    least, most = (config.pop(f"prompt_lookup_{name}", None) for name in ("min", "max"))
    given = [value for value in (least, most) if value is not None] or [5]
    found = {"draft_tokens": config.pop("num_speculative_tokens", None), "lookup_least": given[0], "lookup_most": given[-1]}
    if config:
        raise argparse.ArgumentTypeError(f"{next(iter(config))} has no meaning for the method ngram")
    if not all(type(value) is int and value > 0 for value in found.values()) or given[0] > given[-1]:
        raise argparse.ArgumentTypeError("num_speculative_tokens, prompt_lookup_min <= prompt_lookup_max: whole numbers above 0")
    return found


def _share(text: str) -> float:
    value = float(text)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0 and at most 1")
    return value


def _size(text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 512M or 2G")
    return int(float(match[1]) * _UNITS[match[2].upper()])
