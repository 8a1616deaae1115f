"""What a /metrics page said, and what happened between two of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Scrape:
    """One page: samples by name. `at_s` is when it was read, by a clock that only runs forward."""

    at_s: float
    samples: Mapping[str, list[tuple[Labels, float]]] = field(default_factory=dict)

    def has(self, name: str) -> bool:
        return name in self.samples

    def total(self, name: str, **labels: str) -> float:
        """The sum of the samples that have these labels; 0 if there are none."""
        return sum(value for own, value in self.samples.get(name, ()) if labels.items() <= own.items())

    def values(self, name: str, label: str) -> list[str]:
        """All values of a label, in order; numbers by size."""
        found = {own[label] for own, _ in self.samples.get(name, ()) if label in own}
        return sorted(found, key=lambda value: (not value.isdigit(), int(value) if value.isdigit() else 0, value))

    def buckets(self, name: str, **labels: str) -> list[tuple[float, float]]:
        """(upper bound, observations up to it) of a histogram, added up over what has these labels."""
        found: dict[float, float] = {}
        for own, value in self.samples.get(f"{name}_bucket", ()):
            if labels.items() <= own.items():
                bound = float(own["le"])
                found[bound] = found.get(bound, 0.0) + value
        return sorted(found.items())


def parse(text: str, at_s: float) -> Scrape:
    """Reads a page. Raises ValueError for one that is none."""
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415 - slow to import, for `top` alone

    samples: dict[str, list[tuple[Labels, float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            samples.setdefault(sample.name, []).append((sample.labels, sample.value))
    return Scrape(at_s, samples)


@dataclass(frozen=True, slots=True)
class Bucket:
    """Bounds of a histogram's bucket, and how far in it (0 to 1) something is taken to be."""

    low: float
    high: float
    share: float

    @property
    def value(self) -> float:
        """Linear in between; `low` where there is no upper bound."""
        return self.low if math.isinf(self.high) else self.low + (self.high - self.low) * self.share


@dataclass(frozen=True, slots=True)
class Span:
    """Two pages of the same server, one after the other."""

    before: Scrape
    now: Scrape

    @property
    def seconds(self) -> float:
        return max(1e-9, self.now.at_s - self.before.at_s)

    def grown(self, name: str, **labels: str) -> float:
        """By how much a counter has grown; from 0 if it is less than before (the server was started anew)."""
        now, before = self.now.total(name, **labels), self.before.total(name, **labels)
        return now - before if now >= before else now

    def rate(self, name: str, **labels: str) -> float:
        """The same per second."""
        return self.grown(name, **labels) / self.seconds

    def bucket(self, share: float, name: str, **labels: str) -> Bucket | None:
        """The bucket that a quantile of what a histogram has observed in between falls into; None without observations."""
        before = dict(self.before.buckets(name, **labels))
        grown = [(bound, count - before.get(bound, 0.0)) for bound, count in self.now.buckets(name, **labels)]
        if not grown or grown[-1][1] <= 0 or any(count < 0 for _, count in grown):
            return None
        rank = share * grown[-1][1]
        low, below = 0.0, 0.0
        for bound, count in grown:
            if count >= rank and count > below:
                return Bucket(low, bound, (rank - below) / (count - below))
            low, below = bound, count
        return Bucket(low, math.inf, 0.0)
