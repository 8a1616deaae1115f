"""Tables of what things cost: options, bad clients, and who used the machine."""

from __future__ import annotations

import statistics

from bench.report.figures import Figures, cores, cpu_per_token, median, of_machine, system_share, tokens_per_s
from bench.report.markdown import shown, table

MAIN_POINTS = (
    ("decode", "64 streams"), ("decode", "256 streams"), ("decode", "1024 streams"), ("decode", "2048 streams"),
    ("unpaced", "256 streams"), ("requests", "1 out, prompt 30"),
)  # fmt: skip
_THREADS_OF = (("decode", "256 streams"), ("decode", "1024 streams"), ("requests", "1 out, prompt 30"))
_LEAST_CORES = 0.002


def options_table(figures: Figures) -> str:
    """CPU per token with one option at a time; ratios and differences are medians of those within a repeat."""
    rows = []
    for peer in figures.peers:
        for point in figures.points("options"):
            samples = figures.samples(peer, "options", point)
            if samples:
                own = figures.median(peer, "options", point, cpu_per_token)
                pairs = figures.pairs(peer, peer, "options", point, cpu_per_token, "nothing")
                times = shown(median(with_it / plain for with_it, plain in pairs), 2)
                more = median(with_it - plain for with_it, plain in pairs)
                cells = [shown(figures.median(peer, "options", point, pick), digits) for pick, digits in _OPTION_CELLS]
                failed = sum(sample["load"]["requests"]["failed"] for sample in samples)
                told = "-" if more is None else f"{more:+.1f}"
                rows.append([figures.titles[peer], point, shown(own), times, told, *cells, str(failed), str(len(samples))])
    head = ["frontend", "asked for", "CPU us/token", "x nothing", "us more", "cores", "tokens/s", "failed", "repeats"]
    return table(head, rows)


_OPTION_CELLS = ((cores, 2), (tokens_per_s, 0))


def clients_table(figures: Figures) -> str:
    """What became of the requests of clients that read slowly or leave."""
    keys = ("started", "ok", "slow", "disconnected", "failed", "unfinished")
    rows = [
        [figures.titles[sample["peer"]], *(str(sample["load"]["requests"][key]) for key in keys), str(sample["left_running"])]
        for peer in figures.peers
        for point in figures.points("clients")
        for sample in figures.samples(peer, "clients", point)
    ]
    return table(
        ["frontend", "started", "ok", "of it slowly", "left", "failed", "unfinished", "still at the engine"], rows
    )


def shares_table(figures: Figures) -> str:
    """Cores that everybody kept busy: where all of a machine is used, the frontend had what the others left."""
    rows = []
    for scenario, point in MAIN_POINTS:
        for peer in figures.peers:
            if figures.samples(peer, scenario, point):
                kernel = figures.median(peer, scenario, point, system_share)
                picks = (cores, *(of_machine(f"{who}_cores") for who in ("engine", "load", "interrupt", "others")))
                busy = [shown(figures.median(peer, scenario, point, pick), 2) for pick in picks]
                share = "-" if kernel is None else f"{kernel:.0%}"
                rows.append([f"{scenario}: {point}", figures.titles[peer], busy[0], share, *busy[1:]])
    head = ["load", "frontend", "its cores", "of it kernel", "mock engine", "load generator", "interrupts", "other programs"]
    return table(head, rows)


def threads_table(figures: Figures) -> str:
    """fastfront's threads by name, in the first repeat."""
    rows = []
    for scenario, point in _THREADS_OF:
        for sample in figures.samples("fastfront", scenario, point)[:1]:
            wall_s = sample["front"]["wall_s"]
            for thread in sample["front"]["by_thread"]:
                if thread["cpu_s"] / wall_s >= _LEAST_CORES:
                    ticks = thread["user_s"] + thread["system_s"]
                    kernel = f"{thread['system_s'] / ticks:.0%}" if ticks else "-"
                    woken = shown(thread["voluntary"] / wall_s, 0)
                    name = thread["name"] if thread["count"] == 1 else f"{thread['name']} ({thread['count']})"
                    rows.append([f"{scenario}: {point}", name, shown(thread["cpu_s"] / wall_s, 3), kernel, woken])
    return table(["load", "thread", "cores", "of it kernel", "waits per s"], rows) if rows else "-"


def lanes_line(figures: Figures) -> str:
    """What two lanes do in the time of one."""
    lanes = figures.record.get("lanes")
    if not lanes:
        return ""
    wall, cpu = (statistics.median(lanes[f"two_threads_speedup_{clock}"]) for clock in ("wall", "cpu"))
    one = statistics.median(lanes["cpu_us_per_token"])
    most = lanes.get("two_threads_that_only_compute")
    beside = f" Two threads that only compute did {statistics.median(most):.2f} times as much meanwhile." if most else ""
    return (
        f"The token path alone, without HTTP and engine ({lanes['streams']} streams): {one:.2f} us per token on one lane; two"
        f" lanes do {wall:.2f} times as much as one by the clock, {cpu:.2f} times by CPU time per token.{beside}"
    )


def pauses_line(figures: Figures) -> str:
    """How long fastfront's garbage collection stopped it, without load too."""
    found = figures.starts("fastfront", "gc_longest_pause_s")
    if not found:
        return ""
    return f"fastfront's longest pause for garbage collection at any time, idle included: {max(found) * 1e3:.1f} ms."
