"""From native counts to Prometheus families."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, SummaryMetricFamily
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

Counts = tuple[list[float], list[int], float]
"""Upper bounds, counts per bucket with one more above all bounds, sum."""


def buckets(counts: Counts, most: float = float("inf")) -> list[tuple[str, float]]:
    """Cumulative buckets as `add_metric` takes them. Bounds above `most` are left out."""
    bounds, numbers, _ = counts
    below = list(accumulate(numbers))
    shown = [(bound, count) for bound, count in zip(bounds, below, strict=False) if bound <= most]
    named = [(str(floatToGoString(bound)), float(count)) for bound, count in shown]  # type: ignore[no-untyped-call]
    return [*named, ("+Inf", float(below[-1]))]


def add_counter(family: CounterMetricFamily, labels: Sequence[str], value: float, created: float) -> None:
    """`created` is when counting began, in unix seconds: the `_created` series that clients of prometheus_client expect."""
    family.add_metric(labels, value, created)


def add_summary(family: SummaryMetricFamily, labels: Sequence[str], count: int, total: float, created: float) -> None:
    """`created` as above."""
    family.add_metric(labels, count, total)
    _add_created(family, labels, created)


def _add_created(family: HistogramMetricFamily | SummaryMetricFamily, labels: Sequence[str], created: float) -> None:
    names = dict(zip(family._labelnames, labels, strict=True))
    family.samples.append(Sample(f"{family.name}_created", names, created))


def add_histogram(
    family: HistogramMetricFamily, labels: Sequence[str], counts: Counts, created: float, most: float = float("inf")
) -> None:
    family.add_metric(labels, buckets(counts, most), counts[2])
    _add_created(family, labels, created)
