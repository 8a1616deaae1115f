"""Figures out of a record: medians over its repeats, ratios within each of them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from typing import Any

from bench.record import Record
from bench.scenarios.points import beyond, is_rung, silent_share

Sample = dict[str, Any]
Pick = Callable[[Sample], float | None]
Pair = tuple[float, float]


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

    def pairs(self, peer: str, other: str, scenario: str, point: str, pick: Pick, their_point: str | None = None) -> list[Pair]:
        """A figure of two peers, or at two points, in those repeats that have both (and the other's is not 0)."""
        ours = {sample["repeat"]: pick(sample) for sample in self.samples(peer, scenario, point)}
        theirs = {sample["repeat"]: pick(sample) for sample in self.samples(other, scenario, their_point or point)}
        both = [(ours[repeat], theirs[repeat]) for repeat in ours if repeat in theirs]
        return [(one, another) for one, another in both if one is not None and another]

    def ratios(self, peer: str, other: str, scenario: str, point: str, pick: Pick, their_point: str | None = None) -> list[float]:
        """The first over the second, in each repeat: a machine that drifts drifts for both."""
        return [one / another for one, another in self.pairs(peer, other, scenario, point, pick, their_point)]

    def start(self, peer: str, key: str) -> float | None:
        """The median of a figure taken when a peer had started (or, `end_...`, before it was stopped)."""
        return median(self.starts(peer, key))

    def starts(self, peer: str, key: str) -> list[float]:
        """The same of each start."""
        return [start[key] for start in self.record["starts"] if start["peer"] == peer and start.get(key) is not None]

    def longest_pauses_s(self) -> list[float]:
        """fastfront's longest stop-the-world collection under any load, for each repeat."""
        found: dict[int, float] = {}
        for sample in self.record["samples"]:
            pause = sample.get("gc_longest_pause_s") if sample["peer"] == "fastfront" else None
            if pause is not None:
                found[sample["repeat"]] = max(pause, found.get(sample["repeat"], 0.0))
        return list(found.values())

    def others_cores(self) -> float | None:
        """What else ran on the machine: the median over all samples, in cores."""
        return median(sample["others_cores"] for sample in self.record["samples"])

    def ceiling(self, peer: str) -> tuple[Sample | None, Sample | None]:
        """The most streams with which a peer kept up in the first repeat, and the fewest above with which it did not."""
        rungs = [
            sample for sample in self.record["samples"] if sample["peer"] == peer and sample["repeat"] == 0 and is_rung(sample)
        ]
        rungs.sort(key=lambda sample: int(sample["streams"]))
        beyonds = [sample for sample in rungs if beyond(sample)]
        first = beyonds[0] if beyonds else None
        good = [sample for sample in rungs if first is None or sample["streams"] < first["streams"]]
        return (good[-1] if good else None), first

    def failures(self, peer: str, scenario: str, point: str) -> dict[str, int]:
        """Failed requests by kind, of all repeats together."""
        found: dict[str, int] = {}
        for sample in self.samples(peer, scenario, point):
            for kind, count in sample["load"]["failures"].items():
                found[kind] = count + found.get(kind, 0)
        return found


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


def of_machine(key: str) -> Pick:
    """Processors that something else keeps busy: `engine_cores`, `load_cores`, `others_cores`, `interrupt_cores`."""
    return lambda sample: _number(sample[key])


def system_share(sample: Sample) -> float | None:
    """How much of the frontend's processor time is the kernel's, 0 to 1."""
    front = sample["front"]
    used = front["user_s"] + front["system_s"]
    return float(front["system_s"] / used) if used else None


def tokens_per_s(sample: Sample) -> float | None:
    """Throughput."""
    return _number(sample["load"]["tokens_per_s"])


def requests_per_s(sample: Sample) -> float | None:
    """Completed requests."""
    return _number(sample["load"]["requests_per_s"])


def first_token(quantile: str) -> Pick:
    """Time to first token in ms, `quantile` p50, p90, p99, max; where too many got none it is at least how long those waited."""

    def pick(sample: Sample) -> float | None:
        found = _number(sample["load"]["ttft_ms"].get(quantile))
        return max(found or 0.0, sample["drain_s"] * 1e3) if is_bound(sample, quantile) else found

    return pick


def is_bound(sample: Sample, quantile: str) -> bool:
    """Whether `first_token` is only a lower bound, because more than the rest of the requests had got no token at the end."""
    return silent_share(sample) > (0.0 if quantile == "max" else 1 - int(quantile[1:]) / 100)


def latency(kind: str, quantile: str) -> Pick:
    """`kind` as in the load's result (ttft_ms, itl_ms, ...), `quantile` p50, p90, p99 or max."""
    return lambda sample: _number(sample["load"][kind].get(quantile))


def tokens_per_event(key: str) -> Pick:
    """`mean` or `max`."""
    return lambda sample: _number(sample["load"]["tokens_per_event"][key])


def connect_failures(sample: Sample) -> float | None:
    """Connections that could not be made."""
    return _number(sample["load"]["connect_failures"])


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
