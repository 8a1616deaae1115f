"""Whatever stands in a request's fields: that request is answered or refused, and one beside it does not notice."""

from __future__ import annotations

import queue
import random
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.core.core import EngineCore
from engine.core.messages import Add, Dead, Input, Leave, Output, Refuse
from engine.core.validate import Bounds, InvalidRequestError, build_request
from engine.executor.messages import Codec as RingCodec
from engine.executor.messages import Result, Step
from engine.executor.plan import StepPlan, StepResult
from engine.kv_cache.manager import KvCacheManager
from engine.protocol import Codec, FinishReason, RequestFault
from engine.sampling.sampler import sample
from engine.sampling.state import SequenceState
from engine.scheduler.scheduler import Limits, Scheduler
from engine.structured.grammars import Grammars
from tests.engine.letters import Letters
from tests.engine.stand_in import StandIn

VOCAB = 64
MAX_LEN = 40
BLOCKS = 48
GOOD = {"temperature": 0.0, "max_tokens": 6}
Fields = dict[int, Any]


class Sampling(StandIn):
    """Samples from logits that depend on the request's id and length alone, behind the encoding that workers' orders have."""

    def __init__(self, commands: queue.SimpleQueue[Input]) -> None:
        super().__init__()
        self._commands = commands
        self._codec = RingCodec()
        self._states: dict[str, SequenceState] = {}

    def execute(self, plan: StepPlan) -> StepResult:
        order = self._codec.decode_order(self._codec.encode(Step(plan)))
        assert isinstance(order, Step)
        for gone in order.plan.gone:
            self._states.pop(gone, None)
        for new in order.plan.new:
            self._states[new.request_id] = SequenceState(new.params, new.tokens, new.seed)
        ids = [step.request_id for step in order.plan.steps if step.samples]
        states = [self._states[request_id] for request_id in ids]
        result = StepResult()
        if ids:
            rows = [
                torch.randn(VOCAB, generator=_generator(name, len(state.output))) for name, state in zip(ids, states, strict=True)
            ]
            sample(torch.stack(rows), ids, states, result, order.plan.masks)
        reply = self._codec.decode_reply(self._codec.encode(Result(result)))
        assert isinstance(reply, Result)
        return reply.result


def _generator(name: str, position: int) -> torch.Generator:
    return torch.Generator().manual_seed(random.Random(f"{name} {position}").getrandbits(60))


def frame(name: str, prompt: Any, params: Any, fields: Mapping[int, Any]) -> bytes:
    """An ADD; `fields` are other elements by their place."""
    values: list[Any] = [name, prompt, None, params, None, 0.0, None, None, None, None, None, 0, 0, 0, None, False]
    values += [None, None, None, False, None, None]
    for place, value in fields.items():
        values[place] = value
    return msgspec.msgpack.encode(values)


def serve(frames: list[bytes]) -> dict[str, tuple[list[int], FinishReason | None]]:
    """What an engine answers, by request: tokens and how it ended. It must end as it was told to, with all blocks free."""
    commands: queue.SimpleQueue[Input] = queue.SimpleQueue()
    messages: queue.SimpleQueue[Output | Dead] = queue.SimpleQueue()
    scheduler = Scheduler(Limits(8, 16, MAX_LEN), KvCacheManager(BLOCKS, 4))
    core = EngineCore(
        scheduler, Sampling(commands), commands, messages,
        grammars=Grammars(Letters(), commands.put), index=0, clients=1, clock=lambda: 1.0,
    )  # fmt: skip
    codec = Codec()
    for number, data in enumerate(frames):
        message = codec.decode_add(data)
        try:
            request = build_request(message, Bounds(MAX_LEN, VOCAB, 4), client=0, seed=number, now=0.0)
        except InvalidRequestError as error:
            if message.request_id is not None:
                commands.put(Refuse(message.request_id, 0, str(error)))
            continue
        commands.put(Add(request))
    commands.put(Leave("the end", drain_s=1e9))
    assert core.run() == Leave("the end", drain_s=1e9)
    assert scheduler.cache.free_blocks == BLOCKS
    answers: dict[str, tuple[list[int], FinishReason | None]] = {}
    while not messages.empty():
        sent = messages.get()
        assert isinstance(sent, Output)
        codec.encode(sent.message)
        for output in sent.message.outputs:
            tokens, finish = answers.get(output.request_id, ([], None))
            assert finish is None, "nothing follows a finishing output"
            ended = None if output.finish_reason is None else FinishReason(output.finish_reason)
            answers[output.request_id] = ([*tokens, *output.new_token_ids], ended)
    return answers


NUMBERS = st.one_of(
    st.integers(-(2**63), 2**64 - 1),
    st.sampled_from([-1, 0, 1, 2, VOCAB - 1, VOCAB, 2**31, 2**63]),
    st.floats(),
    st.sampled_from([0.0, 0.5, 1.0, 1e-320, 1e-6, 1e38, 1.7e308, -2.0]),
)
EXTENSIONS = st.builds(msgspec.msgpack.Ext, st.integers(-128, 127).filter(lambda code: code != -1), st.binary(max_size=8))
ANY = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, st.text(max_size=4), st.binary(max_size=4), EXTENSIONS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.one_of(st.text(max_size=4), st.integers(-3, 70)), inner, max_size=3)
    ),
    max_leaves=6,
)
IDS = st.lists(st.integers(0, VOCAB - 1), max_size=4)
LIKELY: dict[str, st.SearchStrategy[Any]] = {
    "temperature": st.floats(0, width=64),
    "top_p": st.floats(0, 1),
    "top_k": st.integers(-1, 2**40),
    "min_p": st.floats(0, 1),
    "presence_penalty": st.floats(-2, 2),
    "frequency_penalty": st.floats(-2, 2),
    "repetition_penalty": st.floats(0),
    "seed": st.integers(-(2**63), 2**64 - 1),
    "max_tokens": st.integers(1, 2**64 - 1),
    "min_tokens": st.integers(0, 9),
    "stop_token_ids": st.lists(st.integers(-(2**63), 2**64 - 1), max_size=3),
    "_eos_token_id": st.integers(-3, 2**64 - 1),
    "_all_stop_token_ids": st.lists(st.integers(-(2**63), 2**64 - 1), max_size=3),
    "logprobs": st.integers(-1, 2**64 - 1),
    "prompt_logprobs": st.none(),
    "logprob_token_ids": IDS,
    "logit_bias": st.dictionaries(st.integers(0, VOCAB - 1), st.floats(), max_size=4),
    "allowed_token_ids": IDS,
    "_bad_words_token_ids": st.lists(IDS, max_size=3),
    "structured_outputs": st.fixed_dictionaries({"regex": st.text(st.characters(codec="ascii"), max_size=3)}),
    "repetition_detection": st.dictionaries(
        st.sampled_from(["max_pattern_size", "min_pattern_size", "min_count"]), st.integers(0, 2**64 - 1), max_size=3
    ),
    "extra_args": st.dictionaries(st.text(max_size=3), ANY, max_size=2),
    "skip_reading_prefix_cache": st.booleans(),
}
PARAMS = st.one_of(
    st.fixed_dictionaries({}, optional=LIKELY),
    st.fixed_dictionaries({}, optional={name: st.one_of(strategy, ANY) for name, strategy in LIKELY.items()}),
    ANY,
)
PROMPTS = st.one_of(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=MAX_LEN), ANY)


@given(st.lists(st.tuples(PROMPTS, PARAMS, st.dictionaries(st.integers(4, 21), ANY, max_size=2)), min_size=1, max_size=4))
@example([([1], {"repetition_detection": {"min_count": "x", "max_pattern_size": 3}}, {})])
@example([([1], {"extra_args": {"a": msgspec.msgpack.Ext(1, b"no array")}}, {})])
@example([([1], {"structured_outputs": {"regex": "ab", "x": msgspec.msgpack.Ext(9, b"")}}, {})])
@settings(max_examples=100, deadline=None)
def test_one_request_does_not_hurt_another(wild: list[tuple[Any, Any, Fields]]) -> None:
    alone = serve([frame("good", [1, 2, 3], GOOD, {})])["good"]
    assert len(alone[0]) == 6
    frames = [frame(f"wild-{number}", *parts) for number, parts in enumerate(wild)]
    answers = serve([*frames, frame("good", [1, 2, 3], GOOD, {})])
    assert answers["good"] == alone
    assert answers.keys() == {"good", *(f"wild-{number}" for number in range(len(wild)))}
    assert all(finish is not None for _, finish in answers.values())
    assert all(0 <= token < VOCAB for tokens, _ in answers.values() for token in tokens)


@pytest.mark.parametrize("size", [0, 1])
def test_a_request_without_fields_is_refused_by_its_id(size: int) -> None:
    message = Codec().decode_add(msgspec.msgpack.encode(["r"][:size]))
    assert isinstance(message, RequestFault)
    assert message.request_id == (None if size == 0 else "r")


def test_logprobs_of_a_prompt_that_are_too_many_for_a_message_are_refused() -> None:
    bounds = Bounds(1000, 1_000_000)

    def build(tokens: int, wanted: int) -> None:
        message = Codec().decode_add(frame("a", [1] * tokens, {**GOOD, "prompt_logprobs": wanted}, {}))
        build_request(message, bounds, client=0, seed=0, now=0.0)

    build(33, -1)
    build(1000, 20)
    with pytest.raises(InvalidRequestError, match=r"prompt_logprobs -1 of a prompt of 34 tokens are 34000034 values"):
        build(34, -1)
    with pytest.raises(InvalidRequestError, match="prompt_logprobs 2000000 of a prompt of 34 tokens"):
        build(34, 2_000_000)
