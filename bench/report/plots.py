"""Plots of a record: throughput, time to first token and CPU per token against streams, one line per frontend."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from bench.report.figures import Figures, Pick, cpu_per_request, cpu_per_token, first_token, requests_per_s, tokens_per_s

_STREAMS = (64, 256, 1024, 2048)
_STYLES = {
    "floor": ("#7f7f7f", ":", "s"),
    "fastfront": ("#d62728", "-", "o"),
    "fastfront-gil": ("#ff9896", "--", "o"),
    "fastfront-flags": ("#ff7f0e", "-", "o"),
    "fastfront-other": ("#8c564b", "-", "o"),
    "vllm-rust": ("#1f77b4", "-", "^"),
    "vllm-python-1": ("#2ca02c", "-", "v"),
    "vllm-python-2": ("#98df8a", "--", "v"),
    "classic-2": ("#9467bd", "-.", "D"),
}
_OTHER = ("#000000", "-", "x")
_THOUSANDS = FuncFormatter(lambda value, _: f"{value:,g}")


def plot(figures: Figures, folder: Path) -> list[Path]:
    """Write the PNG files; their paths."""
    paths = [
        _one(figures, folder / "cpu_per_token.png", "CPU of the frontend per token, us", cpu_per_token, log=True),
        _one(figures, folder / "throughput.png", "tokens/s", tokens_per_s, ideal=True),
        _one(figures, folder / "ttft.png", "time to first token, ms (line: p50, faint: p99)", first_token("p50"), log=True,
             faint=first_token("p99")),
        _bars(figures, folder / "requests.png"),
    ]  # fmt: skip
    return paths


def _one(
    figures: Figures, path: Path, label: str, pick: Pick, *, log: bool = False, ideal: bool = False, faint: Pick | None = None
) -> Path:
    drawing = Figure(figsize=(10, 4.5), layout="constrained")
    axes = drawing.add_subplot()
    drawn = [_line(axes, figures, peer, pick, figures.titles[peer], 1.0) for peer in figures.peers]
    if faint is not None:
        for peer in figures.peers:
            _line(axes, figures, peer, faint, None, 0.3)
    if ideal:
        axes.plot(
            _STREAMS, [streams * 100 for streams in _STREAMS], color="#cccccc", linewidth=1, label="every token, 10 ms steps"
        )
    axes.set_xscale("log", base=2)
    axes.set_xticks(_STREAMS, [str(streams) for streams in _STREAMS])
    if log:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(_THOUSANDS)
    axes.set_xlabel("streams")
    axes.set_ylabel(label)
    axes.grid(alpha=0.3)
    if any(drawn) or ideal:
        drawing.legend(fontsize=8, loc="outside right upper")
    axes.set_title(_title(figures), fontsize=9)
    return _written(drawing, path)


def _bars(figures: Figures, path: Path) -> Path:
    """Short requests: how many per second with all cores at work, and what one costs the frontend."""
    drawing = Figure(figsize=(8, 4.5), layout="constrained")
    point = "1 out, prompt 30"
    sides: tuple[tuple[str, Pick], ...] = (("requests/s", requests_per_s), ("CPU per request, us", cpu_per_request))
    for axes, (label, pick) in zip(drawing.subplots(1, 2, sharey=True), sides, strict=True):
        found = [(peer, figures.median(peer, "requests", point, pick)) for peer in reversed(figures.peers)]
        drawn = [(peer, value) for peer, value in found if value is not None and peer != "floor"]
        colors = [_STYLES.get(peer, _OTHER)[0] for peer, _ in drawn]
        bars = axes.barh([figures.titles[peer] for peer, _ in drawn], [value for _, value in drawn], color=colors)
        axes.bar_label(bars, fmt="{:,.0f}", fontsize=8, padding=2)
        axes.margins(x=0.2)
        axes.set_xlabel(label)
        axes.xaxis.set_major_formatter(_THOUSANDS)
        axes.grid(alpha=0.3, axis="x")
    drawing.suptitle(f"{_title(figures)}: 1 token out, prompts of 30 words, 64 connections", fontsize=9)
    return _written(drawing, path)


def _written(drawing: Figure, path: Path) -> Path:
    # No time and no version in the file: the same record gives the same bytes.
    drawing.savefig(path, dpi=110, metadata={"Software": None})
    return path


def _title(figures: Figures) -> str:
    record = figures.record
    return f"{record['machine']['processor']}, {record['machine']['cores']} cores, {record['started'][:10]}"


def _line(axes: Axes, figures: Figures, peer: str, pick: Pick, title: str | None, alpha: float) -> bool:
    """One frontend's line; whether there was anything to draw."""
    found = [(streams, figures.median(peer, "decode", f"{streams} streams", pick)) for streams in _STREAMS]
    points = [(streams, value) for streams, value in found if value is not None]
    if not points:
        return False
    color, style, marker = _STYLES.get(peer, _OTHER)
    axes.plot(*zip(*points, strict=True), color=color, linestyle=style, marker=marker, markersize=4, label=title, alpha=alpha)
    return True
