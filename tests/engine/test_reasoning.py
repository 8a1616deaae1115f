"""Constraints begin after the model's reasoning."""

from __future__ import annotations

import queue
import shutil
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.core import EngineCore
from engine.core.messages import Add, Dead, Input, Leave, Output
from engine.executor.plan import SequenceStep, StepPlan, StepResult
from engine.kv_cache.manager import KvCacheManager
from engine.protocol import FinishReason, SamplingParams
from engine.scheduler.request import Request
from engine.scheduler.scheduler import Limits, Scheduler
from engine.structured.constraint import parse
from engine.structured.grammars import Compiled, Grammars
from engine.structured.reasoning import Markers, State, Thinking, state_after
from tests.engine.conftest import Spawn
from tests.engine.letters import EOS, Letters, decode, encode, save_tokenizer
from tests.engine.stand_in import StandIn
from tests.engine.wire_frontend import WireFrontend

START, END = tuple(encode("<")), tuple(encode(">>"))
MARKERS = Markers((START,), (END, tuple(encode("!"))))
THOUGHT = encode("hm, >well>>")


class Executor(StandIn):
    """Thinks THOUGHT, then samples what the mask allows; the tokens of steps with a mask are `masked`."""

    def __init__(self) -> None:
        super().__init__()
        self.made: dict[str, list[int]] = {}
        self.masked: dict[str, list[int]] = {}

    def execute(self, plan: StepPlan) -> StepResult:
        rows = dict(zip(plan.masks.ids, plan.masks.words, strict=True)) if plan.masks is not None else {}
        for step in plan.steps:
            made = self.made.setdefault(step.request_id, [])
            if step.request_id in rows:
                row = rows[step.request_id]
                made.append(next(token for token in range(128) if row[token // 32] >> (token % 32) & 1))
                self.masked.setdefault(step.request_id, []).append(made[-1])
            else:
                made.append(THOUGHT[len(made)])
        return StepResult(tokens={step.request_id: self.made[step.request_id][-1] for step in plan.steps})


CASES: list[tuple[bool | None, str, bool]] = [
    (False, "hi", True),
    (True, "hi", False),
    (None, "hi<", True),
    (None, "hi<>>", False),
    (None, "hi<!", False),
    (None, "hi<>><", True),
    (None, "hi<>", True),
    (True, "hi<", False),
    (False, "hi<>>", True),
]


@pytest.mark.parametrize(("told", "prompt", "thinks"), CASES)
def test_a_constraint_begins_after_the_end_of_reasoning(told: bool | None, prompt: str, thinks: bool) -> None:
    commands: queue.SimpleQueue[Input] = queue.SimpleQueue()
    messages: queue.SimpleQueue[Output | Dead] = queue.SimpleQueue()
    letters, executor = Letters(), Executor()
    letters.markers = MARKERS
    scheduler = Scheduler(Limits(8, 64, 64), KvCacheManager(64, 4))
    grammars = Grammars(letters, commands.put)
    core = EngineCore(scheduler, executor, commands, messages, grammars=grammars, index=0, clients=1)
    params = SamplingParams(max_tokens=40, structured_outputs={"regex": "yes"}, eos_token_id=EOS)
    commands.put(Add(Request("r", 0, encode(prompt), params, 40, reasoning_ended=told)))
    core._take_commands(wait=True)
    core._take_commands(wait=True)
    while scheduler.has_work:
        core.step()
    commands.put(Leave("end"))
    core.run()
    answer = [*encode("yes"), EOS]
    assert executor.masked["r"] == answer
    assert executor.made["r"] == ([*THOUGHT, *answer] if thinks else answer)
    assert list(iter_outputs(messages))[-1].finish_reason == FinishReason.STOP
    assert not grammars._thinking


def iter_outputs(messages: queue.SimpleQueue[Output | Dead]) -> Any:
    while not messages.empty():
        sent = messages.get()
        assert isinstance(sent, Output)
        yield from sent.message.outputs


@pytest.mark.parametrize("opens", [False, True])
def test_without_a_word_about_it_the_output_may_open_reasoning_or_not(opens: bool) -> None:
    thinking = Thinking(MARKERS, state_after(encode("hi"), MARKERS, None))
    assert thinking.openings == list(START)
    output = encode("<a>>yes") if opens else encode("yes")
    assert [thinking.take(token) for token in output] == [opens] * (len(output) - 3) + [False] * 3
    assert thinking.openings == []


def test_the_mask_at_the_beginning_has_the_opening_besides_the_grammar() -> None:
    letters = Letters()
    letters.markers = MARKERS
    grammars = Grammars(letters, lambda _: None)
    params = SamplingParams(structured_outputs={"regex": "yes"})
    grammars.start(Request("r", 0, encode("hi"), params, 9))
    constraint = parse({"regex": "yes"})
    grammars.settle(Compiled(constraint, letters.compile(constraint), None))
    plan = StepPlan(steps=[SequenceStep("r", [1], 0, [], True)])

    def allowed() -> list[int]:
        masks = grammars.masks(plan)
        return [] if masks is None else [t for t in range(128) if masks.words[0][t // 32] >> (t % 32) & 1]

    assert allowed() == sorted([*START, *encode("y")])
    assert grammars.accept("r", START[0])
    assert allowed() == []
    for token in END:
        assert grammars.accept("r", token)
    assert allowed() == encode("y")


@given(st.lists(st.integers(0, 3), max_size=12), st.lists(st.integers(0, 3), min_size=1, max_size=3))
def test_an_end_is_found_where_it_is_complete(output: list[int], end: list[int]) -> None:
    markers = Markers((), (tuple(end),))
    thinking = Thinking(markers, State.INSIDE)
    found = [thinking.take(token) for token in output]
    first = next((at + 1 for at in range(len(output)) if output[max(0, at + 1 - len(end)) : at + 1] == end), len(output))
    assert found == [at < first for at in range(len(output))]
    ends = State.AFTER if thinking.state is State.AFTER else State.INSIDE
    assert state_after(output, markers, None) is ends


@pytest.mark.filterwarnings("default")
def test_over_the_wire(frontend: WireFrontend, spawn: Spawn, tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    """Random tokens run free until one of these many ends comes."""
    folder = tmp_path / "model"
    shutil.copytree(tiny_model("llama"), folder)
    save_tokenizer(folder)
    ends = [flag for letter in string.ascii_lowercase for flag in ("--reasoning-end", letter)]
    spawn("engine", folder, "--max-model-len", 256, "--num-gpu-blocks-override", 64, "--seed", 3, "--reasoning-start", "<", *ends)
    frontend.accept()
    params: dict[str, Any] = {
        "temperature": 1.0,
        "max_tokens": 200,
        "_eos_token_id": EOS,
        "_all_stop_token_ids": [EOS],
        "structured_outputs": {"choice": ["42"], "_backend": "xgrammar"},
        "logit_bias": {EOS: -100.0},
    }
    free = {name: value for name, value in params.items() if name != "structured_outputs"}
    bound = frontend.add("bound", encode("hi<"), {**free, "thinking_token_budget": 1}, reasoning_ended=False)
    thinks = frontend.add("thinks", encode("hi<"), params, reasoning_ended=False)
    done = frontend.add("done", encode("hi<"), params, reasoning_ended=True)
    seen = frontend.add("seen", encode("hi<x"), params)
    frontend.finish()
    assert (decode(done.tokens), decode(seen.tokens)) == ("42", "42")
    first, second = decode(bound.tokens)[:2]
    assert first in string.ascii_lowercase or second == "a", "the first end is written after one token"
    text = decode(thinks.tokens)
    assert text.endswith("42")
    assert len(text) > 2
    assert text[-3] in string.ascii_lowercase
    assert not any(character in string.ascii_lowercase for character in text[:-3])
