"""One short check of the engine on GPUs: tokens and logprobs against float32 on the CPU, recorded steps, the sampler, speed.

    .venv-engine/bin/python -m bench.gpu_check [MODEL] [--dtype bfloat16] [--tokens 32] [--streams 1,8,32,128] [--skip-speed]

Leaves with status 1 and a message without a GPU, 2 if something differs. MODEL is SmolLM2 as set-up makes it, unless given;
without it a random model is made. Takes a minute or two; prints a table of tokens/s, eager and recorded. Where there are several
GPUs, the answers of tensor parallel 2 over NCCL are compared, and those of an engine on the second GPU.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from pathlib import Path

import torch
import transformers

from engine.config import EngineConfig
from engine.executor.make import make_executor
from engine.executor.plan import StepPlan, StepResult
from engine.kv_cache.manager import KvCacheManager
from engine.protocol import SamplingParams
from engine.sampling.sampler import sample
from engine.sampling.state import SequenceState
from engine.scheduler.request import Request
from engine.scheduler.scheduler import Limits, Scheduler
from tools.scratch import scratch_folder
from tools.setup.paths import find_paths

CACHE = find_paths(os.environ).cache
BLOCK = 16
MAX_LEN = 1024
LOGPROBS = 5
TOLERANCE = {"float32": 2e-3, "float16": 0.1, "bfloat16": 0.35}
"""By how much a token's logprob may differ from float32 on the CPU."""
NEAR = {"float32": 1e-3, "float16": 0.1, "bfloat16": 0.5}
"""A different token is a tie if the reference's logprobs of both are that close."""
Answer = list[tuple[int, dict[int, float]]]
"""Tokens, each with the logprobs of the likeliest."""


class Engine:
    """Executor and scheduler in this process."""

    def __init__(
        self, model: str, device: str, dtype: str, eager: bool = False, ranks: int = 1, cache_bytes: int | None = 2 << 30
    ) -> None:
        """Without `cache_bytes` the KV cache is what half of a GPU has left."""
        config = EngineConfig(
            model,
            device=device,
            dtype=dtype,
            max_model_len=MAX_LEN,
            enforce_eager=eager,
            kv_cache_bytes=cache_bytes,
            gpu_memory_utilization=0.5,
            tensor_parallel_size=ranks,
        )
        self.name = f"{device} {dtype}{' eager' if eager else ''}{f' tensor parallel {ranks}' if ranks > 1 else ''}"
        self._executor = make_executor(config, lambda text: print(f"  {self.name}: {text}", flush=True), print)
        self._info = self._executor.load()
        self._runs = 0

    def close(self) -> None:
        """End the executor's thread."""
        self._executor.close()

    def _start(self, prompts: list[list[int]], tokens: int, logprobs: int | None, budget: int) -> Scheduler:
        scheduler = Scheduler(Limits(256, budget, MAX_LEN), KvCacheManager(self._info.num_blocks, BLOCK))
        self._runs += 1
        for index, prompt in enumerate(prompts):
            params = SamplingParams(temperature=0.0, max_tokens=tokens, logprobs=logprobs)
            scheduler.add(Request(f"{self._runs}-{index}", 0, prompt, params, tokens))
        return scheduler

    def _step(self, plan: StepPlan) -> StepResult:
        self._executor.launch(plan)
        return self._executor.collect()

    def answer(self, prompts: list[list[int]], tokens: int, budget: int = 2048) -> list[Answer]:
        """Greedy answers, `budget` tokens a step."""
        scheduler = self._start(prompts, tokens, LOGPROBS, budget)
        answers: list[Answer] = [[] for _ in prompts]
        while scheduler.has_work:
            plan = scheduler.schedule()
            result = self._step(plan)
            for outcome in scheduler.update(plan, result.tokens):
                name = outcome.request.request_id
                ids, values, _ = result.logprobs[name]
                likeliest = dict(zip(ids[0].tolist(), values[0].tolist(), strict=True))
                answers[int(name.partition("-")[2])].append((outcome.token, likeliest))
        return answers

    def speed(self, streams: int, tokens: int) -> tuple[float, float]:
        """Prompt tokens and decoded tokens per second."""
        prompts = make_prompts(streams, [128] * streams)
        scheduler = self._start(prompts, tokens, None, 8192)
        spent, done = {True: 0.0, False: 0.0}, {True: 0, False: 0}
        while scheduler.has_work:
            plan = scheduler.schedule()
            start = time.perf_counter()
            scheduler.update(plan, self._step(plan).tokens)
            decodes = plan.num_tokens == len(plan.steps)
            spent[decodes] += time.perf_counter() - start
            done[decodes] += plan.num_tokens
        return done[False] / spent[False], done[True] / spent[True]


def make_prompts(seed: int, lengths: list[int]) -> list[list[int]]:
    rng = random.Random(seed)
    return [[rng.randrange(10, 2000) for _ in range(length)] for length in lengths]


def differences(got: list[Answer], wanted: list[Answer], dtype: str) -> tuple[list[str], int, float]:
    """What is wrong, how many answers leave the reference at a tie, and the largest difference of a logprob."""
    wrong, ties, largest = [], 0, 0.0
    for index, (one, other) in enumerate(zip(got, wanted, strict=True)):
        for place, ((token, mine), (expected, theirs)) in enumerate(zip(one, other, strict=True)):
            if token != expected:
                # From here on both say something else.
                if theirs.get(token, float("-inf")) < theirs[expected] - NEAR[dtype]:
                    wrong.append(f"answer {index}, token {place}: {token} in place of {expected}, which is no tie")
                ties += 1
                break
            difference = abs(mine[token] - theirs[token])
            largest = max(largest, difference)
            if difference > TOLERANCE[dtype]:
                wrong.append(f"answer {index}, token {place}: logprob {mine[token]:.4f}, expected {theirs[token]:.4f}")
    return wrong, ties, largest


def random_model(folder: str) -> str:
    """A Llama model of 2,048 tokens with random weights."""
    config = transformers.LlamaConfig(
        vocab_size=2048,
        hidden_size=512,
        intermediate_size=1024,
        num_hidden_layers=6,
        num_attention_heads=8,
        num_key_value_heads=2,
        max_position_embeddings=MAX_LEN,
    )
    torch.manual_seed(1)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def compare(model: str, dtype: str, tokens: int) -> bool:
    """Print how the GPU's answers compare; True if all is well."""
    prompts = make_prompts(7, [1, 5, 16, 17, 100, 250, 33, 64])
    reference = Engine(model, "cpu", "float32")
    wanted = reference.answer(prompts, tokens)
    reference.close()
    good = True
    ways = [("cuda", kind, eager, 1) for kind in dict.fromkeys(("float32", dtype)) for eager in (True, False)]
    if torch.cuda.device_count() > 1:
        ways += [("cuda:1", dtype, False, 1), ("cuda", "float32", True, 2)]
    else:
        print("one GPU: no second one, and no tensor parallelism, has been checked")
    for device, kind, eager, ranks in ways:
        engine = Engine(model, device, kind, eager, ranks)
        for way, budget in (("whole prompts", 2048), ("chunked prompts", 48)):
            wrong, ties, largest = differences(engine.answer(prompts, tokens, budget), wanted, kind)
            verdict = "DIFFERS" if wrong else "ok"
            print(f"{verdict}: {engine.name}, {way}: largest difference of a logprob {largest:.5f}, {ties} ties", flush=True)
            for line in wrong[:5]:
                print(f"    {line}")
            good = good and not wrong
        engine.close()
        del engine
        torch.cuda.empty_cache()
    return good


SAMPLED: tuple[SamplingParams, ...] = (
    SamplingParams(temperature=0.0),
    SamplingParams(),
    SamplingParams(top_k=20),
    SamplingParams(top_p=0.8),
    SamplingParams(top_k=50, top_p=0.7, min_p=0.01),
    SamplingParams(min_p=0.05, temperature=0.7),
    SamplingParams(repetition_penalty=1.3, presence_penalty=0.5, frequency_penalty=0.5),
    SamplingParams(logit_bias={3: 4.0, 5: -100.0}, allowed_token_ids=list(range(200))),
    SamplingParams(bad_words_token_ids=[[7]], min_tokens=50, all_stop_token_ids=[1, 2], logprobs=3),
)
STEPS, FEW = 40, 0.01


def sampled_alike(device: torch.device, vocab: int = 8192) -> tuple[int, int]:
    """How many tokens the sampler chooses on `device` otherwise than on the CPU, for the same logits and seeds, and of how many.

    A few may differ where a draw falls between two roundings of a sum.
    """
    names = [str(index) for index in range(len(SAMPLED))]
    ends = [(where, [SequenceState(params, [3, 4], seed=9) for params in SAMPLED]) for where in ("cpu", device)]
    different = 0
    for step in range(STEPS):
        logits = 3 * torch.randn(len(SAMPLED), vocab, generator=torch.Generator().manual_seed(step))
        results = []
        for where, states in ends:
            result = StepResult()
            sample(logits.to(where, copy=True), names, states, result)
            results.append(result.tokens)
        different += sum(results[0][name] != results[1][name] for name in names)
        for one, other in zip(ends[0][1], ends[1][1], strict=True):
            # What differed once must not differ again because of it.
            other.output[-1] = one.output[-1]
            other.counts = one.counts.copy()
    return different, STEPS * len(SAMPLED)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--dtype", choices=("float16", "bfloat16"), default="bfloat16")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--streams", default="1,8,32,128")
    parser.add_argument("--skip-speed", action="store_true")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print(f"gpu_check: no GPU that torch {torch.__version__} can use: nothing has been checked", file=sys.stderr)
        return 1
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    with scratch_folder("gpu-check") as folder:
        model = args.model or str(CACHE / "models" / "smollm2")
        if not Path(model).is_dir():
            print(f"{model} is not here: a random model takes its place")
            model = random_model(str(folder))
        different, chosen = sampled_alike(torch.device("cuda"))
        print(f"sampler: {different} of {chosen} tokens are others than on the CPU")
        good = different <= FEW * chosen
        good = compare(model, args.dtype, args.tokens) and good
        for eager in () if args.skip_speed else (True, False):
            engine = Engine(model, "cuda", args.dtype, eager, cache_bytes=None)
            engine.speed(1, 8)
            for streams in map(int, args.streams.split(",")):
                prompt, decode = engine.speed(streams, 64)
                print(f"{engine.name}: {streams} streams: {decode:.0f} tokens/s, prompts {prompt:.0f} tokens/s", flush=True)
            engine.close()
            del engine
            torch.cuda.empty_cache()
    print("all is well" if good else "some answers differ")
    return 0 if good else 2


if __name__ == "__main__":
    sys.exit(main())
