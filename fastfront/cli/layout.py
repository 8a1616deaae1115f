"""Flags about engines and ranks: what they mean together, and which do not go together. The texts name the flags."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Collection
from itertools import chain
from typing import NamedTuple

from fastfront.config import LoadBalancing

DEFAULT_RPC_PORT = 29550
HEADLESS_GROUPS = ("engines", "logging", "model", "options", "positional arguments", "traces and metrics")
_ELSEWHERE = (
    "--engine-args", "--engine-python", "--engine-restarts", "--tensor-parallel-size", "--per-request-spec-decode-metrics",
)  # fmt: skip


class Placement(NamedTuple):
    """Who balances, and the engines started here: the rank of the first one, and how many."""

    balancing: LoadBalancing
    first: int
    local: int


def placement(args: Namespace) -> Placement:
    """What flags mean that go together. The rules for which of a node, a rank or all a frontend serves are vLLM's."""
    total, local, first = args.data_parallel_size, args.data_parallel_size_local, args.data_parallel_start_rank
    if args.headless:
        return Placement("internal", first or 0, total - (first or 0) if local is None else local)
    if args.data_parallel_rank is not None:
        return Placement("external", args.data_parallel_rank, 1)
    if local is None or local == total or not (args.data_parallel_hybrid_lb or first is not None):
        return Placement("internal", 0, total if local is None else local)
    return Placement("external" if local == 1 else "hybrid", first or 0, local)


def conflict(args: Namespace, groups: dict[str, list[str]], given: Collection[str]) -> str | None:
    """What is wrong, or None. `groups` are the flags by the group they are declared in, `given` those on the command line."""
    if "--step-ms" in given and args.engine != "mock":
        return f"--step-ms goes with --engine mock, not {args.engine}"
    if args.headless:
        return _headless(args, groups, given)
    problem = _balancing(args)
    if problem is not None:
        return problem
    local = placement(args).local
    if local == 0:
        useless = [flag for flag in _ELSEWHERE if flag in given] + (["--"] if args.engine_words else [])
        if useless:
            return f"{useless[0]}: no engine is started here (--data-parallel-size-local 0)"
    if local and args.tensor_parallel_size > 1 and args.engine == "mock":
        return "--tensor-parallel-size: the mock engine has no workers"
    return None


def _balancing(args: Namespace) -> str | None:
    total, local, first = args.data_parallel_size, args.data_parallel_size_local, args.data_parallel_start_rank
    rank = args.data_parallel_rank
    by_rank = _given({"--data-parallel-rank": rank is not None, "--data-parallel-external-lb": args.data_parallel_external_lb})
    by_node = _given({"--data-parallel-start-rank": first is not None, "--data-parallel-hybrid-lb": args.data_parallel_hybrid_lb})
    if local is not None and local > total:
        return f"--data-parallel-size-local {local} is more than --data-parallel-size {total}"
    if by_rank and by_node:
        return f"{by_rank} (a frontend for each rank) and {by_node} (one for each node) do not go together"
    if by_rank:
        if rank is None:
            return f"{by_rank} needs --data-parallel-rank"
        if total == 1:
            return f"{by_rank} needs a --data-parallel-size of several"
        if rank >= total:
            return f"--data-parallel-rank {rank} is not below --data-parallel-size {total}"
        if local not in (None, 1):
            return f"--data-parallel-size-local {local}: with {by_rank} there is one engine here"
    if by_node:
        if local is None:
            return f"{by_node} needs --data-parallel-size-local, the number of ranks here; engines without a frontend: --headless"
        if local == 0:
            return f"--data-parallel-size-local 0 with {by_node}: this frontend would have no engine"
        if (first or 0) + local > total:
            return f"--data-parallel-start-rank {first} and {local} engines here are more than --data-parallel-size {total}"
    return None


def _given(flags: dict[str, bool]) -> str:
    """The first of the flags that is there, or nothing."""
    return next((flag for flag, there in flags.items() if there), "")


def _headless(args: Namespace, groups: dict[str, list[str]], given: Collection[str]) -> str | None:
    own = set(chain.from_iterable(flags for group, flags in groups.items() if group not in HEADLESS_GROUPS))
    useless = sorted(flag for flag in given if flag in own)
    if useless:
        return f"{useless[0]} has no effect with --headless, which starts engines only"
    if args.data_parallel_hybrid_lb:
        return "--data-parallel-hybrid-lb does not go with --headless, which starts engines only"
    if args.data_parallel_rank is not None or args.data_parallel_external_lb:
        return "--data-parallel-rank and --data-parallel-external-lb do not go with --headless: see --data-parallel-start-rank"
    _, first, local = placement(args)
    if args.data_parallel_size_local == 0:
        return "--data-parallel-size-local 0 with --headless: there is nothing to start"
    if first + max(1, local) > args.data_parallel_size:
        total = args.data_parallel_size
        return f"--data-parallel-start-rank {first} and {max(1, local)} engines here are more than --data-parallel-size {total}"
    return None


def rpc_port(args: Namespace) -> int:
    """The port that engines join at. 0, one that the system chooses, where nobody else has to know it."""
    if args.data_parallel_rpc_port is not None:
        return int(args.data_parallel_rpc_port)
    balancing, _, local = placement(args)
    private = args.engine == "vllm" and not args.headless and balancing == "internal" and local == args.data_parallel_size
    return 0 if private else DEFAULT_RPC_PORT
