"""What answers tell of their requests' way through the engine: cached tokens of the prompt, and times."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.native.conftest import Model
from tests.native.pumping import Client, Rig
from tests.native.test_counters import QUEUED, SCHEDULED, STOP, TOKEN, events, output
from tests.native.test_sink import Recorder

CACHE = {"num_prompt_tokens": 3, "num_computed_tokens": 1, "num_cached_tokens": 2, "num_local_cached_tokens": 2,
         "num_external_cached_tokens": 0, "num_cache_creation_tokens": 1}  # fmt: skip
BEGUN = events((QUEUED, 100.0), (SCHEDULED, 100.5))
TIMES = {
    "time_to_first_token_ms": 1000.0, "generation_time_ms": 500.0, "queue_time_ms": 500.0, "mean_itl_ms": 250.0,
    "tokens_per_second": 2.0,
}  # fmt: skip


@pytest.fixture
def rig(qwen3: Model) -> Rig:
    return Rig(qwen3.vocabulary)


def told(client: Client) -> dict[str, Any]:
    """The body, or the stream's last event with data."""
    found: dict[str, Any] = client.events[-2] if client.body is None else json.loads(client.body)
    return found


def run(rig: Rig, first: list[Any] | None = None, **fields: Any) -> Client:
    """A request with three tokens at 101.5, 101.75 and 102.0 by its engine's clock."""
    client = Client()
    _, (request,) = rig.start(client, include_usage=True, **fields)
    rig.message(output(request, TOKEN, None, BEGUN if first is None else first, CACHE), at=101.5)
    rig.message(output(request, TOKEN), at=101.75)
    rig.message(output(request, TOKEN, STOP), at=102.0)
    return client


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("kind", "bodys", "streams"),
    [
        ("chat", {"cached_tokens": 2, "created_cache_tokens": 1, "multimodal_tokens": None}, ["created_cache_tokens"]),
        ("completion", {"cached_tokens": 2, "created_cache_tokens": None, "multimodal_tokens": None}, []),
    ],
)
def test_prompt_details(rig: Rig, kind: str, bodys: dict[str, Any], streams: list[str], stream: bool) -> None:
    """Streams leave out what is null."""
    wanted = {name: bodys[name] for name in ("cached_tokens", *streams)} if stream else bodys
    answer = told(run(rig, kind=kind, stream=stream, prompt_details=True))
    assert answer["usage"]["prompt_tokens_details"] == wanted
    assert answer.get("metrics") is None
    plain = told(run(rig, kind=kind, stream=stream))
    assert plain["usage"].get("prompt_tokens_details") is None
    assert ("prompt_tokens_details" in plain["usage"]) is not stream


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", ["chat", "completion"])
def test_metrics_are_by_the_engines_clock(rig: Rig, kind: str, stream: bool) -> None:
    answer = told(run(rig, kind=kind, stream=stream, metrics=True))
    assert list(answer)[-1] == "metrics"
    assert answer["metrics"] == TIMES | ({} if stream else {"speculative_decoding": None})
    assert answer["usage"].get("prompt_tokens_details") is None


@pytest.mark.parametrize("stream", [False, True])
def test_times_that_are_not_known_are_null(rig: Rig, stream: bool) -> None:
    metrics = told(run(rig, first=[], stream=stream, metrics=True))["metrics"]
    known = {"generation_time_ms": 500.0, "mean_itl_ms": 250.0}
    assert {name: value for name, value in metrics.items() if value is not None} == known
    assert stream == (None not in metrics.values())


def test_one_token_has_no_time_between_tokens(rig: Rig) -> None:
    client = Client()
    _, (request,) = rig.start(client, metrics=True)
    rig.message(output(request, TOKEN, STOP, BEGUN, CACHE), at=101.5)
    metrics = told(client)["metrics"]
    assert (metrics["time_to_first_token_ms"], metrics["mean_itl_ms"], metrics["tokens_per_second"]) == (1000.0, None, 1.0)


def test_answers_with_several_choices_have_none(rig: Rig) -> None:
    client = Client()
    _, requests = rig.start(client, metrics=True, n=2)
    for request in requests:
        rig.message(output(request, TOKEN, STOP, BEGUN, CACHE), at=101.5)
    assert told(client)["metrics"] is None


class Measured(Recorder):
    """Notes what it is told before the end."""

    def __init__(self) -> None:
        super().__init__()
        self.told: tuple[int, int, bytes] | None = None

    def measured(self, cached_tokens: int, created_tokens: int, metrics: bytes) -> None:
        assert self.told is None
        self.told = (cached_tokens, created_tokens, metrics)

    def end(self, prompt_tokens: int, completion_tokens: int) -> bytes:
        assert self.told is not None
        return super().end(prompt_tokens, completion_tokens)


@pytest.mark.parametrize("stream", [False, True])
def test_sinks_are_told_what_they_asked_for(rig: Rig, stream: bool) -> None:
    sink = Measured()
    run(rig, sink=sink, stream=stream, prompt_details=True)
    assert sink.told == (2, 1, b"")
    sink = Measured()
    run(rig, sink=sink, stream=stream, metrics=True)
    assert sink.told is not None
    assert json.loads(sink.told[2]) == TIMES | ({} if stream else {"speculative_decoding": None})


def test_an_engine_without_a_clock(rig: Rig) -> None:
    """The message may end before the time; its outputs are read all the same."""
    client = Client()
    _, (request,) = rig.start(client, metrics=True)
    rig.message(output(request, TOKEN, STOP, BEGUN, CACHE), at=None)
    metrics = told(client)["metrics"]
    assert (metrics["queue_time_ms"], metrics["generation_time_ms"]) == (500.0, None)
