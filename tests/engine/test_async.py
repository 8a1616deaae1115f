"""One step after the other or two under way: every request gets the same answer."""

from __future__ import annotations

import queue
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.config import EngineConfig
from engine.core.core import EngineCore
from engine.core.messages import Add, Dead, Input, Leave, Output
from engine.executor.uni import UniExecutor
from engine.kv_cache.hashing import PrefixHashes
from engine.kv_cache.manager import KvCacheManager
from engine.protocol import EngineCoreOutput, SamplingParams
from engine.scheduler.request import Request
from engine.scheduler.scheduler import Limits, Scheduler
from engine.structured.grammars import Grammars
from tests.engine.letters import EOS, Letters, encode
from tests.engine.stand_in import StandIn

pytestmark = pytest.mark.filterwarnings("default")
BLOCK = 16
GREEDY: dict[str, Any] = {"temperature": 0.0}
PARAMS: list[dict[str, Any]] = [
    GREEDY,
    {"seed": 1, "temperature": 1.2},
    {"seed": 2, "repetition_penalty": 1.3, "presence_penalty": 0.5, "frequency_penalty": 0.2},
    {**GREEDY, "logprobs": 3, "prompt_logprobs": 1},
    {"seed": 3, "top_k": 20, "top_p": 0.9, "min_p": 0.01, "logprobs": 0},
    {"seed": 4, "min_tokens": 12, "all_stop_token_ids": [*range(3, 60)], "stop_token_ids": [*range(3, 60)]},
    {"seed": 5, "stop_token_ids": [*range(3, 150)], "all_stop_token_ids": [*range(3, 150)]},
    {**GREEDY, "bad_words_token_ids": [[10], [11, 12]], "logit_bias": {20: 5.0}},
    {"seed": 6, "structured_outputs": {"regex": "yes or no"}, "eos_token_id": EOS},
    {"seed": 7, "logprob_token_ids": [5, 6], "allowed_token_ids": [*range(3, 40)]},
    {**GREEDY, "repetition_detection": {"max_pattern_size": 4, "min_pattern_size": 1, "min_count": 2}},
]


class Recorder(StandIn):
    """A real executor whose use is counted."""

    def __init__(self, executor: UniExecutor) -> None:
        super().__init__()
        self._executor = executor

    def launch(self, plan: Any) -> None:
        super().launch(plan)
        self._executor.launch(plan)

    def collect(self) -> Any:
        self.plans.popleft()
        return self._executor.collect()


def answers(
    executor: UniExecutor, async_scheduling: bool, blocks: int, budget: int, caching: bool
) -> tuple[dict[str, list[EngineCoreOutput]], int, int]:
    """What comes of one request of each kind, the most steps under way at once, and how often one was preempted."""
    commands: queue.SimpleQueue[Input] = queue.SimpleQueue()
    messages: queue.SimpleQueue[Output | Dead] = queue.SimpleQueue()
    scheduler = Scheduler(Limits(8, budget, 96), KvCacheManager(blocks, BLOCK))
    recorder = Recorder(executor)
    core = EngineCore(
        scheduler, recorder, commands, messages,
        grammars=Grammars(Letters(), commands.put), index=0, clients=1, async_scheduling=async_scheduling,
    )  # fmt: skip
    for index, params in enumerate(PARAMS):
        prompt = [7 + index % 3, *range(30, 30 + 5 * (index % 5)), 9]
        prefix = PrefixHashes(BLOCK) if caching else None
        if prefix is not None:
            prefix.extend(prompt)
        wanted = SamplingParams(max_tokens=30, **params)
        skips = wanted.prompt_logprobs is not None
        commands.put(Add(Request(str(index), 0, prompt, wanted, 30, wanted.seed or 0, prefix=prefix, skip_cached=skips)))
    outputs: dict[str, list[EngineCoreOutput]] = {}
    finished = 0
    core._take_commands(wait=True)
    while finished < len(PARAMS):
        core._take_commands(wait=not core._busy)
        core.step()
        while not messages.empty():
            sent = messages.get()
            assert isinstance(sent, Output)
            for output in sent.message.outputs:
                outputs.setdefault(output.request_id, []).append(output)
                finished += output.finish_reason is not None
    while core._busy:
        core.step()
    commands.put(Leave("end"))
    core.run()
    assert scheduler.cache.free_blocks == blocks
    return outputs, recorder.most, scheduler.num_preemptions


def plain(outputs: list[EngineCoreOutput]) -> Any:
    """Tokens and how it ended."""
    return [token for output in outputs for token in output.new_token_ids], outputs[-1].finish_reason, outputs[-1].stop_reason


def numbers(outputs: list[EngineCoreOutput]) -> list[Any]:
    """All logprobs."""
    arrays = []
    for output in outputs:
        for part in (output.new_logprobs, output.new_prompt_logprobs_tensors):
            arrays += [np.frombuffer(part[1][2].data, "<f4")] if part is not None else []
    return arrays


@pytest.fixture(scope="module")
def executor(tiny_model: Callable[..., Path]) -> Any:
    config = EngineConfig(str(tiny_model("llama")), dtype="float32", num_blocks=64, block_size=BLOCK, max_model_len=96)
    executor = UniExecutor(config, lambda _text: None)
    executor.load()
    yield executor
    executor.close()


@pytest.mark.parametrize(("blocks", "budget", "caching"), [(64, 512, False), (64, 8, True), (10, 64, False), (10, 16, True)])
def test_the_same_answers(executor: UniExecutor, blocks: int, budget: int, caching: bool) -> None:
    one, depth_one, _ = answers(executor, False, blocks, budget, caching)
    two, depth_two, preemptions = answers(executor, True, blocks, budget, caching)
    assert (depth_one, depth_two) == (1, 2)
    assert (preemptions > 0) == (blocks == 10)
    assert {name: plain(outputs) for name, outputs in one.items()} == {name: plain(outputs) for name, outputs in two.items()}
    for name, outputs in one.items():
        for a, b in zip(numbers(outputs), numbers(two[name]), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-3)
    assert [bool(numbers(two[str(i)])) for i in range(len(PARAMS))] == [
        bool({"logprobs", "prompt_logprobs", "logprob_token_ids"} & params.keys()) for params in PARAMS
    ]
    text = [token for output in two["8"] for token in output.new_token_ids]
    assert text == [*encode("yes or no"), EOS]
    assert {two[name][-1].finish_reason for name in ("5", "6", "8")} == {0}
