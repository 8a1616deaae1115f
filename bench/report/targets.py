"""What fastfront's figures are to be, and whether a record shows that they are."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from bench.report.figures import (
    Figures,
    Pick,
    Sample,
    connect_failures,
    cpu_per_request,
    cpu_per_token,
    first_token,
    is_bound,
    median,
    requests_per_s,
    tokens_per_event,
)

_ONE = ("requests", "1 out, prompt 30")


@dataclass(frozen=True)
class Target:
    """One line: `value` in `unit`, None where it was not measured; it is to be at most, or at least, `bound`."""

    figure: str
    against: str
    bound: float
    unit: str
    value: Callable[[Figures], float | None]
    at_least: bool = False
    digits: int = 2

    def verdict(self, figures: Figures) -> bool | None:
        """Whether it holds; None where it was not measured."""
        value = self.value(figures)
        if value is None:
            return None
        return value >= self.bound if self.at_least else value <= self.bound


def ratio(peer: str, scenario: str, point: str, pick: Pick) -> Callable[[Figures], float | None]:
    """fastfront's figure over another peer's: the median over repeats of the ratios within one repeat."""

    def value(figures: Figures) -> float | None:
        ours = {sample["repeat"]: pick(sample) for sample in figures.samples("fastfront", scenario, point)}
        theirs = {sample["repeat"]: pick(sample) for sample in figures.samples(peer, scenario, point)}
        return median(_divided(ours[repeat], theirs[repeat]) for repeat in ours if repeat in theirs)

    return value


def _divided(one: float | None, other: float | None) -> float | None:
    return one / other if one is not None and other else None


def _first_token_ratio(quantile: str) -> Callable[[Figures], float | None]:
    """Infinite where fastfront's own requests waited for a first token until the end."""

    def pick(sample: Sample) -> float | None:
        late = sample["peer"] == "fastfront" and is_bound(sample, quantile)
        return math.inf if late else first_token(quantile)(sample)

    return ratio("vllm-rust", "decode", "1024 streams", pick)


def _own(scenario: str, point: str, pick: Pick) -> Callable[[Figures], float | None]:
    return lambda figures: figures.median("fastfront", scenario, point, pick)


def _start(key: str, scale: float) -> Callable[[Figures], float | None]:
    def value(figures: Figures) -> float | None:
        found = figures.start("fastfront", key)
        return None if found is None else found * scale

    return value


def _pause_ms(figures: Figures) -> float | None:
    found = figures.longest_pause_s()
    return None if found is None else found * 1e3


def _lanes(figures: Figures) -> float | None:
    lanes = figures.record.get("lanes")
    return median(lanes["two_threads_speedup_wall"]) if lanes else None


def _cpu(streams: int, peer: str, who: str, bound: float) -> Target:
    point = f"{streams} streams"
    return Target(f"CPU per token, {streams} streams", who, bound, "x", ratio(peer, "decode", point, cpu_per_token))


_PROBE = "decode", "2048 streams, token ids"

TARGETS = (
    _cpu(64, "floor", "floor", 1.9),
    _cpu(256, "floor", "floor", 1.6),
    _cpu(1024, "floor", "floor", 1.3),
    _cpu(64, "vllm-rust", "vLLM Rust", 0.55),
    _cpu(256, "vllm-rust", "vLLM Rust", 0.5),
    _cpu(1024, "vllm-rust", "vLLM Rust", 0.75),
    _cpu(1024, "vllm-python-1", "vLLM Python, saturated", 0.14),
    Target("CPU per request, 1 token out, prompt 30", "vLLM Rust", 1.0, "x", ratio("vllm-rust", *_ONE, cpu_per_request)),
    Target("CPU per request, 1 token out, prompt 30", "vLLM Python", 0.15, "x", ratio("vllm-python-1", *_ONE, cpu_per_request)),
    Target("requests/s at full load, 1 token out", "vLLM Rust", 1.0, "x", ratio("vllm-rust", *_ONE, requests_per_s), True),
    Target("requests/s at full load, 1 token out", "vLLM Python", 6.0, "x", ratio("vllm-python-1", *_ONE, requests_per_s), True),
    Target(
        "requests/s at full load, 1 token out", "vLLM Python, 2 API servers", 3.0, "x",
        ratio("vllm-python-2", *_ONE, requests_per_s), True,
    ),
    Target("time to first token p50, 1024 streams", "vLLM Rust", 0.8, "x", _first_token_ratio("p50")),
    Target("time to first token p99, 1024 streams", "vLLM Rust", 0.8, "x", _first_token_ratio("p99")),
    Target("tokens per event, 2048 streams, max", "", 1.0, "", _own(*_PROBE, tokens_per_event("max")), digits=0),
    Target("failed connects, 2048 streams", "", 0.0, "", _own(*_PROBE, connect_failures), digits=0),
    Target("ready", "", 1.5, " s", _start("ready_s", 1.0)),
    Target("RSS when ready", "", 200.0, " MB", _start("rss_bytes", 1e-6), digits=0),
    Target("RSS after all load", "", 200.0, " MB", _start("end_rss_bytes", 1e-6), digits=0),
    Target("two lanes against one, token path", "one lane", 1.8, "x", _lanes, True),
    Target("longest stop-the-world pause under load", "", 5.0, " ms", _pause_ms, digits=1),
)  # fmt: skip
