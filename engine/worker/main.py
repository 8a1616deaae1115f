"""Life of a worker process: load, follow orders, leave with the engine core."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Protocol

from engine.config import EngineConfig
from engine.executor.messages import Answer, Call, Codec, Loaded, Reply, Result, Start, Step
from engine.executor.mp import ERROR, LARGEST_REPLY, MODEL_ERROR
from engine.executor.plan import StepPlan, StepResult, WorkerInfo
from engine.executor.processes import OUTPUT_RANK, Place, worker_title
from engine.lifecycle import be_killed_with, set_title
from engine.model.errors import ModelError
from engine.progress import teller
from engine.shm.errors import PeerDiedError, RingClosedError
from engine.shm.peer import Peer
from engine.shm.reader import RingReader
from engine.shm.writer import RingWriter

LOOPBACK = "lo"
"""The ranks of an engine are on one machine."""


class RankWorker(Protocol):
    """The worker of one rank; `Call` reaches its other methods."""

    def load(self) -> WorkerInfo:
        """Load the model; ModelError."""
        ...

    def execute(self, plan: StepPlan) -> StepResult:
        """Run a step."""
        ...


Build = Callable[[EngineConfig, Place, Callable[[str], None]], RankWorker]


def build_worker(config: EngineConfig, place: Place, say: Callable[[str], None]) -> RankWorker:
    """The real worker."""
    say("importing torch and transformers")
    # Late, because it takes seconds.
    from engine.worker.worker import Worker  # noqa: PLC0415

    return Worker(config, say, place)


def main(argv: list[str] | None = None, build: Build = build_worker) -> int:
    """Run a worker; returns its exit status. What it writes goes to the engine core."""
    ap = argparse.ArgumentParser("python -m engine.worker.main")
    for name in ("engine", "rank", "parent", "orders", "replies", "rendezvous"):
        ap.add_argument(f"--{name}", type=int, required=True)
    args = ap.parse_args(argv)
    set_title(worker_title(args.engine, args.rank))
    be_killed_with(args.parent)
    # Both reach whole groups of processes; the engine core decides when workers leave.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK)
    say = teller(f"engine {args.engine} worker {args.rank}")
    try:
        return _serve(args, build, say)
    except (RingClosedError, PeerDiedError):
        return 0
    except ModelError as error:
        say(f"{ERROR}{' '.join(str(error).split())}")
        return MODEL_ERROR
    except Exception:
        say(traceback.format_exc())
        return 1


def _serve(args: argparse.Namespace, build: Build, say: Callable[[str], None]) -> int:
    codec = Codec()
    orders = RingReader(args.orders, args.rank, Peer(args.parent, "the engine core"))
    replies = RingWriter(args.replies, LARGEST_REPLY) if args.rank == OUTPUT_RANK else None
    start = codec.decode_order(orders.receive())
    assert isinstance(start, Start), start
    ranks = start.config.tensor_parallel_size
    worker = build(start.config, Place(args.rank, ranks, args.rendezvous), say)
    info = worker.load()
    if replies is not None:
        replies.send(codec.encode(Loaded(info)))
    while True:
        order = codec.decode_order(orders.receive())
        reply: Reply
        if isinstance(order, Step):
            reply = Result(worker.execute(order.plan))
        else:
            assert isinstance(order, Call), order
            reply = _call(worker, order, say)
        if replies is not None:
            replies.send(codec.encode(reply))


def _call(worker: RankWorker, order: Call, say: Callable[[str], None]) -> Answer:
    try:
        return Answer(getattr(worker, order.method)(*order.args))
    except Exception as error:
        say(f"{order.method}: {traceback.format_exc()}")
        return Answer(error=(type(error).__name__, str(error)))


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    # Threads of libraries that still run must not hold up the end.
    os._exit(status)
