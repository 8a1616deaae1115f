"""The busy loop with a stand-in executor: what happens while a step is under way."""

from __future__ import annotations

import queue
import subprocess
import sys

from engine.core.core import EngineCore
from engine.core.messages import Abort, Add, Dead, Input, Leave, Output
from engine.executor.plan import StepPlan, StepResult
from engine.kv_cache.manager import KvCacheManager
from engine.protocol import FinishReason, SamplingParams
from engine.scheduler.request import Request
from engine.scheduler.scheduler import Limits, Scheduler
from engine.structured.grammars import Grammars
from tests.engine.conftest import ROOT
from tests.engine.letters import Letters
from tests.engine.stand_in import StandIn


class Executor(StandIn):
    """Samples token 5; the commands `during[n]` come in during the n-th step."""

    def __init__(self, commands: queue.SimpleQueue[Input], during: dict[int, list[Input]]) -> None:
        super().__init__()
        self.steps = 0
        self._commands = commands
        self._during = during

    def execute(self, plan: StepPlan) -> StepResult:
        self.steps += 1
        for command in self._during.get(self.steps, []):
            self._commands.put(command)
        return StepResult(tokens={step.request_id: 5 for step in plan.steps if step.samples})


class Setup:
    """A core with `clients` clients and what it has sent."""

    def __init__(self, during: dict[int, list[Input]], clients: int = 1, compiler: Letters | None = None) -> None:
        self.commands: queue.SimpleQueue[Input] = queue.SimpleQueue()
        self.messages: queue.SimpleQueue[Output | Dead] = queue.SimpleQueue()
        self.scheduler = Scheduler(Limits(8, 64, 64), KvCacheManager(64, 4))
        executor = Executor(self.commands, during)
        self.core = EngineCore(
            self.scheduler, executor, self.commands, self.messages,
            grammars=Grammars(compiler or Letters(), self.commands.put), index=3, clients=clients, clock=lambda: 1.5,
        )  # fmt: skip

    def run(self) -> list[Output]:
        self.core.run()
        sent = []
        while not self.messages.empty():
            message = self.messages.get()
            assert isinstance(message, Output)
            sent.append(message)
        return sent


def add(name: str, client: int = 0, max_tokens: int = 3) -> Add:
    return Add(Request(name, client, [1, 2], SamplingParams(max_tokens=max_tokens), max_tokens))


def test_an_abort_during_a_step_wins_over_its_token() -> None:
    setup = Setup({2: [Abort(["a"])], 3: [Leave("end")]})
    setup.commands.put(add("a", max_tokens=60))
    setup.commands.put(add("b"))
    tokens: dict[str, int] = {}
    for message in setup.run():
        for output in message.message.outputs:
            tokens[output.request_id] = tokens.get(output.request_id, 0) + len(output.new_token_ids)
    assert tokens == {"a": 1, "b": 3}
    assert setup.scheduler.cache.free_blocks == 64


def test_one_message_per_client_and_step_and_stats_only_once() -> None:
    setup = Setup({1: [Leave("end")]}, clients=3)
    for name, client in (("a", 0), ("b", 2), ("c", 2)):
        setup.commands.put(add(name, client, max_tokens=1))
    sent = setup.run()
    assert [(out.client, [o.request_id for o in out.message.outputs]) for out in sent] == [(0, ["a"]), (2, ["b", "c"])]
    assert [out.message.scheduler_stats is not None for out in sent] == [True, False]
    assert {(out.message.engine_index, out.message.timestamp) for out in sent} == {(3, 1.5)}


def test_leaving_finishes_everything_with_abort() -> None:
    setup = Setup({1: [add("late"), Leave("end")]})
    setup.commands.put(add("a"))
    last = setup.run()[-1].message.outputs
    assert [(o.request_id, o.finish_reason) for o in last] == [("a", FinishReason.ABORT), ("late", FinishReason.ABORT)]


def test_scheduler_core_and_mock_do_not_need_torch() -> None:
    code = "import sys, engine.core.main, engine.scheduler.scheduler, engine.mock; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
