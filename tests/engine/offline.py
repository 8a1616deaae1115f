"""Answers of a model without sockets: a scheduler and an executor in the test's process."""

from __future__ import annotations

import random
from collections import deque
from pathlib import Path
from typing import Any

from engine.config import EngineConfig, LogprobsMode
from engine.core.adapters import AdapterCache
from engine.executor.plan import Executor, StepPlan, StepResult
from engine.executor.uni import UniExecutor
from engine.kv_cache.hashing import PrefixHashes
from engine.kv_cache.manager import KvCacheManager
from engine.protocol import SamplingParams
from engine.scheduler.lookup import Drafting
from engine.scheduler.request import Adapter, Request
from engine.scheduler.scheduler import Limits, Scheduler
from tests.engine.tiny import VOCAB

TOKENS = 24


def make_prompts(seed: int, lengths: list[int]) -> list[list[int]]:
    rng = random.Random(seed)
    return [[rng.randrange(3, VOCAB) for _ in range(length)] for length in lengths]


def generate(
    folder: Path,
    prompts: list[list[int]],
    *,
    budget: int = 512,
    seqs: int = 32,
    blocks: int = 256,
    tokens: int = TOKENS,
    max_len: int = 512,
    block_size: int = 16,
    depth: int = 2,
    caching: bool = False,
    kernels: bool = True,
    params: list[SamplingParams] | None = None,
    results: list[StepResult] | None = None,
    logprobs_mode: LogprobsMode = "raw_logprobs",
    overrides: dict[str, Any] | None = None,
    drafting: Drafting | None = None,
) -> tuple[list[list[int]], Scheduler]:
    """Answers to all prompts at once, through scheduler and executor, with up to `depth` steps under way.

    Greedy without `params`, one for each prompt; their seeds are those of the requests. `results` get what every step brought.
    """
    config = EngineConfig(
        str(folder),
        dtype="float32",
        num_blocks=blocks,
        block_size=block_size,
        max_model_len=max_len,
        cpu_kernels=kernels,
        logprobs_mode=logprobs_mode,
        hf_overrides=overrides or {},
    )
    executor = UniExecutor(config, lambda _text: None)
    executor.load()
    answers, scheduler = run_all(
        executor,
        prompts,
        budget=budget,
        seqs=seqs,
        blocks=blocks,
        tokens=tokens,
        max_len=max_len,
        block_size=block_size,
        depth=depth,
        caching=caching,
        params=params,
        results=results,
        drafting=drafting,
    )
    executor.close()
    return answers, scheduler


def run_all(
    executor: Executor,
    prompts: list[list[int]],
    *,
    budget: int = 512,
    seqs: int = 32,
    blocks: int = 256,
    tokens: int = TOKENS,
    max_len: int = 512,
    block_size: int = 16,
    depth: int = 2,
    caching: bool = False,
    params: list[SamplingParams] | None = None,
    results: list[StepResult] | None = None,
    adapters: list[Adapter | None] | None = None,
    max_loras: int = 8,
    most_adapters: int = 8,
    drafting: Drafting | None = None,
) -> tuple[list[list[int]], Scheduler]:
    """`generate` with an executor that has been loaded; `adapters`, one for each prompt, are loaded when their turn comes."""
    ready = AdapterCache(executor, most_adapters).ready
    limits = Limits(seqs, budget, max_len, max_loras=max_loras)
    scheduler = Scheduler(limits, KvCacheManager(blocks, block_size), ready, drafting)
    answers: dict[str, list[int]] = {}
    for index, prompt in enumerate(prompts):
        chosen = SamplingParams(temperature=0.0, max_tokens=tokens) if params is None else params[index]
        request = Request(str(index), 0, prompt, chosen, tokens, seed=chosen.seed or 0)
        if adapters is not None:
            request.adapter = adapters[index]
        if caching:
            request.prefix = PrefixHashes(block_size, None, map(str, request.adapter or ()))
            request.prefix.extend(prompt)
        scheduler.add(request)
        answers[str(index)] = []
    flights: deque[StepPlan] = deque()
    while scheduler.has_work:
        plan = scheduler.schedule() if len(flights) < depth else StepPlan()
        assert not scheduler.failed
        if plan.steps:
            assert plan.num_tokens <= budget
            assert len({step.adapter for step in plan.steps} - {0}) <= max_loras
            executor.launch(plan)
            flights.append(plan)
        else:
            result = executor.collect()
            if results is not None:
                results.append(result)
            for outcome in scheduler.update(flights.popleft(), result.tokens, result.further):
                answers[outcome.request.request_id] += outcome.tokens
    assert scheduler.cache.free_blocks == blocks
    return list(answers.values()), scheduler
