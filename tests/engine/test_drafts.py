"""Speculative decoding: whatever is drafted, every request gets the tokens that it would get one by one."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import EngineConfig
from engine.core.options import parse
from engine.executor.plan import StepResult
from engine.kv_cache.manager import KvCacheManager
from engine.protocol import FinishReason, SamplingParams
from engine.scheduler.lookup import DraftCounts, Drafting, Lookup
from engine.scheduler.request import Request
from engine.scheduler.scheduler import Limits, Scheduler
from tests.engine.conftest import ROOT
from tests.engine.fake_worker import FakeWorker, Oracle, expected, make_request, run
from tests.engine.offline import TOKENS, generate
from tests.engine.test_async import PARAMS
from tests.engine.test_parity import KINDS, PROMPTS
from tests.engine.tiny import reference
from tests.engine.wire_frontend import WireFrontend

pytestmark = pytest.mark.filterwarnings("default")
TinyModel = Callable[..., Path]
DRAFTING = Drafting(4, 1, 3)
TIGHT: dict[str, Any] = {"budget": 24, "seqs": 8, "caching": True, "blocks": 8, "max_len": 128}


def with_oracle(monkeypatch: pytest.MonkeyPatch, follow: Callable[[list[int], int], list[int]], seed: int = 0) -> None:
    source = random.Random(seed)
    monkeypatch.setattr("engine.scheduler.scheduler.Lookup", lambda: Oracle(follow, source))


def following(answers: list[list[int]]) -> Callable[[list[int], int], list[int]]:
    """What comes behind the beginning of one of these token lists."""

    def follow(tokens: list[int], count: int) -> list[int]:
        whole = next((answer for answer in answers if answer[: len(tokens)] == tokens), tokens)
        return whole[len(tokens) : len(tokens) + count]

    return follow


# --- looking up ------------------------------------------------------------------------------------------------------


def naive(tokens: list[int], drafting: Drafting, count: int) -> list[int]:
    for length in range(min(drafting.most, len(tokens) - 1), drafting.least - 1, -1):
        for at in range(len(tokens) - length):
            if tokens[at : at + length] == tokens[len(tokens) - length :]:
                return tokens[at + length : at + length + count]
    return []


@given(
    st.lists(st.sampled_from([0, 1, 256, 257, 65536, 16777216]), min_size=1, max_size=40),
    st.integers(1, 3), st.integers(0, 3), st.integers(1, 5), st.integers(0, 40),
)  # fmt: skip
def test_drafts_are_what_followed_before(tokens: list[int], least: int, more: int, count: int, cut: int) -> None:
    drafting, lookup = Drafting(count, least, least + more), Lookup()
    for size in sorted({min(cut, len(tokens)) or 1, len(tokens)}):
        assert lookup.propose(tokens[:size], drafting, count) == naive(tokens[:size], drafting, count)


def test_counts() -> None:
    counts = DraftCounts(Drafting(3, 1, 1))
    assert counts.of_scheduler() is None
    for drafted, accepted in ((3, 3), (2, 0), (3, 1)):
        counts.note(drafted, accepted, detailed=True)
    assert counts.of_scheduler() == {
        "num_spec_tokens": 3, "num_drafts": 3, "num_draft_tokens": 8, "num_accepted_tokens": 4,
        "num_accepted_tokens_per_pos": [2, 1, 1], "num_draft_tokens_per_pos": [3, 3, 2],
    }  # fmt: skip
    assert counts.of_request() == {
        "num_spec_tokens": 3, "histogram": [1, 1, 0, 1], "num_draft_tokens": 8, "per_step_accepted": [3, 0, 1],
        "per_step_drafted": [3, 2, 3],
    }  # fmt: skip


# --- the scheduler ---------------------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=5),
    st.integers(8, 16), st.sampled_from([1, 2, 4]), st.integers(6, 12), st.integers(1, 5), st.booleans(), st.integers(0, 99),
    st.integers(1, 2),
)  # fmt: skip
def test_any_drafts_in_any_room(
    asked: list[tuple[int, int]], blocks: int, block_size: int, budget: int, most: int, caching: bool, seed: int, depth: int
) -> None:
    """Preempted, chunked, cached: the tokens are those of the stand-in model, no block leaks, the budget holds."""
    limits = Limits(4, budget, min(24, blocks * block_size))
    with pytest.MonkeyPatch.context() as patch:
        with_oracle(patch, expected, seed)
        scheduler = Scheduler(limits, KvCacheManager(blocks, block_size), drafting=Drafting(most, 1, 1))
        requests = [
            make_request(str(k), [k % 3] * min(length, limits.max_model_len), count, block_size=block_size if caching else None)
            for k, (length, count) in enumerate(asked)
        ]
        for request in requests:
            scheduler.add(request)
        run(scheduler, FakeWorker(block_size), depth)
    for request, (_, count) in zip(requests, asked, strict=True):
        room = limits.max_model_len - len(request.prompt)
        assert request.tokens[len(request.prompt) :] == expected(request.prompt, max(1, min(count, room)))
    assert scheduler.cache.usage == 0


def test_a_stop_among_accepted_tokens_ends_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with_oracle(monkeypatch, expected, 5)
    monkeypatch.setattr(Oracle, "propose", lambda _self, tokens, _drafting, count: expected(tokens, count))
    third = expected([1], 3)[2]
    cache, worker = KvCacheManager(8, 4), FakeWorker(4)
    scheduler = Scheduler(Limits(4, 64, 24), cache, drafting=Drafting(5, 1, 1), told="detailed")
    request = make_request("r", [1], stop_token_ids=[third], all_stop_token_ids=[third])
    scheduler.add(request)
    found = []
    while scheduler.has_work:
        plan = scheduler.schedule()
        tokens = worker.execute(plan)
        found.append(scheduler.update(plan, tokens, worker.further)[0])
    assert [outcome.tokens for outcome in found] == [expected([1], 1), expected([1], 3)[1:]]
    assert found[-1].stop is not None
    assert (found[-1].stop.finish, found[-1].stop.reason) == (FinishReason.STOP, third)
    assert scheduler.take_draft_stats() is not None
    assert scheduler.take_draft_stats() is None
    assert request.draft_counts is not None
    assert request.draft_counts.of_request()["per_step_drafted"] == [5]


def test_drafts_leave_others_their_token(monkeypatch: pytest.MonkeyPatch) -> None:
    with_oracle(monkeypatch, expected)
    monkeypatch.setattr(Oracle, "propose", lambda _self, tokens, _drafting, count: expected(tokens, count))
    scheduler, worker = Scheduler(Limits(4, 6, 24), KvCacheManager(32, 4), drafting=Drafting(8, 1, 1)), FakeWorker(4)
    for k in range(3):
        scheduler.add(make_request(str(k), [k], 12))
    history = run(scheduler, worker)
    assert all(len(ids) == 3 for ids in history[:3])


@pytest.mark.parametrize("params", [{"structured_outputs": {"regex": "a"}}, {"thinking_token_budget": 5}])
def test_requests_that_know_one_token_at_a_time(params: dict[str, Any]) -> None:
    scheduler = Scheduler(Limits(4, 64, 24), KvCacheManager(8, 4), drafting=DRAFTING)
    request = Request("r", 0, [1], SamplingParams(max_tokens=4, **params), 4)
    scheduler.add(request)
    assert request.lookup is None


# --- models ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_tokens_are_those_of_generate(tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """In chunks, cached, preempted."""
    folder = tiny_model(kind)
    wanted = reference(folder, PROMPTS, TOKENS)
    with_oracle(monkeypatch, following([prompt + answer for prompt, answer in zip(PROMPTS, wanted, strict=True)]))
    answers, scheduler = generate(folder, PROMPTS, depth=1, drafting=DRAFTING, **TIGHT)
    assert answers == wanted
    assert scheduler.num_preemptions > 0
    stats: Any = scheduler.take_draft_stats()
    assert 0 < stats["num_accepted_tokens"] < stats["num_draft_tokens"]


def test_sampled_tokens_and_logprobs_are_those_of_single_steps(tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every parameter, and its seed: so the distribution is the same too."""
    params = [SamplingParams(max_tokens=TOKENS, **fields) for fields in PARAMS if "structured_outputs" not in fields]
    prompts = [PROMPTS[0][:k] for k in range(3, 3 + len(params))]
    run_: dict[str, Any] = {"params": params, "depth": 1}
    single: list[StepResult] = []
    several: list[StepResult] = []
    wanted, _ = generate(tiny_model("llama"), prompts, results=single, **run_)
    with_oracle(monkeypatch, following([prompt + answer for prompt, answer in zip(prompts, wanted, strict=True)]))
    answers, scheduler = generate(tiny_model("llama"), prompts, results=several, drafting=DRAFTING, **run_)
    assert answers == wanted
    stats: Any = scheduler.take_draft_stats()
    assert 0 < stats["num_accepted_tokens"] < stats["num_draft_tokens"]
    for name, answer in enumerate(wanted):
        ours, theirs = (_logprobs(results, str(name)) for results in (several, single))
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert (one[: len(answer)].astype(float) == pytest.approx(other[: len(answer)].astype(float), abs=1e-4))


def _logprobs(results: list[StepResult], name: str) -> list[Any]:
    rows = [result.logprobs[name] for result in results if name in result.logprobs]
    return [np.concatenate(part) for part in zip(*rows, strict=True)]


def test_drafts_looked_up_are_accepted(tiny_model: TinyModel) -> None:
    """The real lookup, of a model that is made to repeat itself."""
    params = [SamplingParams(max_tokens=40, temperature=0.0, allowed_token_ids=[5, 6], repetition_penalty=1.0)]
    wanted, _ = generate(tiny_model("llama"), [[5, 6, 7]], tokens=40, params=params, depth=1)
    answers, scheduler = generate(tiny_model("llama"), [[5, 6, 7]], tokens=40, params=params, depth=1, drafting=DRAFTING)
    assert answers == wanted
    stats: Any = scheduler.take_draft_stats()
    assert stats["num_accepted_tokens"] > 0


# --- flags -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "lengths"),
    [('{"method": "ngram", "num_speculative_tokens": 3}', (3, 5, 5)),
     ('{"model": "[ngram]", "num_speculative_tokens": 3, "prompt_lookup_max": 4}', (3, 4, 4)),
     ('{"num_speculative_tokens": 3, "prompt_lookup_min": 1, "prompt_lookup_max": 4}', (3, 1, 4))],
)  # fmt: skip
def test_flags(text: str, lengths: tuple[int, int, int]) -> None:
    found: EngineConfig = parse(["M", "-sc", text, "--per-request-spec-decode-metrics", "summary"]).engine
    assert (found.draft_tokens, found.lookup_least, found.lookup_most, found.drafts_told) == (*lengths, "summary")


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"method": "eagle", "num_speculative_tokens": 3}', '{"method": "ngram"}', '{"num_speculative_tokens": 0}',
     '{"num_speculative_tokens": 3, "prompt_lookup_min": 3, "prompt_lookup_max": 2}', '{"num_speculative_tokens": 3, "x": 1}',
     '{"num_speculative_tokens": true}', '{"num_speculative_tokens": 3, "prompt_lookup_min": "1"}'],
)  # fmt: skip
def test_flags_that_are_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["M", "--speculative-config", text])
    assert "--speculative-config" in capsys.readouterr().err


# --- on the wire -----------------------------------------------------------------------------------------------------


def test_what_an_engine_tells(tiny_model: TinyModel, tmp_path: Path) -> None:
    """Several tokens in an output, and how the drafts fared: in all, and of each request with its end."""
    config = '{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1, "prompt_lookup_max": 2}'
    folder = tiny_model("llama")
    with WireFrontend(tmp_path) as frontend:
        command = [sys.executable, "-m", "engine", str(folder), "--handshake", frontend.handshake_address, "-sc", config]
        options = ["--max-model-len", "64", "--num-gpu-blocks-override", "64", "--per-request-spec-decode-metrics", "detailed"]
        with subprocess.Popen([*command, *options], cwd=ROOT) as process:
            frontend.accept()
            fields = {"temperature": 0.0, "max_tokens": 30, "allowed_token_ids": [5, 6], "logprobs": 1}
            answer = frontend.add("r", [5, 6, 7], fields)
            frontend.finish()
            process.terminate()
            assert process.wait(60) == 0
    wanted, _ = generate(folder, [[5, 6, 7]], tokens=30, params=[SamplingParams(**fields)], depth=1, max_len=64)
    assert answer.tokens == wanted[0]
    assert max(len(output[1]) for output in answer.outputs) > 1
    assert all(output[2][0][1][0] == len(output[1]) for output in answer.outputs), "a row of logprobs for each token"
    told = answer.outputs[-1][16]
    stats = [message["spec_decoding_stats"] for message in frontend.stats if message["spec_decoding_stats"]]
    accepted = sum(n * count for n, count in enumerate(told["histogram"]))
    assert accepted == sum(told["per_step_accepted"]) == sum(each["num_accepted_tokens"] for each in stats) > 0
    assert told["num_draft_tokens"] == sum(each["num_draft_tokens"] for each in stats) == sum(told["per_step_drafted"])
