"""A record as Markdown."""

from __future__ import annotations

import math
from collections.abc import Callable

from bench.record import Record
from bench.report.costs import clients_table, lanes_line, options_table, pauses_line, shares_table, threads_table
from bench.report.figures import (
    Figures,
    Pick,
    connect_failures,
    cores,
    cpu_per_request,
    cpu_per_token,
    first_token,
    is_bound,
    latency,
    median,
    requests_per_s,
    tokens_per_event,
    tokens_per_s,
)
from bench.report.markdown import shown, table
from bench.report.targets import TARGETS
from bench.scenarios.points import SCENARIOS

_VERDICTS = {True: "holds", False: "**does not hold**", None: "not measured"}
_NOISY_CORES = 0.2


def targets_table(figures: Figures) -> str:
    """Every target with its figure, the range of what its repeats say, and the verdict."""
    rows = []
    for target in TARGETS:
        value, values = target.value(figures), target.values(figures)
        sign = ">=" if target.at_least else "<="
        bound = f"{sign} {target.bound:g}{target.unit}"
        measured = "-" if value is None else f"{_figure(value, target.digits)}{target.unit if math.isfinite(value) else ''}"
        spread = f"{_figure(min(values), target.digits)} to {_figure(max(values), target.digits)}" if len(values) > 1 else ""
        repeats = str(len(values)) if values else ""
        rows.append([target.figure, target.against, bound, measured, spread, repeats, _VERDICTS[target.verdict(figures)]])
    return table(["figure", "against", "target", "measured", "range", "of", ""], rows)


def _figure(value: float, digits: int) -> str:
    return "too late" if math.isinf(value) else f"{value:,.{digits}f}"


def origin(record: Record) -> str:
    """Where a record comes from, in one paragraph."""
    machine = record["machine"]
    state = ", with changes" if record["changed"] else ""
    others = Figures(record).others_cores()
    where = f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gb']} GB, {machine['system']}"
    text = (
        f"{record['started'][:10]}, {where}, commit {(record['commit'] or 'unknown')[:12]}{state};"
        f" `{' '.join(record['command'])}`, {record['seconds'] / 60:.0f} minutes, medians of {record['repeats']}."
        " The load generator, the engine and the frontend share the cores"
    )
    if few := sorted({sample["streams"] for sample in record["samples"] if sample.get("apart")}):
        text += f", but where few streams are decoded ({', '.join(map(str, few))}) the load generator has one to itself"
    text += "."
    if record.get("taken_up"):
        text += f" The run was interrupted and taken up again ({len(record['taken_up'])} times)."
    if others is not None and others > _NOISY_CORES:
        text += f" **The machine was not quiet: {others:.1f} of its cores were busy with something else.**"
    return text


def limits(figures: Figures) -> str:
    """What a record does not show."""
    record = figures.record
    missing = sum(target.value(figures) is None for target in TARGETS)
    out = [f"{name} ({reason})" for name, reason in record.get("left_out", {}).items()]
    lines = [
        "Tokens come from a mock engine, over loopback on the same machine: neither a model nor a network is in these figures.",
        f"Frontends left out: {', '.join(out)}." if out else "",
        f"Of {len(TARGETS)} targets {missing} {_are(missing)} not measured." if missing else "",
        f"What failed ({len(record['failures'])}) is in the record." if record["failures"] else "",
    ]
    return " ".join(line for line in lines if line)


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _versus(figures: Figures, peer: str, scenario: str, point: str, pick: Pick) -> str:
    """The median of what a figure is of the floor's within a repeat."""
    return shown(median(figures.ratios(peer, "floor", scenario, point, pick)), 2)


def _first_tokens(figures: Figures, peer: str, scenario: str, point: str) -> list[str]:
    """Time to first token, p50 to max; `>` where it is a lower bound in most repeats."""
    found = []
    samples = figures.samples(peer, scenario, point)
    for quantile in ("p50", "p90", "p99", "max"):
        bound = sum(is_bound(sample, quantile) for sample in samples) * 2 > len(samples)
        value = figures.median(peer, scenario, point, first_token(quantile))
        found.append(("> " if bound else "") + shown(value))
    return found


def _failed(figures: Figures, peer: str, scenario: str, point: str) -> str:
    """Failed requests of all repeats, by kind."""
    kinds = figures.failures(peer, scenario, point)
    total = sum(sample["load"]["requests"]["failed"] for sample in figures.samples(peer, scenario, point))
    return f"{total} ({', '.join(f'{kind} {count}' for kind, count in kinds.items())})" if total else "0"


def _rows(figures: Figures, scenario: str, cells: Callable[[str, str, str], list[str]]) -> list[list[str]]:
    """A row for each point and frontend: their names, then `cells(peer, scenario, point)`."""
    return [
        [point, figures.titles[peer], *cells(peer, scenario, point)]
        for point in figures.points(scenario)
        for peer in figures.peers
        if figures.samples(peer, scenario, point)
    ]


def streams_table(figures: Figures, scenario: str) -> str:
    """Points of token streams, all frontends."""

    def cells(*where: str) -> list[str]:
        peer, scenario, point = where
        return [
            shown(figures.median(peer, scenario, point, cpu_per_token)),
            _versus(figures, peer, scenario, point, cpu_per_token),
            shown(figures.median(peer, scenario, point, cores), 2),
            shown(figures.median(peer, scenario, point, tokens_per_s), 0),
            _failed(figures, peer, scenario, point),
        ]

    return table(["load", "frontend", "CPU us/token", "x floor", "cores", "tokens/s", "failed"], _rows(figures, scenario, cells))


def requests_table(figures: Figures) -> str:
    """Points of short requests, all frontends."""

    def cells(*where: str) -> list[str]:
        peer, scenario, point = where
        return [
            shown(figures.median(peer, scenario, point, cpu_per_request), 0),
            _versus(figures, peer, scenario, point, cpu_per_request),
            shown(figures.median(peer, scenario, point, cores), 2),
            shown(figures.median(peer, scenario, point, requests_per_s), 0),
            _failed(figures, peer, scenario, point),
        ]

    head = ["load", "frontend", "CPU us/request", "x floor", "cores", "requests/s", "failed"]
    return table(head, _rows(figures, "requests", cells))


def latency_table(figures: Figures, scenario: str) -> str:
    """What clients waited for, all frontends: first tokens, gaps between tokens, whole answers."""

    def cells(*where: str) -> list[str]:
        peer, scenario, point = where
        gaps = [shown(figures.median(peer, scenario, point, latency("itl_ms", key))) for key in ("p50", "p99", "max")]
        whole = [shown(figures.median(peer, scenario, point, latency("e2e_ms", key))) for key in ("p50", "p99")]
        return [*_first_tokens(figures, peer, scenario, point), *gaps, *whole]

    head = ["load", "frontend", "TTFT p50 ms", "p90", "p99", "max", "gap p50 ms", "p99", "max", "answer p50 ms", "p99"]
    return table(head, _rows(figures, scenario, cells))


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
    """The most streams with which each frontend kept up, and how it fares with more."""
    rows = []
    for peer in figures.peers:
        if peer not in figures.record.get("climbed", ()):
            continue
        best, first = figures.ceiling(peer)
        figure = ["-", "-", "-"]
        if best is not None:
            figure = [shown(tokens_per_s(best), 0), shown(best["load"]["ttft_ms"]["p99"], 0), shown(cores(best), 2)]
        over = "none of the ramp" if first is None else f"{first['streams']}: {shown(first_token('p99')(first), 0)} ms"
        rows.append([figures.titles[peer], "-" if best is None else str(best["streams"]), *figure, over])
    return table(["frontend", "streams", "tokens/s", "TTFT p99 ms", "cores", "too many (TTFT p99)"], rows)


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


def whole(record: Record) -> str:
    """The report of a record, plots included by their file names."""
    figures = Figures(record)
    parts = ["# Benchmark record", origin(record), limits(figures), "## Targets", targets_table(figures)]
    if record["failures"]:
        parts += [
            "## What failed",
            "\n".join(f"- {f['peer']}, repeat {f['repeat']}: {_line(f['error'])}" for f in record["failures"]),
        ]
    parts += ["![CPU per token](cpu_per_token.png)", "![Tokens per second](throughput.png)", "![Time to first token](ttft.png)"]
    parts.append("![Requests](requests.png)")
    for scenario, title in SCENARIOS.items():
        if figures.points(scenario):
            parts += [f"## {title[0].upper()}{title[1:]}", *_section(figures, scenario)]
    parts += ["## Who used the machine", shares_table(figures), "## Threads of fastfront", threads_table(figures)]
    parts += [lanes_line(figures), "## Start-up and memory", starts_table(figures), pauses_line(figures)]
    parts += ["## Versions", versions_table(record)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _section(figures: Figures, scenario: str) -> list[str]:
    """The tables of one scenario."""
    if scenario == "options":
        return [options_table(figures)]
    if scenario == "requests":
        return [requests_table(figures), latency_table(figures, scenario)]
    parts = [streams_table(figures, scenario), latency_table(figures, scenario)]
    if scenario == "decode":
        parts += ["Tokens per event, told by the token ids in it:", clumps_table(figures)]
    if scenario == "clients":
        parts += ["What became of the requests, and of those that still ran at the engine:", clients_table(figures)]
    if scenario == "saturation":
        parts += ["The most streams with which first tokens came within a second (p99):", ceiling_table(figures)]
    return parts


def _line(text: str) -> str:
    return text.strip().splitlines()[0][:200] if text.strip() else ""


def summary(record: Record, folder: str) -> str:
    """The README's block: targets, plots by their place in the repository, what is not shown, where the rest is."""
    figures = Figures(record)
    return "\n\n".join(
        [
            origin(record),
            targets_table(figures),
            limits(figures),
            f"![CPU per token against streams]({folder}/cpu_per_token.png)",
            f"![Requests per second]({folder}/requests.png)",
            f"All tables, throughput and latency: [{folder}]({folder}/README.md).",
        ]
    )
