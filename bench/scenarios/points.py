"""The scenarios as tables: which load, on which frontends, how often."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

SCENARIOS = {
    "decode": "streams of tokens at 10 ms steps",
    "unpaced": "streams of tokens, step clock off",
    "requests": "short requests, step clock off",
    "options": "what options cost, 256 streams at 10 ms steps",
    "clients": "slow readers and clients that leave",
    "saturation": "more streams until time to first token passes 1 s",
}
STEP_MS = 10.0
CEILING_TTFT_MS = 1000.0
RAMP = (64, 128, 256, 512, 1024, 1536, 2048, 3072, 4096)
QUICK_RAMP = (64, 256, 1024, 2048, 4096)
ARRIVALS_PER_S = 300
UNABLE = {"n = 2": frozenset({"floor", "vllm-rust"})}
"""Peers that cannot serve an option. The floor serves none, and reads no prompt."""
_ANSWER = {"max_tokens": 256, "ramp_s": 2.5}
"""An answer takes 256 steps; clients begin spread over that time, so that later requests come evenly too."""
_FEW = 256
_WARMUP_S = 3.0
_STOPS = ["\n\nHuman:", "<|end of turn|>"]
"""Nothing that random tokens make."""
_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather at a place",
            "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
        },
    }
]
_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "nothing": {},
    "stop strings": {"stop": _STOPS},
    "logprobs": {"logprobs": True},
    "logprobs, top 5": {"logprobs": True, "top_logprobs": 5},
    "tools": {"tools": _TOOLS, "tool_choice": "auto"},
    "n = 2": {"n": 2},
}
"""Asked for one at a time, so that each one's cost stands beside that of nothing."""
_ALL = frozenset({"floor", "fastfront", "vllm-rust", "vllm-python-1", "vllm-python-2"})
_NATIVE = frozenset({"fastfront", "vllm-rust"})
_OURS = frozenset({"fastfront"})
_FLOOR = frozenset({"floor"})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Point:
    """One load. `fields` are those of `bench.load.Load`; `streams` and the times are given apart, in seconds.

    With `once` only the first of the repeats measures it: it is there to be looked at, no target depends on it. A run of
    everything is shorter: it repeats points for `again` only, the peers that a target compares there.
    """

    scenario: str
    name: str
    step_ms: float
    streams: int
    warmup_s: float
    measure_s: float
    drain_s: float
    fields: Mapping[str, Any]
    once: bool = False
    again: frozenset[str] = frozenset()
    without: frozenset[str] = frozenset()
    """Peers that cannot serve it."""
    apart: bool = False
    """Frontend and load generator on cores of their own: for loads that leave most of the machine idle."""

    @property
    def expected_s(self) -> float:
        """About how long it takes where the server keeps up."""
        answer_s = int(self.fields["max_tokens"]) * self.step_ms / 1e3
        return self.warmup_s + self.measure_s + min(self.drain_s, answer_s) + 0.5


def points(scenarios: frozenset[str], quick: bool) -> list[Point]:
    """The points of some scenarios in the order in which they are measured; saturation is a ramp of its own."""
    shorter = 0.5 if quick else 1.0
    found = [*_decode(shorter, quick), *_unpaced(shorter), *_requests(shorter, quick), *_options(shorter), *_clients(shorter)]
    return [point for point in found if point.scenario in scenarios]


def _decode(shorter: float, quick: bool) -> list[Point]:
    found = []
    for streams in (64, 256, 1024, 2048):
        # Few streams cost little processor time in a second, so they are measured longer.
        measure_s = 6.0 if streams == 64 else 4.0
        # What all frontends need repeats for is where one that is overloaded is compared; the floor has no use for 2,048.
        again = {1024: _ALL, 2048: _NATIVE}.get(streams, _NATIVE | {"floor"})
        found.append(
            Point(
                scenario="decode", name=f"{streams} streams", step_ms=STEP_MS, streams=streams, warmup_s=_WARMUP_S,
                measure_s=measure_s * shorter, drain_s=3.0, fields=_ANSWER, again=again,
                apart=streams <= _FEW,
            )
        )  # fmt: skip
    probe = {**_ANSWER, "return_token_ids": True}
    found.append(
        Point(
            scenario="decode", name="2048 streams, token ids", step_ms=STEP_MS, streams=2048, warmup_s=_WARMUP_S,
            measure_s=3.0 * shorter, drain_s=3.0, fields=probe, once=True, without=_FLOOR,
        )
    )  # fmt: skip
    return found


def _unpaced(shorter: float) -> list[Point]:
    point = Point(
        scenario="unpaced", name="256 streams", step_ms=0.0, streams=256, warmup_s=1.0, measure_s=4.0 * shorter,
        drain_s=3.0, fields={"max_tokens": 256}, again=_NATIVE,
    )  # fmt: skip
    return [point]


def _requests(shorter: float, quick: bool) -> list[Point]:
    found = []
    for prompt in (30, 1000):
        for tokens in (1, 16):
            if quick and prompt == 1000:
                continue
            once = tokens > 1 or prompt > 30
            found.append(
                Point(
                    scenario="requests", name=f"{tokens} out, prompt {prompt}", step_ms=0.0, streams=64, warmup_s=1.0,
                    measure_s=4.0 * shorter, drain_s=3.0, fields={"max_tokens": tokens, "prompt_tokens": prompt},
                    once=once, again=frozenset() if once else _ALL - _FLOOR, without=_FLOOR if once else frozenset(),
                )
            )  # fmt: skip
    # As many as every frontend can take: what a request waits for where nobody is overloaded.
    fields = {"max_tokens": 1, "prompt_tokens": 30, "mode": "open", "rate": ARRIVALS_PER_S}
    found.append(
        Point(
            scenario="requests", name=f"{ARRIVALS_PER_S} per s, 1 out, prompt 30", step_ms=0.0, streams=256, warmup_s=1.0,
            measure_s=4.0 * shorter, drain_s=3.0, fields=fields, once=True, without=_FLOOR,
        )
    )  # fmt: skip
    return found


def _options(shorter: float) -> list[Point]:
    found = []
    for name, extra in _OPTIONS.items():
        # Always 256 tokens per step: a request with two choices is two streams.
        streams = 256 // int(extra.get("n", 1))
        fields = {"max_tokens": 128, "ramp_s": 1.25, "extra": extra}
        found.append(
            Point(
                scenario="options", name=name, step_ms=STEP_MS, streams=streams, warmup_s=1.75, measure_s=2.5 * shorter,
                drain_s=2.0, fields=fields, once=True, again=_OURS, without=UNABLE.get(name, _FLOOR),
            )
        )  # fmt: skip
    mix = [extra for name, extra in _OPTIONS.items() if "n" not in extra]
    return [*found, dataclasses.replace(found[0], name="all but n, mixed", fields={**found[0].fields, "mix": mix})]


def _clients(shorter: float) -> list[Point]:
    # Slow readers get 10 kB/s, less than half of what a stream makes. Clients leave behind a token, and ids tell how many an
    # event has: counting events, few would leave a server that sends many at once. The floor waits for no reader.
    fields = {**_ANSWER, "slow_share": 0.1, "slow_bytes_per_s": 10_000, "disconnect_share": 0.2, "return_token_ids": True}
    point = Point(
        scenario="clients", name="256 streams", step_ms=STEP_MS, streams=256, warmup_s=_WARMUP_S, measure_s=5.0 * shorter,
        drain_s=7.0, fields=fields, once=True, without=_FLOOR,
    )  # fmt: skip
    return [point]


def ramp(quick: bool) -> tuple[int, ...]:
    """Streams of the rungs, from the lowest."""
    return QUICK_RAMP if quick else RAMP


def ramp_point(streams: int, quick: bool) -> Point:
    """One rung of the ramp."""
    return Point(
        scenario="saturation", name=f"{streams} streams", step_ms=STEP_MS, streams=streams, warmup_s=_WARMUP_S,
        measure_s=2.0 if quick else 3.0, drain_s=2.0, fields=_ANSWER, once=True,
    )  # fmt: skip


def beyond(sample: Mapping[str, Any]) -> bool:
    """Whether a sample shows a server that does not keep up: first tokens (p99) later than a second or none, or failures."""
    load = sample["load"]
    late = load["ttft_ms"].get("p99", float("inf")) > CEILING_TTFT_MS or silent_share(sample) > 0.01
    return bool(late or load["requests"]["failed"])


def silent_share(sample: Mapping[str, Any]) -> float:
    """Share of requests that ran without a first token when draining ended: they had waited for `drain_s` at least.

    Complete answers without any text (a token may be half a character) are none of them. 0 where clients leave or read
    slowly, whose first tokens are not counted.
    """
    requests = sample["load"]["requests"]
    if not requests["started"] or requests["disconnected"] or requests["slow"]:
        return 0.0
    silent = requests["started"] - requests["failed"] - sample["load"]["ttft_ms"]["count"]
    return float(max(0, min(silent, requests["unfinished"]))) / float(requests["started"])


def is_rung(sample: Mapping[str, Any]) -> bool:
    """Whether a sample says something about the ceiling: plain streams, on their own or in the ramp."""
    plain = (sample["scenario"], sample["point"]) == ("decode", f"{sample['streams']} streams")
    return plain or sample["scenario"] == "saturation"


def ceiling_known(samples: Iterable[Mapping[str, Any]]) -> dict[int, bool]:
    """By streams: whether one frontend's samples show that it does not keep up."""
    return {sample["streams"]: beyond(sample) for sample in samples if is_rung(sample)}
