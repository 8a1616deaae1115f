"""Which recorded graphs engines' steps have used (--cudagraph-metrics)."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

COLUMNS = ("Unpadded Tokens", "Padded Tokens", "Num Paddings", "Runtime Mode", "Count")  # vLLM's


class Use(NamedTuple):
    """What a step had to compute, and the graph it took."""

    tokens: int
    padded: int
    paddings: int
    mode: str


class GraphUses:
    """Counts steps. Lanes add, whoever writes the log takes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._uses: Counter[Use] = Counter()

    def add(self, stats: object) -> None:
        """One step's `cudagraph_stats`; what is something else is passed over."""
        if not isinstance(stats, dict):
            return
        tokens, padded, paddings = (stats.get(key) for key in ("num_unpadded_tokens", "num_padded_tokens", "num_paddings"))
        if isinstance(tokens, int) and isinstance(padded, int) and isinstance(paddings, int):
            with self._lock:
                self._uses[Use(tokens, padded, paddings, str(stats.get("runtime_mode"))[:64])] += 1

    def take(self) -> str | None:
        """A table of the steps since the last call, the most frequent kinds first; None if there were none."""
        with self._lock:
            uses, self._uses = self._uses, Counter()
        return table([*map(str, use), str(count)] for use, count in uses.most_common()) if uses else None


def table(rows: Iterable[list[str]]) -> str:
    """A title, and lines with columns of equal width."""
    lines = [list(COLUMNS), *rows]
    widths = [max(len(line[k]) for line in lines) for k in range(len(COLUMNS))]
    shown = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines]
    shown.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(["Recorded graphs:", *shown])
