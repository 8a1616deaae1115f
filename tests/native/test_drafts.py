"""Speculative decoding seen from a stream: several tokens in one output, and what the last one tells of the drafts."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.native.conftest import Model, load
from tests.native.pumping import Client, Rig
from tests.native.test_counters import STOP, TOKEN
from tests.native.test_logprobs import LENGTH, arrays
from tests.native.test_measures import Measured, told

TEXT = "Größe 🎉🎉 of the <stop> and the rest of it, née"


@pytest.fixture
def rig(qwen3: Model) -> Rig:
    return Rig(qwen3.vocabulary)


def rows(ids: list[int]) -> list[Any]:
    """New logprobs of the wire: each token and two alternatives."""
    return arrays([[(i, -0.5), (i + 1, -1.5 - i % 7), (i + 2, -2.5)] for i in ids])


def seen(client: Client, kind: str) -> dict[str, Any]:
    """What an answer says in all, however it is cut."""
    bodies = [event for event in client.events if isinstance(event, dict)] if client.body is None else [json.loads(client.body)]
    choices = [choice for body in bodies for choice in body["choices"]]
    ids = [i for choice in choices for i in choice.get("token_ids") or ()]
    found: dict[str, Any] = {
        "text": client.text(), "finish": client.finish(), "ids": ids, "usage": bodies[-1]["usage"]["completion_tokens"],
    }  # fmt: skip
    logprobs = [choice["logprobs"] for choice in choices if choice["logprobs"]]
    if kind == "chat":
        return found | {"logprobs": [entry for each in logprobs for entry in each["content"]]}
    return found | {name: [entry for each in logprobs for entry in each[name]] for name in logprobs[0]}


def answer(rig: Rig, kind: str, stream: bool, groups: list[list[int]], ending: dict[str, Any]) -> tuple[dict[str, Any], int]:
    client = Client()
    fields = {"stop": [], **ending}
    _, (request,) = rig.start(
        client, kind=kind, stream=stream, include_usage=True, return_token_ids=True, logprobs=2, sampling={"logprobs": 2},
        **fields,
    )  # fmt: skip
    for k, ids in enumerate(groups):
        end = k == len(groups) - 1
        rig.message([request, ids, rows(ids), None, None, LENGTH if end else None, None])
    return seen(client, kind), len(rig.aborted())


@given(st.data())
def test_any_number_of_tokens_in_an_output_gives_the_same_answer(data: st.DataObject) -> None:
    """Text, ids, logprobs with their offsets, finish, stop string and usage; no token behind a stop string shows."""
    model = load("qwen3")
    rig = Rig(model.vocabulary)
    tokens = model.tokenizer.encode(TEXT, add_special_tokens=False).ids
    kind, stream = data.draw(st.sampled_from(["chat", "completion"])), data.draw(st.booleans())
    ending = data.draw(st.sampled_from([{}, {"stop": ["<stop>"]}, {"stop": ["the <stop>", "rest"], "min_tokens": 12},
                                        {"stop": ["\N{PARTY POPPER}"], "include_stop_str_in_output": True}]))  # fmt: skip
    cuts = sorted({0, len(tokens), *data.draw(st.lists(st.integers(1, len(tokens) - 1)))})
    groups = [tokens[a:b] for a, b in pairwise(cuts)]
    single, _ = answer(rig, kind, stream, [[token] for token in tokens], ending)
    found, _ = answer(rig, kind, stream, groups, ending)
    assert found == single
    assert bool(ending) == (single["finish"][0] == "stop")


def test_tokens_come_in_one_event(rig: Rig, qwen3: Model) -> None:
    client = Client()
    tokens = qwen3.tokenizer.encode("one two three four", add_special_tokens=False).ids
    _, (request,) = rig.start(client, stream=True)
    rig.step([request, tokens[:1]], [request, tokens[1:], LENGTH])
    assert [event["choices"][0]["delta"].get("content") for event in client.events[:-1]] == ["", "one", " two three four"]


# --- statistics of drafts --------------------------------------------------------------------------------------------

DRAFTS = {"num_spec_tokens": 3, "histogram": [1, 0, 1, 1], "num_draft_tokens": 9, "per_step_accepted": [], "per_step_drafted": []}
SHOWN = {
    "mean_acceptance_length": 1 + 5 / 3, "draft_acceptance_rate": 5 / 9, "acceptance_histogram": [1, 0, 1, 1],
    "num_spec_steps": 3, "num_accepted_draft_tokens": 5, "num_draft_tokens": 9, "num_spec_tokens": 3,
}  # fmt: skip
STEPS = {"per_step_accepted": [2, 0, 3], "per_step_drafted": [3, 3, 3]}
NO_STEPS = dict.fromkeys(STEPS)


def last(request: str, drafts: Any, finish: int = STOP) -> list[Any]:
    return [request, TOKEN, None, None, None, finish, None, *[None] * 9, drafts]


def measured(rig: Rig, drafts: Any, **fields: Any) -> Any:
    """The answer's member `metrics`, None where there is none."""
    client = Client()
    _, (request,) = rig.start(client, include_usage=True, **fields)
    rig.message(last(request, drafts), at=1.0)
    return told(client).get("metrics")


@pytest.mark.parametrize("kind", ["chat", "completion"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("steps", "shown"), [({}, {}), (STEPS, STEPS)])
def test_drafts_are_shown_when_an_engine_tells_of_them(
    rig: Rig, kind: str, stream: bool, steps: dict[str, Any], shown: dict[str, Any]
) -> None:
    """With or without times; streams leave out what is null."""
    drafts = SHOWN | ({} if stream else NO_STEPS) | shown
    found = measured(rig, DRAFTS | steps, kind=kind, stream=stream)
    times = dict.fromkeys(
        ("time_to_first_token_ms", "generation_time_ms", "queue_time_ms", "mean_itl_ms", "tokens_per_second")
    )
    assert found == ({} if stream else times) | {"speculative_decoding": drafts}
    found = measured(rig, DRAFTS | steps, kind=kind, stream=stream, metrics=True)
    assert found["speculative_decoding"] == drafts
    assert found["generation_time_ms"] == 0.0


def test_a_request_without_a_draft(rig: Rig) -> None:
    found = measured(rig, {"num_spec_tokens": 2, "histogram": [0, 0, 0], "num_draft_tokens": 0})
    shown = found["speculative_decoding"]
    assert (shown["mean_acceptance_length"], shown["draft_acceptance_rate"]) == (1, 0)


@pytest.mark.parametrize(
    "drafts",
    [
        None, 5, [], {}, {"histogram": 3}, {"histogram": [-1]}, {"histogram": [1.5]}, {"histogram": [2**40]},
        {"histogram": [0] * 5000},
        DRAFTS | {"num_draft_tokens": -1}, DRAFTS | {"num_spec_tokens": "3"}, DRAFTS | {"per_step_accepted": [1, None]},
        DRAFTS | {"per_step_drafted": 7}, {1: 2},
    ],
)  # fmt: skip
@pytest.mark.parametrize("stream", [False, True])
def test_what_cannot_be_read_is_left_out(rig: Rig, drafts: Any, stream: bool) -> None:
    assert measured(rig, drafts, stream=stream) is None


def test_answers_with_several_choices_show_none(rig: Rig) -> None:
    client = Client()
    _, requests = rig.start(client, n=2)
    for request in requests:
        rig.message(last(request, DRAFTS))
    assert told(client)["metrics"] is None


@pytest.mark.parametrize("stream", [False, True])
def test_sinks_are_told(rig: Rig, stream: bool) -> None:
    sink = Measured()
    client = Client()
    _, (request,) = rig.start(client, sink=sink, stream=stream)
    rig.message(last(request, DRAFTS))
    assert sink.told is not None
    assert json.loads(sink.told[2])["speculative_decoding"] == SHOWN | ({} if stream else NO_STEPS)
