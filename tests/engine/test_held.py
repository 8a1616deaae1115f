"""The busy loop while grammars are compiled: who waits, who does not, and what ends a wait."""

from __future__ import annotations

import queue
from typing import Any

from engine.core.core import EngineCore
from engine.core.messages import Abort, Add, Dead, Input, Leave, Output
from engine.executor.plan import StepPlan, StepResult
from engine.kv_cache.manager import KvCacheManager
from engine.protocol import EngineCoreOutput, FailedOutput, FinishReason, SamplingParams
from engine.scheduler.request import Request
from engine.scheduler.scheduler import Limits, Scheduler
from engine.structured.grammars import Grammars
from tests.engine.letters import EOS, Letters, encode
from tests.engine.stand_in import StandIn

OTHER = 5


class Executor(StandIn):
    """Samples a token that the mask allows, OTHER without a mask; opens the gate in step `opens`."""

    def __init__(self, letters: Letters, opens: int) -> None:
        super().__init__()
        self.steps = 0
        self.letters = letters
        self.opens = opens

    def execute(self, plan: StepPlan) -> StepResult:
        self.steps += 1
        if self.steps == self.opens:
            self.letters.gate.set()
        tokens = {step.request_id: OTHER for step in plan.steps if step.samples}
        if plan.masks is not None:
            for name, row in zip(plan.masks.ids, plan.masks.words, strict=True):
                tokens[name] = next(token for token in range(128) if row[token // 32] >> (token % 32) & 1)
        return StepResult(tokens=tokens)


class Setup:
    """A core whose compiler waits until step `opens`."""

    def __init__(self, opens: int = 3) -> None:
        self.letters = Letters()
        self.letters.gate.clear()
        self.commands: queue.SimpleQueue[Input] = queue.SimpleQueue()
        self.messages: queue.SimpleQueue[Output | Dead] = queue.SimpleQueue()
        self.scheduler = Scheduler(Limits(8, 64, 64), KvCacheManager(64, 4))
        self.grammars = Grammars(self.letters, self.commands.put)
        executor: Any = Executor(self.letters, opens)
        self.core = EngineCore(
            self.scheduler, executor, self.commands, self.messages, grammars=self.grammars, index=0, clients=1, clock=lambda: 1.5
        )
        self.skipped: list[int] = []

    def until_finished(self, *names: str) -> dict[str, list[EngineCoreOutput]]:
        """Take commands and step until these have finished; their outputs."""
        outputs: dict[str, list[EngineCoreOutput]] = {}
        finished: set[str] = set()
        while not finished.issuperset(names):
            self.core._take_commands(wait=not self.scheduler.has_work)
            if self.scheduler.has_work:
                self.core.step()
            while not self.messages.empty():
                message = self.messages.get()
                assert isinstance(message, Output)
                if message.message.scheduler_stats is not None:
                    self.skipped.append(message.message.scheduler_stats.num_skipped_waiting_reqs)
                for output in message.message.outputs:
                    outputs.setdefault(output.request_id, []).append(output)
                    if output.finish_reason is not None:
                        finished.add(output.request_id)
        return outputs


def add(name: str, text: str | None = None, max_tokens: int = 6) -> Add:
    wanted = None if text is None else {"regex": text}
    params = SamplingParams(max_tokens=max_tokens, structured_outputs=wanted, eos_token_id=EOS)
    return Add(Request(name, 0, [1, 2], params, max_tokens))


def test_others_run_while_a_grammar_is_compiled() -> None:
    setup = Setup()
    for command in (add("bound", "abc"), add("free"), add("twin", "abc")):
        setup.commands.put(command)
    outputs = setup.until_finished("free", "bound", "twin")
    assert [output.new_token_ids for output in outputs["free"]] == [[OTHER]] * 6
    for name in ("bound", "twin"):
        assert [token for output in outputs[name] for token in output.new_token_ids] == [*encode("abc"), EOS]
        assert outputs[name][-1].finish_reason == FinishReason.STOP
    assert setup.letters.compiled == ["abc"]
    assert setup.skipped[:2] == [2, 2]
    assert setup.skipped[-1] == 0
    assert not setup.scheduler.has_work


def test_a_bad_constraint_ends_its_request_only() -> None:
    setup = Setup(opens=2)
    for command in (add("bad", "bad"), add("free"), add("good", "a")):
        setup.commands.put(command)
    outputs = setup.until_finished("bad", "free", "good")
    [failed] = outputs["bad"]
    assert isinstance(failed, FailedOutput)
    assert failed.error is not None
    assert (failed.finish_reason, failed.error.code, failed.error.message) == (FinishReason.ERROR, "validation_error", "no good")
    assert not failed.error.retryable
    assert len(outputs["free"]) == 6


def test_an_abort_ends_the_wait_and_the_id_can_come_back() -> None:
    setup = Setup(opens=2)
    for command in (add("bound", "abc"), Abort(["bound"]), add("bound", None, 1), add("free")):
        setup.commands.put(command)
    outputs = setup.until_finished("bound", "free")
    assert [output.new_token_ids for output in outputs["bound"]] == [[OTHER]]


def test_a_duplicate_of_a_waiting_request_ends_it() -> None:
    setup = Setup(opens=2)
    for command in (add("twin", "abc"), add("twin"), add("free")):
        setup.commands.put(command)
    outputs = setup.until_finished("free", "twin")
    [failed] = outputs["twin"]
    assert failed.finish_reason == FinishReason.ERROR
    assert setup.grammars.all_held() == []


def test_leaving_finishes_those_who_wait_with_abort() -> None:
    setup = Setup(opens=99)
    for command in (add("bound", "abc"), Leave("test")):
        setup.commands.put(command)
    setup.core.run()
    message = setup.messages.get(timeout=30)
    setup.letters.gate.set()
    assert isinstance(message, Output)
    [output] = message.message.outputs
    assert (output.request_id, output.finish_reason) == ("bound", FinishReason.ABORT)


class Stubborn(Executor):
    """Samples OTHER whatever the masks say, as when other constraints leave nothing."""

    def execute(self, plan: StepPlan) -> StepResult:
        plan.masks = None
        return super().execute(plan)


def test_a_token_that_the_grammar_forbids_ends_the_request_with_an_error() -> None:
    setup = Setup(opens=1)
    setup.core._executor = Stubborn(setup.letters, 2)
    for command in (add("free"), add("bound", "abc")):
        setup.commands.put(command)
    outputs = setup.until_finished("free", "bound")
    [failed] = outputs["bound"]
    assert isinstance(failed, FailedOutput)
    assert failed.error is not None
    assert (failed.new_token_ids, failed.error.code) == ([], "validation_error")
    assert len(outputs["free"]) == 6
    assert setup.grammars.masks(StepPlan()) is None
    assert setup.scheduler.cache.free_blocks == 64
