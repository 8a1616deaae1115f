"""Figures out of a record: medians over its repeats."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from typing import Any

from bench.record import Record
from bench.scenarios.points import beyond, silent_share

Sample = dict[str, Any]
Pick = Callable[[Sample], float | None]


class Figures:
    """One record's samples by peer and point. Every figure is None where nothing was measured."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self._samples: dict[tuple[str, str, str], list[Sample]] = {}
        for sample in record["samples"]:
            self._samples.setdefault((sample["peer"], sample["scenario"], sample["point"]), []).append(sample)
        measured = {peer for peer, _, _ in self._samples} | {start["peer"] for start in record["starts"]}
        self.peers = [name for name in record["peers"] if name in measured]
        self.titles = {name: str(facts["title"]) for name, facts in record["peers"].items()}

    def samples(self, peer: str, scenario: str, point: str) -> list[Sample]:
        """All repeats of one point."""
        return self._samples.get((peer, scenario, point), [])

    def points(self, scenario: str) -> list[str]:
        """Names of a scenario's points, in the order of measuring."""
        return list(dict.fromkeys(point for _, found, point in self._samples if found == scenario))

    def median(self, peer: str, scenario: str, point: str, pick: Pick) -> float | None:
        """The median of a figure over the repeats that have it."""
        return median(pick(sample) for sample in self.samples(peer, scenario, point))

    def start(self, peer: str, key: str) -> float | None:
        """The median of a figure taken when a peer had started (or, `end_...`, before it was stopped)."""
        return median(start.get(key) for start in self.record["starts"] if start["peer"] == peer)

    def longest_pause_s(self) -> float | None:
        """fastfront's longest stop-the-world collection under any load."""
        found = [sample.get("gc_longest_pause_s") for sample in self.record["samples"] if sample["peer"] == "fastfront"]
        return max((pause for pause in found if pause is not None), default=None)

    def others_cores(self) -> float | None:
        """What else ran on the machine: the median over all samples, in cores."""
        return median(sample["others_cores"] for sample in self.record["samples"])

    def ceiling(self, peer: str) -> Sample | None:
        """The last rung of a peer's ramp on which it kept up."""
        rungs = [sample for sample in self.record["samples"] if (sample["peer"], sample["scenario"]) == (peer, "saturation")]
        good = [sample for sample in rungs if not beyond(sample)]
        return good[-1] if good else None


def median(values: Iterable[float | None]) -> float | None:
    """The median of those that are there."""
    there = [value for value in values if value is not None]
    return statistics.median(there) if there else None


def cpu_per_token(sample: Sample) -> float | None:
    """Processor time of the frontend's process tree, microseconds."""
    return _number(sample["cpu_us_per_token"])


def cpu_per_request(sample: Sample) -> float | None:
    """The same for each completed request."""
    return _number(sample["cpu_us_per_request"])


def cores(sample: Sample) -> float | None:
    """Processors that the frontend keeps busy."""
    return _number(sample["front"]["cores"])


def engine_cores(sample: Sample) -> float | None:
    """Processors that the mock engine keeps busy."""
    return _number(sample["engine_cores"])


def tokens_per_s(sample: Sample) -> float | None:
    """Throughput."""
    return _number(sample["load"]["tokens_per_s"])


def requests_per_s(sample: Sample) -> float | None:
    """Completed requests."""
    return _number(sample["load"]["requests_per_s"])


def first_token(quantile: str) -> Pick:
    """Time to first token in ms, `quantile` p50 or p99; where too many got none it is at least how long those waited."""

    def pick(sample: Sample) -> float | None:
        found = _number(sample["load"]["ttft_ms"].get(quantile))
        return max(found or 0.0, sample["drain_s"] * 1e3) if is_bound(sample, quantile) else found

    return pick


def is_bound(sample: Sample, quantile: str) -> bool:
    """Whether `first_token` is only a lower bound, because more than the rest of the requests had got no token at the end."""
    return silent_share(sample) > 1 - int(quantile[1:]) / 100


def latency(kind: str, quantile: str) -> Pick:
    """`kind` as in the load's result (ttft_ms, itl_ms, ...), `quantile` p50, p90, p99 or max."""
    return lambda sample: _number(sample["load"][kind].get(quantile))


def tokens_per_event(key: str) -> Pick:
    """`mean` or `max`."""
    return lambda sample: _number(sample["load"]["tokens_per_event"][key])


def connect_failures(sample: Sample) -> float | None:
    """Connections that could not be made."""
    return _number(sample["load"]["connect_failures"])


def failed(sample: Sample) -> float | None:
    """Requests that failed, for whatever reason."""
    return _number(sample["load"]["requests"]["failed"])


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
