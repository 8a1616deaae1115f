"""Reading /metrics."""

from __future__ import annotations

import re

from tests.support.server import Server

_LINE = re.compile(r"(?P<name>[\w:]+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")


def metric(server: Server, name: str, **labels: str) -> float:
    """The sum of a metric's samples that have these labels."""
    total, found = 0.0, False
    for line in server.get("/metrics").text.splitlines():
        match = _LINE.fullmatch(line)
        if match is None or match["name"] != name:
            continue
        has = dict(re.findall(r'(\w+)="([^"]*)"', match["labels"] or ""))
        if labels.items() <= has.items():
            total += float(match["value"])
            found = True
    assert found, f"no {name} {labels}"
    return total


def finished(server: Server) -> dict[str, float]:
    """Finished requests by reason."""
    reasons = ("stop", "length", "abort", "error", "repetition")
    return {reason: metric(server, "vllm:request_success_total", finished_reason=reason) for reason in reasons}


def gauges(server: Server) -> tuple[float, float, float]:
    """Running, waiting, share of the KV cache in use."""
    running = metric(server, "vllm:num_requests_running")
    return running, metric(server, "vllm:num_requests_waiting"), metric(server, "vllm:kv_cache_usage_perc")
