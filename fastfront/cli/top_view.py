"""One frame of `fastfront top`: from two pages of metrics to lines of text."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from fastfront.metrics.scrape import Bucket, Span

BAR_WIDTH = 10
WARN, BAD = 0.7, 0.9  # shares from which on a bar is yellow, and red
BOLD, DIM, GREEN, YELLOW, RED, RESET = "\x1b[1m", "\x1b[2m", "\x1b[32m", "\x1b[33m", "\x1b[31m", "\x1b[0m"
MS = 1e3


class Column(NamedTuple):
    """A column of a table: its title, its width, and a row's text for a lane's or engine's name."""

    title: str
    width: int
    text: Callable[[str], str]


class View:
    """Draws frames. `color`: with ANSI colors."""

    def __init__(self, url: str, color: bool) -> None:
        self._url = url
        self._color = color

    def frame(self, span: Span, clock: str) -> list[str]:
        """The lines of a frame; `clock` is the time of day."""
        now = span.now
        models = ", ".join(now.values("vllm:num_requests_running", "model_name")) or "?"
        return [
            f"{self._paint(BOLD, 'fastfront top')}  {self._url}  {models}  {self._paint(DIM, clock)}",
            "",
            self._line(("streams", number(now.total("fastfront:live_streams") or now.total("vllm:num_requests_running"))),
                       ("waiting", number(now.total("vllm:num_requests_waiting"))),
                       ("tokens/s", number(span.rate("vllm:generation_tokens_total"))),
                       ("prompt tokens/s", number(span.rate("vllm:prompt_tokens_total"))),
                       ("requests/s", number(span.rate("vllm:request_success_total")))),
            self._times(span),
            *self._drafts(span),
            self._line(("CPU", percent(span.rate("process_cpu_seconds_total"))),
                       ("RSS", f"{now.total('process_resident_memory_bytes') / 2**20:,.0f} MB"),
                       ("descriptors", number(now.total("process_open_fds"))),
                       ("4xx/s", number(span.rate("http_requests_total", status="4xx"))),
                       ("5xx/s", number(span.rate("http_requests_total", status="5xx"))),
                       ("aborted/s", number(span.rate("vllm:request_success_total", finished_reason="abort"))),
                       ("GC pause", f"{now.total('fastfront:gc_longest_pause_seconds') * MS:.1f} ms at most")),
            *self._table("lane", now.values("fastfront:live_streams", "lane"), self._lane_columns(span)),
            *self._table("engine", now.values("vllm:num_requests_running", "engine"), self._engine_columns(span)),
            *self._queues(span),
        ]  # fmt: skip

    def _times(self, span: Span) -> str:
        pairs = []
        for title, name in (
            ("first token", "vllm:time_to_first_token_seconds"),
            ("between", "vllm:inter_token_latency_seconds"),
            ("intake", "fastfront:request_intake_seconds"),
            ("lag", "fastfront:output_lag_seconds"),
        ):
            half, most = span.bucket(0.5, name), span.bucket(0.99, name)
            pairs.append((title, f"{milliseconds(half)} p50 {milliseconds(most)} p99"))
        return self._line(*pairs)

    def _drafts(self, span: Span) -> list[str]:
        """Speculative decoding, if there is some."""
        drafts = span.grown("vllm:spec_decode_num_drafts_total")
        drafted = span.grown("vllm:spec_decode_num_draft_tokens_total")
        if not drafts or not drafted:
            return []
        accepted = span.grown("vllm:spec_decode_num_accepted_tokens_total")
        return [self._line(("drafts/s", number(drafts / span.seconds)), ("accepted", percent(accepted / drafted)),
                           ("tokens per draft", f"{1 + accepted / drafts:.2f}"))]  # fmt: skip

    def _lane_columns(self, span: Span) -> list[Column]:
        now = span.now
        return [
            Column("streams", 9, lambda lane: number(now.total("fastfront:live_streams", lane=lane))),
            Column("busy", BAR_WIDTH + 7, lambda lane: self._bar(span.rate("fastfront:lane_busy_seconds_total", lane=lane))),
            Column("writes/s", 11, lambda lane: number(span.rate("fastfront:stream_writes_total", lane=lane))),
            Column("queue", 8, lambda lane: number(now.total("fastfront:lane_queue", lane=lane))),
            Column("wait p99", 11, lambda lane: milliseconds(span.bucket(0.99, "fastfront:lane_wait_seconds", lane=lane))),
            Column("lag p99", 11, lambda lane: milliseconds(span.bucket(0.99, "fastfront:output_lag_seconds", lane=lane))),
            Column("overrun/s", 11, lambda lane: number(span.rate("fastfront:overrun_tokens_total", lane=lane))),
        ]

    def _engine_columns(self, span: Span) -> list[Column]:
        now = span.now
        return [
            Column("running", 9, lambda engine: number(now.total("vllm:num_requests_running", engine=engine))),
            Column("waiting", 9, lambda engine: number(now.total("vllm:num_requests_waiting", engine=engine))),
            Column("KV cache", BAR_WIDTH + 7, lambda engine: self._bar(now.total("vllm:kv_cache_usage_perc", engine=engine))),
            Column("tokens/s", 11, lambda engine: number(span.rate("vllm:generation_tokens_total", engine=engine))),
            Column("cached", 8, lambda engine: cached(span, engine)),
            Column("preempted/s", 13, lambda engine: number(span.rate("vllm:num_preemptions_total", engine=engine))),
            Column("state", 7, lambda engine: self._state(span, engine)),
        ]

    def _state(self, span: Span, engine: str) -> str:
        if not span.now.has("fastfront:engine_up"):
            return "?".rjust(7)
        up = span.now.total("fastfront:engine_up", engine=engine) > 0
        return self._paint(GREEN if up else RED, ("up" if up else "lost").rjust(7))

    def _table(self, kind: str, names: Sequence[str], columns: Sequence[Column]) -> list[str]:
        if not names:
            return []
        head = kind.rjust(7) + "".join(column.title.rjust(column.width) for column in columns)
        rows = [name.rjust(7) + "".join(column.text(name).rjust(column.width) for column in columns) for name in names]
        return ["", self._paint(BOLD, head), *rows]

    def _queues(self, span: Span) -> list[str]:
        names = span.now.values("fastfront:queue", "queue")
        found = [(name, number(span.now.total("fastfront:queue", queue=name))) for name in names]
        return ["", f"{self._paint(BOLD, 'queues')}  {self._line(*found)}"] if found else []

    def _line(self, *pairs: tuple[str, str]) -> str:
        return "   ".join(f"{self._paint(DIM, title)} {value}" for title, value in pairs)

    def _bar(self, share: float) -> str:
        """A bar and the share in percent, as wide as its column."""
        full = round(max(0.0, min(1.0, share)) * BAR_WIDTH)
        bar = "█" * full + "░" * (BAR_WIDTH - full)
        color = RED if share >= BAD else YELLOW if share >= WARN else GREEN
        return f"  {self._paint(color, bar)}{percent(share).rjust(5)}"

    def _paint(self, code: str, text: str) -> str:
        return f"{code}{text}{RESET}" if self._color else text


def cached(span: Span, engine: str) -> str:
    """Share of looked-up prompt tokens that the prefix cache had."""
    queries = span.grown("vllm:prefix_cache_queries_total", engine=engine)
    return percent(span.grown("vllm:prefix_cache_hits_total", engine=engine) / queries) if queries else "-"


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:,.1f}"


def percent(share: float) -> str:
    return f"{share:.0%}"


def milliseconds(found: Bucket | None) -> str:
    """Where a histogram's lowest bucket is all that is known, its bound: it may be far from the middle."""
    if found is None:
        return "-"
    sign = "< " if found.low == 0.0 else "> " if math.isinf(found.high) else ""
    seconds = found.high if found.low == 0.0 else found.value
    return f"{sign}{seconds * MS:.2f} ms" if seconds < 0.01 else f"{sign}{seconds * MS:,.0f} ms"
