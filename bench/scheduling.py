"""One step after the other against two under way: the same worker, the engine core in this process, no sockets.

    .venv-engine/bin/python -m bench.scheduling [MODEL] [--streams 1,8,32] [--tokens 64] [--probes 20] [--rounds 3] [--json FILE]

For each number of streams and both ways in turn: tokens/s and CPU time per token while all of them decode; then, beside that
many streams, how long single requests of 16 tokens wait for their first token, also as a multiple of a decode step. Each
probe is sent at a random moment of a step. Printed are medians over the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import random
import statistics
import threading
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("GOMP_SPINCOUNT", "0")

from engine.config import EngineConfig
from engine.core.core import EngineCore
from engine.core.messages import Add, Call, Dead, Input, Leave, Output
from engine.executor.plan import WorkerInfo
from engine.executor.uni import UniExecutor
from engine.kv_cache.manager import KvCacheManager
from engine.protocol import SamplingParams, UtilityCall
from engine.scheduler.request import Request
from engine.scheduler.scheduler import Limits, Scheduler
from engine.structured.compiler import GrammarCompiler
from engine.structured.grammars import Grammars
from tools.setup.paths import find_paths

CACHE = find_paths(os.environ).cache
PROMPT, PROBE = 64, 16


class Run:
    """An engine core on a thread; requests go in, tokens are counted as they come out."""

    def __init__(self, executor: UniExecutor, info: WorkerInfo, model: str, async_scheduling: bool) -> None:
        self._commands: queue.SimpleQueue[Input] = queue.SimpleQueue()
        self._messages: queue.SimpleQueue[Output | Dead] = queue.SimpleQueue()
        scheduler = Scheduler(
            Limits(256, info.max_num_batched_tokens, info.max_model_len), KvCacheManager(info.num_blocks, info.block_size)
        )
        core = EngineCore(
            scheduler, executor, self._commands, self._messages,
            grammars=Grammars(GrammarCompiler(model, info.vocab_size), self._commands.put), index=0, clients=1,
            async_scheduling=async_scheduling,
        )  # fmt: skip
        self._thread = threading.Thread(target=core.run)
        self._thread.start()
        self.counts: dict[str, int] = {}
        self.done: set[str] = set()

    def add(self, name: str, length: int, tokens: int, seed: int) -> None:
        rng = random.Random(seed)
        prompt = [rng.randrange(10, 40_000) for _ in range(length)]
        self.counts[name] = 0
        self._commands.put(Add(Request(name, 0, prompt, SamplingParams(temperature=0.0, max_tokens=tokens), tokens)))

    def until(self, condition: Any) -> None:
        """Take in messages until `condition()` holds."""
        while not condition():
            item = self._messages.get(timeout=120)
            assert isinstance(item, Output)
            for output in item.message.outputs:
                self.counts[output.request_id] += len(output.new_token_ids)
                if output.finish_reason is not None:
                    self.done.add(output.request_id)

    def first(self, name: str) -> None:
        self.until(lambda: self.counts[name] > 0)

    def close(self) -> None:
        # Answered when no step is under way any more: the executor is used again.
        self._commands.put(Call(UtilityCall(0, 1, "pause_scheduler", ["abort", True]), 0))
        while True:
            item = self._messages.get(timeout=120)
            if isinstance(item, Output) and item.message.utility_output is not None:
                break
        self._commands.put(Leave("done"))
        self._thread.join()


def decode(run: Run, streams: int, tokens: int) -> tuple[float, float]:
    """Tokens/s and CPU milliseconds per token, from when all streams have a token until one has all."""
    names = [f"s{number}" for number in range(streams)]
    for number, name in enumerate(names):
        run.add(name, PROMPT, tokens, number)
    run.until(lambda: all(run.counts[name] for name in names))
    before, cpu, start = sum(run.counts.values()), time.process_time(), time.perf_counter()
    run.until(lambda: any(name in run.done for name in names))
    elapsed, used = time.perf_counter() - start, time.process_time() - cpu
    made = sum(run.counts.values()) - before
    run.until(lambda: all(name in run.done for name in names))
    return made / elapsed, used / made * 1e3


def first_tokens(run: Run, streams: int, probes: int, longest: int) -> tuple[list[float], list[float]]:
    """Milliseconds until a probe's first token, and those as multiples of the decode step measured just before."""
    rng = random.Random(streams)
    for number in range(streams):
        run.add(f"b{number}", PROMPT, longest - PROMPT, number)
    run.until(lambda: all(run.counts[f"b{number}"] > 2 for number in range(streams)))
    waits, steps = [], []
    for probe in range(probes):
        had, start = run.counts["b0"], time.perf_counter()
        run.until(lambda had=had: run.counts["b0"] >= had + 4)
        step = (time.perf_counter() - start) / (run.counts["b0"] - had)
        time.sleep(step * rng.random())
        start = time.perf_counter()
        run.add(f"p{probe}", PROBE, 1, 1000 + probe)
        run.first(f"p{probe}")
        waits.append((time.perf_counter() - start) * 1e3)
        steps.append(waits[-1] / 1e3 / step)
    return waits, steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default=str(CACHE / "models" / "smollm2"))
    parser.add_argument("--streams", default="1,8,32")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--probes", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    longest = PROMPT + max(args.tokens, 8 * args.probes + 64)
    executor = UniExecutor(EngineConfig(args.model, max_model_len=longest), lambda text: print(f"  {text}", flush=True))
    info = executor.load()
    rows: dict[tuple[int, bool], list[list[float]]] = {}
    for _ in range(args.rounds):
        for streams in map(int, args.streams.split(",")):
            for two in (False, True):
                run = Run(executor, info, args.model, two)
                rate, cpu = decode(run, streams, args.tokens)
                waits, steps = first_tokens(run, streams, args.probes, longest)
                run.close()
                figures = [rate, cpu, statistics.median(waits), statistics.median(steps)]
                rows.setdefault((streams, two), []).append(figures)
    executor.close()
    print(f"{'streams':>7} {'under way':>9} {'tokens/s':>9} {'CPU ms/token':>12} {'first ms':>9} {'in steps':>8}")
    results = []
    for (streams, two), found in rows.items():
        rate, cpu, wait, step = (statistics.median(column) for column in zip(*found, strict=True))
        print(f"{streams:7} {2 if two else 1:9} {rate:9.1f} {cpu:12.2f} {wait:9.1f} {step:8.2f}")
        results.append({"streams": streams, "under_way": 2 if two else 1, "rounds": found})
    if args.json:
        args.json.write_text(json.dumps({"results": results, "device": info.device, "dtype": info.dtype}, indent=1) + "\n")


if __name__ == "__main__":
    main()
