"""What fastfront's figures are to be, and whether a record shows that they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
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

Values = Callable[[Figures], list[float]]


@dataclass(frozen=True)
class Target:
    """One line: `values` in `unit`, one of each repeat, of which the median counts (or the `worst`); to be at most, or at
    least, `bound`."""

    figure: str
    against: str
    bound: float
    unit: str
    values: Values
    at_least: bool = False
    digits: int = 2
    worst: bool = False

    def value(self, figures: Figures) -> float | None:
        """The figure; None where it was not measured."""
        values = self.values(figures)
        return max(values, default=None) if self.worst else median(values)

    def verdict(self, figures: Figures) -> bool | None:
        """Whether it holds; None where it was not measured."""
        value = self.value(figures)
        if value is None:
            return None
        return value >= self.bound if self.at_least else value <= self.bound


def ratio(peer: str, scenario: str, point: str, pick: Pick, their_point: str | None = None) -> Values:
    """fastfront's figure over another peer's, at the same point or at `their_point`: the ratios within each repeat."""
    return lambda figures: figures.ratios("fastfront", peer, scenario, point, pick, their_point)


def _there(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _first_token_ratio(quantile: str) -> Values:
    """Infinite where fastfront's own requests waited for a first token until the end."""

    def pick(sample: Sample) -> float | None:
        late = sample["peer"] == "fastfront" and is_bound(sample, quantile)
        return math.inf if late else first_token(quantile)(sample)

    return ratio("vllm-rust", "decode", "1024 streams", pick)


def _own(scenario: str, point: str, pick: Pick) -> Values:
    return lambda figures: _there(pick(sample) for sample in figures.samples("fastfront", scenario, point))


def _start(key: str, scale: float) -> Values:
    return lambda figures: [found * scale for found in figures.starts("fastfront", key)]


def _pause_ms(figures: Figures) -> list[float]:
    return [pause * 1e3 for pause in figures.longest_pauses_s()]


def _lanes(figures: Figures) -> list[float]:
    lanes = figures.record.get("lanes")
    return list(lanes["two_threads_speedup_wall"]) if lanes else []


def _cpu(streams: int, peer: str, who: str, bound: float, theirs: int | None = None) -> Target:
    point, their_point = f"{streams} streams", f"{theirs or streams} streams"
    values = ratio(peer, "decode", point, cpu_per_token, their_point)
    return Target(f"CPU per token, {point}", who, bound, "x", values)


_SATURATED = 1024
"""Streams at which vLLM's Python frontend has been far behind for long: its figure gets no better with more."""
_PYTHON = f"vLLM Python with {_SATURATED} (saturated)"
_PROBE = "decode", "2048 streams, token ids"
_STREAMS_2048 = "decode", "2048 streams"


def _connects(figures: Figures) -> list[float]:
    return [*_own(*_STREAMS_2048, connect_failures)(figures), *_own(*_PROBE, connect_failures)(figures)]


TARGETS = (
    _cpu(64, "floor", "floor", 1.9),
    _cpu(256, "floor", "floor", 1.6),
    _cpu(1024, "floor", "floor", 1.3),
    _cpu(64, "vllm-rust", "vLLM Rust", 0.55),
    _cpu(256, "vllm-rust", "vLLM Rust", 0.5),
    _cpu(1024, "vllm-rust", "vLLM Rust", 0.75),
    _cpu(64, "vllm-python-1", _PYTHON, 0.14, _SATURATED),
    _cpu(256, "vllm-python-1", _PYTHON, 0.14, _SATURATED),
    _cpu(1024, "vllm-python-1", _PYTHON, 0.14, _SATURATED),
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
    Target("tokens per event, 2048 streams, max", "", 1.0, "", _own(*_PROBE, tokens_per_event("max")), digits=0, worst=True),
    Target("failed connects, 2048 streams", "", 0.0, "", _connects, digits=0, worst=True),
    Target("ready", "", 1.5, " s", _start("ready_s", 1.0)),
    Target("RSS when ready", "", 200.0, " MB", _start("rss_bytes", 1e-6), digits=0),
    Target("RSS after all load", "", 200.0, " MB", _start("end_rss_bytes", 1e-6), digits=0),
    Target("two lanes against one, token path", "one lane", 1.8, "x", _lanes, True),
    Target("longest stop-the-world pause under load", "", 5.0, " ms", _pause_ms, digits=1, worst=True),
)  # fmt: skip
