"""Decode speed of the engine on a CPU: executor and scheduler in this process, no sockets, greedy, the same prompts for all.

    .venv-engine/bin/python bench/engine_cpu.py [MODEL] [--variants kernels-bfloat16,torch-bfloat16,...] [--streams 1,8,32]
        [--tokens 48] [--prompt 96] [--threads N] [--rounds 3] [--json FILE]

A variant is kernels-DTYPE (our kernels) or torch-DTYPE (torch's operations), DTYPE float32 or bfloat16. Each round runs all
variants one after the other at each number of streams, so that a busy machine disturbs them alike; printed are the
median and the best decode step as tokens/s, the CPU time per token, and prompt tokens/s. Prompts are random tokens.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any

# Before torch is imported, as the engine does.
os.environ.setdefault("GOMP_SPINCOUNT", "0")

import torch

from engine.config import EngineConfig
from engine.executor.uni import UniExecutor
from engine.kv_cache.manager import KvCacheManager
from engine.protocol import SamplingParams
from engine.scheduler.request import Request
from engine.scheduler.scheduler import Limits, Scheduler

CACHE = Path(os.environ.get("FASTFRONT_CACHE", "~/.cache/fastfront")).expanduser()
BLOCK = 16
BUDGET = 512


class Variant:
    """One way to run the model, loaded."""

    def __init__(self, name: str, model: str, threads: int | None, longest: int) -> None:
        way, _, dtype = name.partition("-")
        if way not in ("kernels", "torch") or dtype not in ("float32", "bfloat16"):
            raise SystemExit(f"--variants: {name!r} is not kernels-DTYPE or torch-DTYPE")
        self.name = name
        config = EngineConfig(
            model,
            dtype=dtype,
            threads=threads,
            cpu_kernels=way == "kernels",
            kv_cache_bytes=1 << 30,
            max_model_len=longest,
        )
        self.executor = UniExecutor(config, lambda text: print(f"  {name}: {text}", flush=True))
        self.info = self.executor.load()
        self.samples: dict[int, list[float]] = {}
        self.cpu: dict[int, list[float]] = {}
        self.prompt_rates: list[float] = []
        self.runs = 0

    def run(self, streams: int, prompts: list[list[int]], tokens: int) -> None:
        """Answer `prompts`, one step at a time, and note the steps in which all streams decode."""
        scheduler = Scheduler(Limits(256, BUDGET, self.info.max_model_len), KvCacheManager(self.info.num_blocks, BLOCK))
        self.runs += 1
        params = SamplingParams(temperature=0.0, max_tokens=tokens)
        for index, prompt in enumerate(prompts):
            scheduler.add(Request(f"{self.runs}-{index}", 0, prompt, params, tokens))
        prompt_s, prompt_tokens = 0.0, 0
        while scheduler.has_work:
            plan = scheduler.schedule()
            cpu, start = time.process_time(), time.perf_counter()
            self.executor.launch(plan)
            result = self.executor.collect()
            elapsed, used = time.perf_counter() - start, time.process_time() - cpu
            scheduler.update(plan, result.tokens)
            if plan.num_tokens == streams and len(plan.steps) == streams:
                self.samples.setdefault(streams, []).append(elapsed)
                self.cpu.setdefault(streams, []).append(used)
            else:
                prompt_s += elapsed
                prompt_tokens += plan.num_tokens
        self.prompt_rates.append(prompt_tokens / prompt_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default=str(CACHE / "models" / "smollm2"))
    parser.add_argument("--variants", default="kernels-bfloat16,kernels-float32,torch-bfloat16,torch-float32")
    parser.add_argument("--streams", default="1,8,32")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--prompt", type=int, default=96)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    counts = [int(text) for text in args.streams.split(",")]
    variants = [Variant(name, args.model, args.threads, args.prompt + args.tokens) for name in args.variants.split(",")]
    for round_number in range(args.rounds):
        for streams in counts:
            rng = random.Random(streams)
            vocab = variants[0].info.vocab_size
            prompts = [[rng.randrange(vocab) for _ in range(args.prompt)] for _ in range(streams)]
            for variant in variants:
                variant.run(streams, prompts, args.tokens)
        print(f"round {round_number + 1} of {args.rounds} done", flush=True)
    results: list[dict[str, Any]] = []
    print(f"{'variant':18} {'streams':>7} {'tokens/s':>9} {'best':>7} {'CPU ms/token':>13}")
    for variant in variants:
        for streams in counts:
            steps = variant.samples[streams]
            row = {
                "variant": variant.name,
                "streams": streams,
                "tokens_per_s": streams / statistics.median(steps),
                "best_tokens_per_s": streams / min(steps),
                "cpu_ms_per_token": statistics.median(variant.cpu[streams]) / streams * 1e3,
                "steps": len(steps),
            }
            results.append(row)
            print(
                f"{variant.name:18} {streams:7} {row['tokens_per_s']:9.1f} {row['best_tokens_per_s']:7.1f}"
                f" {row['cpu_ms_per_token']:13.2f}"
            )
        print(f"{variant.name:18} prompts: {statistics.median(variant.prompt_rates):.0f} tokens/s")
    if args.json:
        record = {
            "results": results,
            "options": {key: str(value) for key, value in vars(args).items()},
            "python": sys.version,
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "processor": platform.processor() or platform.machine(),
            "prompt_tokens_per_s": {variant.name: statistics.median(variant.prompt_rates) for variant in variants},
        }
        args.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    for variant in variants:
        variant.executor.close()


if __name__ == "__main__":
    main()
