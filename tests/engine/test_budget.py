"""Reasoning ends where its budget does."""

from __future__ import annotations

import queue

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.core import EngineCore
from engine.core.messages import Add, Dead, Input, Leave, Output
from engine.core.options import parse
from engine.executor.plan import StepPlan, StepResult
from engine.kv_cache.manager import KvCacheManager
from engine.protocol import FinishReason, SamplingParams
from engine.scheduler.request import Request
from engine.scheduler.scheduler import Limits, Scheduler
from engine.structured.budget import Budget
from engine.structured.constraint import InvalidConstraintError
from engine.structured.grammars import Grammars
from engine.structured.reasoning import Markers, State
from tests.engine.letters import EOS, Letters, decode, encode
from tests.engine.stand_in import StandIn
from tests.engine.test_reasoning import iter_outputs

MARKERS = Markers((tuple(encode("<")),), (tuple(encode(">>")), tuple(encode("!"))))


class Model(StandIn):
    """Writes its text, but for tokens that a mask forces."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = encode(text)
        self.made: dict[str, list[int]] = {}

    def execute(self, plan: StepPlan) -> StepResult:
        rows = dict(zip(plan.masks.ids, plan.masks.words, strict=True)) if plan.masks is not None else {}
        for step in plan.steps:
            made = self.made.setdefault(step.request_id, [])
            allowed = range(128)
            if (row := rows.get(step.request_id)) is not None:
                allowed = [token for token in range(128) if row[token // 32] >> (token % 32) & 1]
            wanted = self.text[len(made) % len(self.text)]
            made.append(wanted if wanted in allowed else allowed[0])
        return StepResult(tokens={step.request_id: self.made[step.request_id][-1] for step in plan.steps})


def generate(text: str, prompt: str, most: int | None, tokens: int = 12, markers: Markers = MARKERS, **params: object) -> str:
    """What comes of a model that would write `text` again and again."""
    commands: queue.SimpleQueue[Input] = queue.SimpleQueue()
    messages: queue.SimpleQueue[Output | Dead] = queue.SimpleQueue()
    scheduler, model = Scheduler(Limits(8, 64, 64), KvCacheManager(64, 4)), Model(text)
    grammars = Grammars(Letters(markers), commands.put)
    core = EngineCore(scheduler, model, commands, messages, grammars=grammars, index=0, clients=1)
    wanted = SamplingParams(max_tokens=tokens, thinking_token_budget=most, eos_token_id=EOS, **params)  # type: ignore[arg-type]
    commands.put(Add(Request("r", 0, encode(prompt), wanted, tokens)))
    core._take_commands(wait=True)
    if grammars.all_held():
        core._take_commands(wait=True)
    while scheduler.has_work:
        core.step()
    commands.put(Leave("end"))
    core.run()
    outputs = list(iter_outputs(messages))
    assert outputs[-1].finish_reason in (FinishReason.LENGTH, FinishReason.STOP)
    assert not grammars._budgets
    return decode([token for output in outputs for token in output.new_token_ids if token != EOS])


CASES: list[tuple[str, str, int | None, str]] = [
    ("<abcdefghijklm", "hi", 3, "<abc>>fghijk"),
    ("<abcdefghijklm", "hi", 0, "<>>cdefghijk"),
    ("<abcdefghijklm", "hi", 1, "<a>>defghijk"),
    ("<abcdefghijklm", "hi", None, "<abcdefghijk"),
    ("<abcdefghijklm", "hi", -1, "<abcdefghijk"),
    ("<abcdefghijklm", "hi", 50, "<abcdefghijk"),
    ("<ab>>cdefghijk", "hi", 3, "<ab>>cdefghi"),
    ("<ab!cdefghijkl", "hi", 3, "<ab!cdefghij"),
    ("<ab>cdefghijkl", "hi", 3, "<ab>>defghij"),      # half an end has come
    ("abcdefghijklmn", "hi<", 2, "ab>>efghijkl"),
    ("abcdefghijklmn", "hi<xy", 3, "a>>defghijkl"),   # the prompt's count too
    ("abcdefghijklmn", "hi<xyz", 2, ">>cdefghijkl"),
    ("abcdefghijklmn", "hi<!", 2, "abcdefghijkl"),
    ("ab<cdefghijkln", "hi", 2, "ab<cd>>ghijk"),      # begun later
    ("<a!<cdefghijkl", "hi", 2, "<a!<cd>>ghij"),      # and again
]  # fmt: skip


@pytest.mark.parametrize(("text", "prompt", "most", "answer"), CASES)
def test_the_end_is_written_where_the_budget_ends(text: str, prompt: str, most: int | None, answer: str) -> None:
    assert generate(text, prompt, most) == answer


def test_the_cut_may_be_more_than_the_end() -> None:
    markers = MARKERS._replace(forced=tuple(encode("so>>")))
    assert generate("<abcdefghijklm", "hi", 2, markers=markers) == "<abso>>ghijk"


def test_a_grammar_begins_behind_it() -> None:
    assert generate("<abcdefghijklm", "hi", 2, structured_outputs={"regex": "yes"}) == "<ab>>yes"


def test_an_engine_that_knows_no_reasoning_refuses() -> None:
    grammars = Grammars(Letters(), lambda _: None)
    with pytest.raises(InvalidConstraintError, match="thinking_token_budget"):
        grammars.start(Request("r", 0, [1], SamplingParams(thinking_token_budget=5), 9))
    assert grammars.start(Request("r", 0, [1], SamplingParams(thinking_token_budget=-1), 9))


def test_steps_overlap_but_at_the_end() -> None:
    """A step is planned before the last one's token is known unless that could be the last one before the end."""
    letters = Letters(MARKERS)
    letters.prepare()
    grammars = Grammars(letters, lambda _: None)
    request = Request("r", 0, encode("hi<"), SamplingParams(thinking_token_budget=3), 9)
    assert grammars.start(request)
    tied = [request.in_step]
    for token in encode("abc>>d"):
        assert grammars.accept("r", token)
        tied.append(request.in_step)
    assert tied == [False, False, True, True, True, False, False]


def test_the_cut_must_end_reasoning(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["M", "--handshake", "x", "--reasoning-end", "</think>", "--reasoning-cut"]
    assert parse([*words, "Enough.</think>"]).engine.reasoning_cut == "Enough.</think>"
    with pytest.raises(SystemExit):
        parse([*words, "Enough."])
    assert "--reasoning-cut" in capsys.readouterr().err


TOKENS = st.integers(0, 3)


@given(
    st.lists(TOKENS, max_size=30),
    st.lists(TOKENS, min_size=1, max_size=2),
    st.lists(TOKENS, min_size=1, max_size=3),
    st.integers(0, 5),
    st.sampled_from([State.INSIDE, State.AFTER]),
)
def test_reasoning_is_never_longer(text: list[int], start: list[int], end: list[int], most: int, state: State) -> None:
    """Beyond the budget come only tokens of the end, and none is forced before `left` tokens have come."""
    budget = Budget(Markers((tuple(start),), (tuple(end),)), most, [], state)
    free_until, reasoning = 0, 0
    for at, token in enumerate(text):
        forced = budget.forced
        assert (forced is not None) == (budget.left == 0)
        assert forced is None or at >= free_until
        free_until = max(free_until, at + budget.left)
        assert budget.take(token if forced is None else forced)
        reasoning = reasoning + 1 if budget._inside and forced is None else 0
        assert reasoning <= most + 1, "the start's last token is one of them"
