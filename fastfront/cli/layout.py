"""Flags about engines and ranks that do not go together. The texts name the flags."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Collection
from itertools import chain

DEFAULT_RPC_PORT = 29550
HEADLESS_GROUPS = ("engines", "logging", "model", "options", "positional arguments")
_ELSEWHERE = (
    "--engine-args", "--engine-python", "--engine-restarts", "--tensor-parallel-size", "--per-request-spec-decode-metrics",
)  # fmt: skip


def conflict(args: Namespace, groups: dict[str, list[str]], given: Collection[str]) -> str | None:
    """What is wrong, or None. `groups` are the flags by the group they are declared in, `given` those on the command line."""
    total, local = args.data_parallel_size, local_engines(args)
    if "--step-ms" in given and args.engine != "mock":
        return f"--step-ms goes with --engine mock, not {args.engine}"
    if args.headless:
        return _headless(args, groups, given, local)
    if args.data_parallel_start_rank:
        return "--data-parallel-start-rank goes with --headless: engines of a server have the first ranks"
    if local > total:
        return f"--data-parallel-size-local {local} is more than --data-parallel-size {total}"
    if local == 0:
        useless = [flag for flag in _ELSEWHERE if flag in given] + (["--"] if args.engine_words else [])
        if useless:
            return f"{useless[0]}: no engine is started here (--data-parallel-size-local 0)"
    if local and args.tensor_parallel_size > 1 and args.engine == "mock":
        return "--tensor-parallel-size: the mock engine has no workers"
    return None


def _headless(args: Namespace, groups: dict[str, list[str]], given: Collection[str], local: int) -> str | None:
    own = set(chain.from_iterable(flags for group, flags in groups.items() if group not in HEADLESS_GROUPS))
    useless = sorted(flag for flag in given if flag in own)
    if useless:
        return f"{useless[0]} has no effect with --headless, which starts engines only"
    first, total = args.data_parallel_start_rank, args.data_parallel_size
    if args.data_parallel_size_local == 0:
        return "--data-parallel-size-local 0 with --headless: there is nothing to start"
    if first + max(1, local) > total:
        return f"--data-parallel-start-rank {first} and {max(1, local)} engines here are more than --data-parallel-size {total}"
    return None


def local_engines(args: Namespace) -> int:
    """How many engines are started here: what is asked for, else all, with --headless from the first rank on."""
    if args.data_parallel_size_local is not None:
        return int(args.data_parallel_size_local)
    return int(args.data_parallel_size) - (int(args.data_parallel_start_rank) if args.headless else 0)


def rpc_port(args: Namespace) -> int:
    """The port that engines join at. 0, one that the system chooses, where nobody else has to know it."""
    if args.data_parallel_rpc_port is not None:
        return int(args.data_parallel_rpc_port)
    private = args.engine == "vllm" and not args.headless and local_engines(args) == args.data_parallel_size
    return 0 if private else DEFAULT_RPC_PORT
