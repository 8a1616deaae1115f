"""Records, their tables and verdicts, and the README's block."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest

from bench import record as records
from bench.record import Record, RecordError
from bench.report.figures import Figures, cpu_per_token, requests_per_s
from bench.report.headline import headline
from bench.report.plots import plot
from bench.report.tables import shown, summary, targets_table, whole
from bench.report.targets import TARGETS
from bench.report.write import HEADLINE, NONE, SUMMARY, blocks, with_blocks, write_readme, write_report
from bench.scenarios.points import SCENARIOS, beyond, points

ROOT = Path(__file__).resolve().parents[2]


def sample(peer: str, scenario: str, point: str, repeat: int = 0, cpu: float = 10.0, **load: Any) -> dict[str, Any]:
    """A sample whose figures are plain; `load` replaces parts of the load generator's result."""
    result = {
        "tokens_per_s": 1000.0,
        "requests_per_s": 100.0,
        "ttft_ms": {"count": 5, "p50": 8.0, "p99": 20.0},
        "itl_ms": {"count": 5, "p99": 11.0},
        "e2e_ms": {"count": 5, "p50": 900.0, "p99": 950.0},
        "requests": {"started": 5, "ok": 5, "failed": 0, "disconnected": 0, "slow": 0, "unfinished": 0},
        "failures": {},
        "tokens_per_event": {"mean": 1.0, "max": 1},
        "connect_failures": 0,
        **load,
    }
    return {
        "peer": peer, "scenario": scenario, "point": point, "repeat": repeat, "streams": 64, "step_ms": 10.0, "drain_s": 3.0,
        "cpu_us_per_token": cpu, "cpu_us_per_request": cpu * 30, "engine_cores": 0.1,
        "load_cores": 0.2, "others_cores": 0.05, "interrupt_cores": 0.01, "left_running": 0, "load": result,
        "front": {"cores": 0.5, "wall_s": 4.0, "user_s": 0.5, "system_s": 1.5, "by_thread": [
            {"name": "lane-0", "count": 1, "cpu_s": 1.2, "user_s": 0.3, "system_s": 0.9, "voluntary": 400, "involuntary": 1},
            {"name": "http-0", "count": 2, "cpu_s": 0.004, "user_s": 0.0, "system_s": 0.0, "voluntary": 1, "involuntary": 0},
        ]},
    }  # fmt: skip


def start(peer: str, repeat: int = 0, **facts: Any) -> dict[str, Any]:
    return {
        "peer": peer, "repeat": repeat, "ready_s": 1.0, "rss_bytes": 90e6, "pss_bytes": 80e6, "processes": 1,
        "end_rss_bytes": 120e6, "end_pss_bytes": 100e6, **facts,
    }  # fmt: skip


@pytest.fixture
def record() -> Record:
    """Three repeats of one point with fastfront at 12, 18 and 15 us, and rungs of a ramp."""
    samples = []
    for repeat, (ours, floor) in enumerate([(12.0, 10.0), (18.0, 10.0), (15.0, 5.0)]):
        samples.append(sample("floor", "decode", "64 streams", repeat, floor))
        samples.append({**sample("fastfront", "decode", "64 streams", repeat, ours), "gc_longest_pause_s": repeat * 0.002})
    for streams, p99 in ((512, 30.0), (1024, 900.0), (2048, 1500.0)):
        rung = sample("fastfront", "saturation", f"{streams} streams", ttft_ms={"count": 5, "p50": 5.0, "p99": p99})
        samples.append({**rung, "streams": streams})
    samples.append(sample("fastfront", "requests", "1 out, prompt 30", requests_per_s=2000.0))
    samples.append(sample("vllm-rust", "requests", "1 out, prompt 30", requests_per_s=1000.0))
    return {
        "format": 1, "started": "2026-11-30T02:10:00Z", "command": ["fastfront", "bench", "run"], "quick": False, "repeats": 3,
        "model": "smollm2", "commit": "0123456789abcdef", "changed": False,
        "machine": {"processor": "Processor", "cores": 2, "memory_gb": 23.5, "system": "Linux", "kernel": "6"},
        "versions": {"frontend": {"python": "3.13", "pyzmq": "27.1.0"}},
        "peers": {name: {"title": name.title(), "version": "1"} for name in ("floor", "fastfront", "vllm-rust")},
        "starts": [start("fastfront", 0, gc_longest_pause_s=0.5), start("fastfront", 1)],
        "samples": samples, "failures": [], "seconds": 600.0, "climbed": ["fastfront"], "left_out": {},
        "taken_up": [], "lanes": {
            "two_threads_speedup_wall": [1.7, 1.9, 1.95], "two_threads_speedup_cpu": [1.8, 2.0], "cpu_us_per_token": [0.25, 0.3],
            "two_threads_that_only_compute": [1.8, 1.96], "streams": 1024,
        },
    }  # fmt: skip


def verdicts(record: Record) -> dict[tuple[str, str], tuple[float | None, bool | None]]:
    figures = Figures(record)
    return {(target.figure, target.against): (target.value(figures), target.verdict(figures)) for target in TARGETS}


def test_medians_are_over_repeats(record: Record) -> None:
    figures = Figures(record)
    assert figures.median("fastfront", "decode", "64 streams", cpu_per_token) == 15.0
    assert figures.median("vllm-rust", "decode", "64 streams", cpu_per_token) is None
    assert figures.median("fastfront", "requests", "1 out, prompt 30", requests_per_s) == 2000.0
    assert figures.points("decode") == ["64 streams"]


def test_ratios_are_taken_within_a_repeat(record: Record) -> None:
    assert verdicts(record)["CPU per token, 64 streams", "floor"] == (1.8, True)  # of 1.2, 1.8 and 3.0
    assert "| 64 streams | Fastfront | 15.0 | 1.80 |" in whole(record)  # not 1.50, of the medians


def test_verdicts(record: Record) -> None:
    found = verdicts(record)
    assert found["CPU per token, 256 streams", "floor"] == (None, None)
    assert found["requests/s at full load, 1 token out", "vLLM Rust"] == (2.0, True)
    assert found["CPU per request, 1 token out, prompt 30", "vLLM Rust"] == (1.0, True)
    assert found["ready", ""] == (1.0, True)
    assert found["RSS when ready", ""] == (90.0, True)
    assert found["two lanes against one, token path", "one lane"] == (1.9, True)
    assert found["longest stop-the-world pause under load", ""] == (4.0, True)
    record["samples"][1]["gc_longest_pause_s"] = 0.0625
    record["lanes"] = None
    record["starts"][1]["ready_s"] = 3.0
    found = verdicts(record)
    assert found["longest stop-the-world pause under load", ""] == (62.5, False)
    assert found["two lanes against one, token path", "one lane"] == (None, None)
    assert found["ready", ""] == (2.0, False)
    table = targets_table(Figures(record))
    assert "| ready |  | <= 1.5 s | 2.00 s | 1.00 to 3.00 | 2 | **does not hold** |" in table
    assert "| CPU per token, 256 streams | floor | <= 1.6x | - |  |  | not measured |" in table


def test_every_point_that_a_target_needs_is_measured() -> None:
    """Each ratio gets a value from a record that has all points of all repeats."""
    all_points = points(frozenset(SCENARIOS), quick=False)
    peers = ("floor", "fastfront", "vllm-rust", "vllm-python-1", "vllm-python-2")
    samples = [sample(peer, point.scenario, point.name) for point in all_points for peer in peers]
    samples[1]["gc_longest_pause_s"] = 0.0
    full: Record = {"samples": samples, "starts": [start("fastfront")], "peers": {}}
    full["lanes"] = {"two_threads_speedup_wall": [2.0]}
    assert [figure for figure, (value, _) in verdicts(full).items() if value is None] == []


def test_saturated_figure_of_another_point_counts(record: Record) -> None:
    """Against vLLM Python at 1,024 streams, where it is overloaded, whatever the own streams."""
    record["samples"].append(sample("vllm-python-1", "decode", "1024 streams", 1, cpu=90.0))
    found = {target.figure: target.value(Figures(record)) for target in TARGETS if target.against.startswith("vLLM Python with")}
    assert found["CPU per token, 64 streams"] == 0.2  # the 18 us of the same repeat
    assert found["CPU per token, 1024 streams"] is None


def test_ceiling_is_the_last_rung_that_was_kept_up_with(record: Record) -> None:
    best, first = Figures(record).ceiling("fastfront")
    assert best is not None
    assert first is not None
    assert (best["streams"], first["streams"]) == (1024, 2048)
    assert "| Fastfront | 1024 | 1,000 | 900 | 0.50 | 2048: 1,500 ms |" in whole(record)
    plain = sample("fastfront", "decode", "1536 streams", ttft_ms={"count": 5, "p50": 5.0, "p99": 40.0})
    record["samples"].append({**plain, "streams": 1536})
    assert (Figures(record).ceiling("fastfront")[0] or {})["streams"] == 1536, "points of plain streams are rungs too"
    assert Figures(record).ceiling("vllm-rust") == (None, None)


def test_requests_without_any_token_count_as_waiting(record: Record) -> None:
    """A server that is far behind must not look quick because the few answers that came were."""
    running = {"started": 5, "ok": 2, "failed": 0, "disconnected": 0, "slow": 0, "unfinished": 3}
    late = {"count": 2, "p50": 400.0, "p99": 500.0}
    silent = sample("vllm-rust", "decode", "1024 streams", ttft_ms=late, requests=running)
    ours = sample("fastfront", "decode", "1024 streams", ttft_ms={"count": 5, "p50": 30.0, "p99": 60.0})
    record["samples"] += [silent, ours]
    assert beyond(silent)
    assert not beyond(ours)
    found = verdicts(record)
    assert found["time to first token p50, 1024 streams", "vLLM Rust"] == (0.01, True)
    assert found["time to first token p99, 1024 streams", "vLLM Rust"] == (0.02, True)
    assert "| 1024 streams | Vllm-Rust | > 3,000.0 | > 3,000.0 | > 3,000.0 | > 3,000.0 |" in whole(record)
    mute = {**silent, "load": {**silent["load"], "requests": {**running, "ok": 5, "unfinished": 0}}}
    assert not beyond(mute), "answers that ended without any text have not waited"
    record["samples"][-1] = {**silent, "peer": "fastfront"}
    assert verdicts(record)["time to first token p50, 1024 streams", "vLLM Rust"] == (math.inf, False)
    assert "| too late |  | 1 | **does not hold** |" in whole(record)
    leaving = sample("x", "clients", "256 streams", ttft_ms={"count": 2, "p99": 5.0})
    leaving["load"]["requests"]["disconnected"] = 3
    assert not beyond(leaving)


def test_report_has_every_scenario_and_says_when_the_machine_was_busy(record: Record) -> None:
    text = whole(record)
    for title in ("Streams of tokens at 10 ms steps", "Short requests, step clock off", "Start-up and memory", "Versions"):
        assert f"## {title}" in text
    assert "not quiet" not in text
    assert "| 64 streams | Fastfront | 15.0 | 1.80 |" in text
    assert "| decode: 64 streams | Fastfront | 0.50 | 75% | 0.10 | 0.20 | 0.01 | 0.05 |" in text
    assert "| requests: 1 out, prompt 30 | lane-0 | 0.300 | 75% | 100 |" in text
    assert "http-0" not in text, "threads that did nothing"
    assert "0.28 us per token on one lane; two lanes do 1.90 times as much as one by the clock, 1.90 times by" in text
    assert "Two threads that only compute did 1.88 times as much meanwhile." in text
    assert "at any time, idle included: 500.0 ms" in text
    assert "taken up again" not in text
    noisy = copy.deepcopy(record)
    for one in noisy["samples"]:
        one["others_cores"] = 0.9
    assert "not quiet: 0.9 of its cores" in whole(noisy)
    noisy["failures"] = [{"peer": "vllm-rust", "repeat": 1, "error": "it ended\nwith a log"}]
    assert "- vllm-rust, repeat 1: it ended\n" in whole(noisy)


def test_what_is_not_shown_is_said(record: Record) -> None:
    record["left_out"] = {"vllm-python-1": "not installed: make bench-peers"}
    record["taken_up"] = [{"at": "2026-11-30T02:20:00Z", "samples": 3}]
    for text in (whole(record), summary(record, "x")):
        assert "Frontends left out: vllm-python-1 (not installed: make bench-peers)." in text
        missing = sum(target.value(Figures(record)) is None for target in TARGETS)
        assert 0 < missing < len(TARGETS)
        assert f"Of {len(TARGETS)} targets {missing} are not measured." in text
        assert "interrupted and taken up again" in text


def test_failures_are_told_by_kind(record: Record) -> None:
    for sample_ in record["samples"][:3:2]:
        sample_["load"]["requests"]["failed"] = 2
        sample_["load"]["failures"] = {"reset": 1, "http_500": 1}
    assert "| 1,000 | 4 (reset 2, http_500 2) |" in whole(record)


def test_options_stand_beside_nothing(record: Record) -> None:
    for name, cpu in (("nothing", 8.0), ("logprobs", 10.0)):
        record["samples"].append(sample("fastfront", "options", name, cpu=cpu))
    for repeat, (plain, with_it) in enumerate([(4.0, 8.0), (10.0, 10.0)], 1):
        record["samples"].append(sample("fastfront", "options", "nothing", repeat, plain))
        record["samples"].append(sample("fastfront", "options", "logprobs", repeat, with_it))
    record["samples"].append(sample("vllm-rust", "options", "logprobs", cpu=20.0))
    text = whole(record)
    assert "| Fastfront | logprobs | 10.0 | 1.25 | +2.0 | 0.50 | 1,000 | 0 | 3 |" in text  # of 1.25, 2 and 1
    assert "| Vllm-Rust | logprobs | 20.0 | - | - | 0.50 | 1,000 | 0 | 1 |" in text


def test_bad_clients_are_accounted_for(record: Record) -> None:
    requests = {"started": 9, "ok": 5, "failed": 0, "disconnected": 3, "slow": 2, "unfinished": 1}
    record["samples"].append({**sample("fastfront", "clients", "256 streams", requests=requests), "left_running": 4})
    assert "| Fastfront | 9 | 5 | 2 | 3 | 0 | 1 | 4 |" in whole(record)


def test_report_of_an_empty_record(record: Record) -> None:
    """Everything that was measured may have failed."""
    record.update(samples=[], starts=[], lanes=None)
    text = whole(record)
    assert text.count("| not measured |") == len(TARGETS)


@pytest.mark.parametrize(("value", "digits", "text"), [(None, 1, "-"), (1234.56, 1, "1,234.6"), (0.0, 0, "0")])
def test_figures_are_shown(value: float | None, digits: int, text: str) -> None:
    assert shown(value, digits) == text


def test_record_is_written_and_read_again(record: Record, tmp_path: Path) -> None:
    folder = tmp_path / "2026-11-30-here"
    assert records.save(record, folder) == folder / "record.json"
    assert records.load(folder) == record
    assert [path.name for path in folder.iterdir()] == ["record.json"]
    records.save({**record, "samples": []}, tmp_path / "2026-11-29-here")
    assert records.newest(tmp_path) == folder
    for number in (2, 9, 10):
        records.save(record, tmp_path / f"{folder.name}-{number}")
    assert records.newest(tmp_path).name == f"{folder.name}-10"


@pytest.mark.parametrize("text", ["", "[]", '{"format": 2}', "{"])
def test_what_is_no_record_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(RecordError, match="no record"):
        records.load(tmp_path)
    with pytest.raises(RecordError, match="no records in"):
        records.newest(tmp_path)
    (tmp_path / "record.json").write_text(text)
    with pytest.raises(RecordError, match=r"record\.json"):
        records.load(tmp_path)


def test_plots_are_made_and_are_the_same_for_the_same_record(record: Record, tmp_path: Path) -> None:
    names = sorted(path.name for path in write_report(record, tmp_path))
    assert names == ["README.md", "cpu_per_token.png", "requests.png", "throughput.png", "ttft.png"]
    before = {name: (tmp_path / name).read_bytes() for name in names}
    assert all(before[name].startswith(b"\x89PNG") for name in names if name.endswith("png"))
    plot(Figures(record), tmp_path)
    assert {name: (tmp_path / name).read_bytes() for name in names} == before


def test_blocks_are_put_between_their_marks() -> None:
    def readme(headline: str, summary: str) -> str:
        return f"before\n{HEADLINE[0]}\n{headline}\n{HEADLINE[1]}\nthen\n{SUMMARY[0]}\n{summary}\n{SUMMARY[1]}\nbehind\n"

    assert with_blocks(readme("old", "old"), {HEADLINE: r"new \1", SUMMARY: "newer"}) == readme(r"new \1", "newer")
    for marks in (HEADLINE, SUMMARY):
        with pytest.raises(RecordError, match=f"has no {marks[0]}"):
            with_blocks(readme("", "").replace(marks[1], ""), {HEADLINE: "new", SUMMARY: "newer"})


def test_figures_of_the_newest_record_go_into_the_readme(record: Record, tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("# x\n" + "".join(f"{begin}\n{end}\n" for begin, end in (HEADLINE, SUMMARY)))
    write_readme(tmp_path)
    assert readme.read_text().count(NONE) == 2
    records.save(record, tmp_path / "bench" / "records" / "2026-11-30-here")
    write_readme(tmp_path)
    assert summary(record, "bench/records/2026-11-30-here") in readme.read_text()
    shown = headline(Figures(record))
    assert shown in readme.read_text()
    assert "| such requests per second | 2,000 | 1,000 |" in shown
    assert "| CPU per token, 1,024 streams, us | - | - |" in shown
    assert "(bench/records/2026-11-30-here/cpu_per_token.png)" in readme.read_text()


def test_readme_shows_the_newest_record() -> None:
    readme = (ROOT / "README.md").read_text()
    assert with_blocks(readme, blocks(ROOT)) == readme, "fastfront bench report --readme"


def test_reports_in_the_repository_are_those_of_their_records() -> None:
    for path in records.FOLDER.glob("*/record.json"):
        text = (path.parent / "README.md").read_text()
        assert text == whole(records.load(path.parent)), f"fastfront bench report {path.parent}"
