"""The few figures that the README begins with."""

from __future__ import annotations

from bench.report.figures import Figures, Pick, cpu_per_request, cpu_per_token, first_token, requests_per_s
from bench.report.markdown import shown, table

_FRONTENDS = ("fastfront", "vllm-rust", "vllm-python-1", "vllm-python-2")
_STREAMS = ("decode", "1024 streams")
_REQUESTS = ("requests", "1 out, prompt 30")


def headline(figures: Figures) -> str:
    """fastfront beside vLLM's frontends: medians of one record, a dash where nothing was measured."""
    peers = [peer for peer in _FRONTENDS if peer in figures.peers]

    def loaded(title: str, where: tuple[str, str], pick: Pick, digits: int = 0) -> list[str]:
        return [title, *(shown(figures.median(peer, *where, pick), digits) for peer in peers)]

    sizes = [figures.start(peer, "rss_bytes") for peer in peers]
    rows = [
        loaded("CPU per token, 1,024 streams, us", _STREAMS, cpu_per_token, 1),
        loaded("time to first token there, p50, ms", _STREAMS, first_token("p50")),
        loaded("CPU per request, 30-token chat, one token out, us", _REQUESTS, cpu_per_request),
        loaded("such requests per second", _REQUESTS, requests_per_s),
        ["ready after, s", *(shown(figures.start(peer, "ready_s"), 1) for peer in peers)],
        ["memory when ready, MB", *(shown(None if size is None else size / 1e6, 0) for size in sizes)],
    ]
    where = f"{figures.record['machine']['cores']} cores, shared with the load generator and a mock engine"
    return table([where, *(figures.titles[peer] for peer in peers)], rows)
