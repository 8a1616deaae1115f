"""A record as Markdown."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bench.record import Record
from bench.report.figures import (
    Figures,
    Pick,
    connect_failures,
    cores,
    cpu_per_request,
    cpu_per_token,
    engine_cores,
    failed,
    first_token,
    is_bound,
    latency,
    requests_per_s,
    tokens_per_event,
    tokens_per_s,
)
from bench.report.targets import TARGETS
from bench.scenarios.points import SCENARIOS

_VERDICTS = {True: "holds", False: "**does not hold**", None: "not measured"}
_NOISY_CORES = 0.2


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def shown(value: float | None, digits: int = 1) -> str:
    """A figure, or a dash where there is none."""
    return "-" if value is None else f"{value:,.{digits}f}"


def targets_table(figures: Figures) -> str:
    """Every target with its figure and verdict."""
    rows = []
    for target in TARGETS:
        value = target.value(figures)
        sign = ">=" if target.at_least else "<="
        measured = "-" if value is None else "too late" if math.isinf(value) else f"{value:,.{target.digits}f}{target.unit}"
        bound = f"{sign} {target.bound:g}{target.unit}"
        rows.append([target.figure, target.against, bound, measured, _VERDICTS[target.verdict(figures)]])
    return table(["figure", "against", "target", "measured", ""], rows)


def origin(record: Record) -> str:
    """Where a record comes from, in one paragraph."""
    machine = record["machine"]
    state = ", with changes" if record["changed"] else ""
    others = Figures(record).others_cores()
    where = f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gb']} GB, {machine['system']}"
    text = (
        f"{record['started'][:10]}, {where}, commit {(record['commit'] or 'unknown')[:12]}{state};"
        f" `{' '.join(record['command'])}`, {record['seconds'] / 60:.0f} minutes, medians of {record['repeats']}."
        " The load generator, the engine and the frontend share the cores."
    )
    if others is not None and others > _NOISY_CORES:
        text += f" **The machine was not quiet: {others:.1f} of its cores were busy with something else.**"
    return text


def _versus(figures: Figures, peer: str, scenario: str, point: str, pick: Pick) -> str:
    own, floor = (figures.median(name, scenario, point, pick) for name in (peer, "floor"))
    return "-" if own is None or not floor else f"{own / floor:.2f}"


def _first_tokens(figures: Figures, peer: str, scenario: str, point: str) -> list[str]:
    """Time to first token, p50 and p99; `>` where it is a lower bound in most repeats."""
    found = []
    samples = figures.samples(peer, scenario, point)
    for quantile in ("p50", "p99"):
        bound = sum(is_bound(sample, quantile) for sample in samples) * 2 > len(samples)
        value = figures.median(peer, scenario, point, first_token(quantile))
        found.append(("> " if bound else "") + shown(value))
    return found


def streams_table(figures: Figures, scenario: str) -> str:
    """Points of token streams, all frontends."""
    head = ["load", "frontend", "CPU us/token", "x floor", "cores", "tokens/s", "TTFT p50 ms", "p99", "gap p99 ms", "failed"]
    rows = []
    for point in figures.points(scenario):
        for peer in figures.peers:
            if figures.samples(peer, scenario, point):
                where = (peer, scenario, point)
                cells = [
                    shown(figures.median(*where, cpu_per_token)),
                    _versus(figures, *where, cpu_per_token),
                    shown(figures.median(*where, cores), 2),
                    shown(figures.median(*where, tokens_per_s), 0),
                    *_first_tokens(figures, *where),
                    shown(figures.median(*where, latency("itl_ms", "p99"))),
                    shown(figures.median(*where, failed), 0),
                ]
                rows.append([point, figures.titles[peer], *cells])
    return table(head, rows)


def requests_table(figures: Figures) -> str:
    """Points of short requests, all frontends."""
    head = ["load", "frontend", "CPU us/request", "x floor", "cores", "requests/s", "TTFT p50 ms", "p99", "failed"]
    rows = []
    for point in figures.points("requests"):
        for peer in figures.peers:
            if figures.samples(peer, "requests", point):
                where = (peer, "requests", point)
                cells = [
                    shown(figures.median(*where, cpu_per_request), 0),
                    _versus(figures, *where, cpu_per_request),
                    shown(figures.median(*where, cores), 2),
                    shown(figures.median(*where, requests_per_s), 0),
                    *_first_tokens(figures, *where),
                    shown(figures.median(*where, failed), 0),
                ]
                rows.append([point, figures.titles[peer], *cells])
    return table(head, rows)


def clumps_table(figures: Figures) -> str:
    """How many tokens an event carries, by the ids in it."""
    scenario, point = "decode", "2048 streams, token ids"
    head = ["frontend", "tokens per event, mean", "max", "failed connects", "tokens/s"]
    rows = [
        [
            figures.titles[peer],
            shown(figures.median(peer, scenario, point, tokens_per_event("mean")), 2),
            shown(figures.median(peer, scenario, point, tokens_per_event("max")), 0),
            shown(figures.median(peer, scenario, point, connect_failures), 0),
            shown(figures.median(peer, scenario, point, tokens_per_s), 0),
        ]
        for peer in figures.peers
        if figures.samples(peer, scenario, point)
    ]
    return table(head, rows)


def ceiling_table(figures: Figures) -> str:
    """The last rung of the ramp on which each frontend kept up."""
    rows = []
    for peer in figures.peers:
        if not any((s["peer"], s["scenario"]) == (peer, "saturation") for s in figures.record["samples"]):
            continue
        best = figures.ceiling(peer)
        if best is None:
            rows.append([figures.titles[peer], "below the first rung", "-", "-", "-"])
        else:
            ttft = best["load"]["ttft_ms"]["p99"]
            figure = [shown(tokens_per_s(best), 0), shown(ttft, 0), shown(cores(best), 2)]
            rows.append([figures.titles[peer], str(best["streams"]), *figure])
    return table(["frontend", "streams", "tokens/s", "TTFT p99 ms", "cores"], rows)


def starts_table(figures: Figures) -> str:
    """Start-up and memory."""
    head = ["frontend", "ready s", "processes", "RSS MB when ready", "PSS MB", "RSS MB after all load"]
    rows = []
    for peer in figures.peers:
        sizes = [figures.start(peer, key) for key in ("rss_bytes", "pss_bytes", "end_rss_bytes")]
        cells = [shown(None if size is None else size / 1e6, 0) for size in sizes]
        rows.append(
            [figures.titles[peer], shown(figures.start(peer, "ready_s"), 2), shown(figures.start(peer, "processes"), 0), *cells]
        )
    return table(head, rows)


def versions_table(record: Record) -> str:
    """Versions of everything that took part."""
    rows = [[facts["title"], str(facts["version"])] for facts in record["peers"].values()]
    for name, found in record["versions"].items():
        rows.append([f"{name}'s environment", ", ".join(f"{package} {version}" for package, version in found.items())])
    return table(["", "version"], rows)


def engine_load(figures: Figures) -> str:
    """What the mock engine costs, to be seen not to be the bottleneck."""
    found = [
        f"{point}: {shown(value, 2)}"
        for point in figures.points("decode")
        if (value := figures.median("fastfront", "decode", point, engine_cores)) is not None
    ]
    return f"Cores of the mock engine behind fastfront: {'; '.join(found)}." if found else ""


def whole(record: Record) -> str:
    """The report of a record, plots included by their file names."""
    figures = Figures(record)
    parts = ["# Benchmark record", origin(record), "## Targets", targets_table(figures)]
    if record["failures"]:
        parts += [
            "## What failed",
            "\n".join(f"- {f['peer']}, repeat {f['repeat']}: {_line(f['error'])}" for f in record["failures"]),
        ]
    parts += ["![CPU per token](cpu_per_token.png)", "![Tokens per second](throughput.png)", "![Time to first token](ttft.png)"]
    parts.append("![Requests](requests.png)")
    for scenario, title in SCENARIOS.items():
        if not figures.points(scenario):
            continue
        parts.append(f"## {title[0].upper()}{title[1:]}")
        if scenario == "requests":
            parts.append(requests_table(figures))
        else:
            parts.append(streams_table(figures, scenario))
        if scenario == "decode":
            parts += [engine_load(figures), "Tokens per event, told by the token ids in it:", clumps_table(figures)]
        if scenario == "saturation":
            parts += ["The last step at which first tokens came within a second (p99):", ceiling_table(figures)]
    parts += ["## Start-up and memory", starts_table(figures), "## Versions", versions_table(record)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _line(text: str) -> str:
    return text.strip().splitlines()[0][:200] if text.strip() else ""


def summary(record: Record, folder: str) -> str:
    """The README's block: targets, plots by their place in the repository, where the rest is."""
    return "\n\n".join(
        [
            origin(record),
            targets_table(Figures(record)),
            f"![CPU per token against streams]({folder}/cpu_per_token.png)",
            f"![Requests per second]({folder}/requests.png)",
            f"All tables, throughput and latency: [{folder}]({folder}/README.md).",
        ]
    )
