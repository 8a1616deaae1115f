"""Runs, small ones: what is measured, what becomes of a frontend that fails, and the command line."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import pytest

from bench import machine
from bench.cli import _unused, main
from bench.peers.base import Running, Setting
from bench.peers.processes import PeerFailed, session_members
from bench.peers.registry import PEERS
from bench.plan import Plan
from bench.record import Record, RecordError, load, save
from bench.report.figures import Figures
from bench.report.tables import whole
from bench.report.targets import TARGETS
from bench.runner import run, take_up
from bench.scenarios import measure as measuring
from bench.scenarios.points import QUICK_RAMP, RAMP, SCENARIOS, Point, ceiling_known, points, ramp_point
from tools.setup.paths import find_paths

PATHS = find_paths(os.environ)
BY_NAME = {peer.name: peer for peer in PEERS}
SHORT = Point(
    scenario="decode", name="64 streams", step_ms=2.0, streams=8, warmup_s=0.2, measure_s=0.6, drain_s=30.0,
    fields={"max_tokens": 20},
)  # fmt: skip

Pauses = tuple[int, float, float] | None


def plan(*names: str, repeats: int = 1) -> Plan:
    return Plan(tuple(BY_NAME[name] for name in names), frozenset({"decode"}), repeats, True, PATHS.models / "smollm2", False)


def test_run_measures_in_turn_and_goes_on_when_one_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Running] = []

    def remember(setting: Setting) -> Running:
        started.append(BY_NAME["fastfront"].start(setting))
        return started[-1]

    def fail(setting: Setting) -> Running:
        raise [PeerFailed("no such luck"), ProcessLookupError("no process 5")][len(kept) > 2]

    monkeypatch.setattr("bench.plan.points", lambda scenarios, quick: [SHORT])
    monkeypatch.setattr("bench.runner.lanes", lambda paths, model, say: None)
    chosen = plan("floor", "vllm-rust", "fastfront", repeats=2)
    fakes = {"vllm-rust": fail, "fastfront": remember}
    peers = tuple(dataclasses.replace(peer, start=fakes.get(peer.name, peer.start)) for peer in chosen.peers)
    kept: list[int] = []
    record = run(
        dataclasses.replace(chosen, peers=peers), PATHS, ["fastfront", "bench", "run"], lambda text: None,
        lambda record: kept.append(len(record["samples"])),
    )  # fmt: skip
    assert kept == [1, 1, 1, 2, 2, 3, 3, 3, 4, 4, 4]
    order = [(sample["repeat"], sample["peer"]) for sample in record["samples"]]
    assert order == [(0, "floor"), (0, "fastfront"), (1, "floor"), (1, "fastfront")]
    assert [failure["error"] for failure in record["failures"]] == ["no such luck", "ProcessLookupError: no process 5"]
    for sample in record["samples"]:
        assert sample["load"]["requests"]["failed"] == 0
        assert sample["load"]["tokens"] > 0
        assert sample["cpu_us_per_token"] > 0
        assert sample["left_running"] == 0
        assert (sample["gc_longest_pause_s"] is None) == (sample["peer"] == "floor")
    ours = record["starts"][1]
    assert ours["rss_bytes"] > 20e6
    assert ours["gc_longest_pause_s"] >= 0
    assert len(record["commit"] or "x" * 40) == 40
    assert json.loads(json.dumps(record)) == record
    assert "vllm-rust, repeat 0: no such luck" in whole(record)
    assert [session_members(one.front.pid) for one in started] == [[], []]


@pytest.mark.parametrize(
    ("before", "after", "longest"),
    [
        (None, None, None),
        ((3, 0.5, 0.4), (3, 0.5, 0.4), 0.0),
        ((3, 0.5, 0.4), (5, 0.75, 0.4), 0.25),
        ((3, 0.5, 0.25), (4, 1.25, 0.75), 0.75),
    ],
)
def test_pauses_in_between(before: Pauses, after: Pauses, longest: float | None) -> None:
    """The frontend tells only the longest pause of its whole life."""
    assert measuring.longest_pause_s(before, after) == longest


def rung(streams: int, p99: float) -> measuring.Sample:
    requests = {"failed": 0, "started": 5, "disconnected": 0, "slow": 0, "unfinished": 0}
    load = {"ttft_ms": {"count": 5, "p99": p99}, "requests": requests}
    return {"scenario": "decode", "point": f"{streams} streams", "streams": streams, "load": load}


@pytest.mark.parametrize(
    ("measured", "limit", "asked"),
    [
        ([], 1024, [64, 128, 256, 512, 1024]),
        ([64, 256, 1024, 2048], 1024, [512]),
        ([64, 256, 1024, 2048], 1536, []),
        ([64, 256, 1024, 2048], 2048, [1536]),
        ([64, 256, 1024, 2048], 99999, [3072, 4096]),
        ([64], 1, []),
    ],
)
def test_ramp_goes_on_from_what_is_known(
    measured: list[int], limit: int, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frontend is overloaded from `limit` streams on: the ramp looks between, or above, what was measured before."""
    looked_at = []

    def fake(point: Point, running: Running, repeat: int, seed: int) -> measuring.Sample:
        looked_at.append(point.streams)
        return rung(point.streams, 10.0 if point.streams < limit else 2000.0)

    monkeypatch.setattr(measuring, "measure", fake)
    running: Running = object()  # type: ignore[assignment]
    known = ceiling_known(rung(streams, 10.0 if streams < limit else 2000.0) for streams in measured)
    if (measured, limit) == ([64, 256, 1024, 2048], 1536):
        known |= {1536: True}
    assert [sample["streams"] for sample in measuring.climb(running, False, 0, known)] == asked == looked_at
    assert set(asked) <= set(RAMP)


def test_points_are_all_different() -> None:
    for quick in (False, True):
        found = points(frozenset(SCENARIOS), quick)
        names = [(point.scenario, point.name) for point in found]
        assert len(names) == len(set(names))
        assert {scenario for scenario, _ in names} == set(SCENARIOS) - {"saturation"}
        assert all(ramp_point(streams, quick).measure_s > 0 for streams in QUICK_RAMP)


def everything(sparing: bool, repeats: int = 3) -> Plan:
    chosen = plan(*BY_NAME, repeats=repeats)
    return dataclasses.replace(chosen, scenarios=frozenset(SCENARIOS), quick=False, sparing=sparing)


def test_run_of_everything_repeats_what_targets_compare() -> None:
    full = everything(sparing=True)

    def measured(name: str, repeat: int) -> set[str]:
        return {f"{point.scenario}/{point.name}" for point in full.points_of(BY_NAME[name], repeat)}

    assert measured("classic-2", 1) == measured("fastfront-gil", 2) == set()
    assert measured("vllm-python-2", 0) == measured("vllm-python-2", 2) == {"decode/1024 streams", "requests/1 out, prompt 30"}
    assert measured("vllm-python-1", 1) == {"decode/1024 streams", "requests/1 out, prompt 30"}
    assert {"decode/64 streams", "decode/256 streams", "decode/1024 streams"} == measured("floor", 1)
    assert "options/logprobs" in measured("fastfront", 2) - measured("vllm-rust", 2)
    assert measured("vllm-rust", 2) < measured("vllm-rust", 0)
    # A ratio is of one repeat: all that a target compares must be measured in each.
    for target in TARGETS:
        if target.unit == "x" and target.against != "one lane":
            for repeat in range(3):
                samples = [
                    {"peer": peer.name, "scenario": point.scenario, "point": point.name, "repeat": repeat, "drain_s": 3.0,
                     "cpu_us_per_token": 1.0, "cpu_us_per_request": 1.0,
                     "load": {**rung(1, 5.0)["load"], "ttft_ms": {"count": 5, "p50": 1.0, "p99": 1.0}, "requests_per_s": 1.0}}
                    for peer in full.peers for point in full.points_of(peer, repeat)
                ]  # fmt: skip
                assert target.values(Figures({"samples": samples, "starts": [], "peers": {}})) == [1.0], target


def test_peers_that_were_asked_for_are_measured_alike() -> None:
    chosen = everything(sparing=False)
    classic, ours = BY_NAME["classic-2"], BY_NAME["fastfront"]
    assert chosen.points_of(classic, 0) == chosen.points_of(ours, 0)
    assert chosen.points_of(classic, 1) == chosen.points_of(ours, 1)
    assert len(chosen.points_of(ours, 0)) > len(chosen.points_of(ours, 1)) > 0


def test_interrupted_run_keeps_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Running] = []

    def remember(setting: Setting) -> Running:
        started.append(BY_NAME["floor"].start(setting))
        return started[-1]

    def interrupted(point: Point, running: Running, repeat: int, seed: int) -> measuring.Sample:
        raise KeyboardInterrupt

    monkeypatch.setattr("bench.runner.measure", interrupted)
    chosen = plan("floor")
    peers = tuple(dataclasses.replace(peer, start=remember) for peer in chosen.peers)
    record = run(dataclasses.replace(chosen, peers=peers), PATHS, [], lambda text: None)
    assert [failure["error"] for failure in record["failures"]] == ["interrupted"]
    assert len(record["starts"]) == 1
    assert session_members(started[0].front.pid) == []


def test_interrupted_run_is_taken_up_where_it_stopped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By the command line alone; whatever has been measured is not measured again."""
    measured: list[tuple[int, str]] = []

    def measure(point: Point, running: Running, repeat: int, seed: int) -> measuring.Sample:
        if len(measured) == 3:
            measured.append((-1, ""))
            raise KeyboardInterrupt
        measured.append((repeat, point.name))
        return {**rung(point.streams, 5.0), "point": point.name, "peer": running.name, "repeat": repeat, "left_running": 0}

    monkeypatch.setattr("bench.runner.measure", measure)
    monkeypatch.setattr("bench.runner.told", lambda sample: "")
    monkeypatch.setattr("bench.runner.lanes", lambda paths, model, say: {"lanes": len(measured)})
    words = ["run", "--peers", "floor", "--quick", "--repeats", "2", "--scenario", "decode", "--out", str(tmp_path)]
    assert main(words) == 1
    half = load(tmp_path)
    assert len(half["samples"]) == 3
    assert half["lanes"] is None
    assert main(["run", "--resume", str(tmp_path)]) == 0
    found = load(tmp_path)
    names = [(sample["repeat"], sample["point"]) for sample in found["samples"]]
    assert names == [(repeat, f"{streams} streams") for repeat in (0, 1) for streams in (64, 256, 1024, 2048)]
    assert [one for one in measured if one != (-1, "")] == names
    assert found["command"] == ["fastfront", "bench", *words]
    assert found["lanes"] == {"lanes": 9}
    assert found["failures"] == []
    assert [(start["repeat"], "end_rss_bytes" in start) for start in found["starts"]] == [(0, False), (0, False), (1, True)]
    assert [once["samples"] for once in found["taken_up"]] == [3]
    assert found["seconds"] >= half["seconds"]
    # Nothing is left: a second time starts nothing.
    assert main(["run", "--resume", str(tmp_path)]) == 0
    assert len(measured) == 9


def test_record_of_other_code_is_not_taken_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record: Record = {"format": 1, "command": ["fastfront", "bench", "run", "--peers", "floor"], "commit": "0" * 40}
    save(record, tmp_path)
    assert main(["run", "--resume", str(tmp_path)]) == 1
    assert f"--resume: the record is of commit {'0' * 40}, this is " in capsys.readouterr().err
    with pytest.raises(RecordError, match="of another machine"):
        take_up({"commit": machine.commit(PATHS.root)["commit"], "machine": {"processor": "Z80", "cores": 1}}, PATHS)


def test_time_is_told_beforehand() -> None:
    quick, once = plan("floor", "fastfront"), everything(sparing=True, repeats=1)
    assert 10 < quick.expected_s() < once.expected_s() < everything(sparing=True).expected_s() < 22 * 60
    assert everything(sparing=True).expected_s() < everything(sparing=False).expected_s()


def test_the_token_path_alone_belongs_to_decode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.runner.lanes", lambda paths, model, say: {"lanes": 1})
    for scenario, found in (("decode", {"lanes": 1}), ("requests", None)):
        chosen = dataclasses.replace(plan("floor"), peers=(), scenarios=frozenset({scenario}))
        assert run(chosen, PATHS, [], lambda text: None, lambda record: None)["lanes"] == found


def test_variants_are_measured_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[Plan] = []

    def fake(plan: Plan, *rest: object) -> dict[str, object]:
        plans.append(plan)
        return {"seconds": 0.0, "failures": []}

    monkeypatch.setattr("bench.cli.run", fake)
    words = ["run", "--peers", "fastfront", "--flags=--lanes 9", "--other", str(PATHS.root), "--out", str(tmp_path)]
    assert main(words) == 0
    assert [peer.title for peer in plans[0].peers] == ["fastfront", "fastfront --lanes 9", f"fastfront in {PATHS.root.name}"]
    setting = Setting(PATHS, PATHS.models / "smollm2", tmp_path, ready_timeout_s=120.0)
    for peer in plans[0].peers[1:]:
        with peer.start(setting) as running:
            assert peer.name == running.name
            threads = [(task / "comm").read_text() for task in Path(f"/proc/{running.front.pid}/task").iterdir()]
            assert ("lane-8\n" in threads) == (peer.name == "fastfront-flags")
        assert running.complaints == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "--peers", "floor,nobody"], "--peers: nobody is none of floor, "),
        (["run", "--model", "/nonexistent"], "--model: no tokenizer.json in /nonexistent"),
        (["run", "--repeats", "0"], "--repeats: at least 1"),
        (["run", "--scenario", "nothing"], "invalid choice: 'nothing'"),
        (["run", "--resume", "/nonexistent", "--quick"], "--resume: goes without other flags"),
        (["run", "--other", "/nonexistent"], "--other: no frontend environment in /nonexistent"),
        ([], "JOB"),
    ],
)
def test_bad_words_are_refused_by_name(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(words)
    assert left.value.code == 2
    assert message in capsys.readouterr().err


def test_second_record_of_a_day_has_a_folder_of_its_own(tmp_path: Path) -> None:
    first = tmp_path / "2026-11-30-here"
    assert _unused(first) == first
    first.mkdir()
    (tmp_path / "2026-11-30-here-2").mkdir()
    assert _unused(first) == tmp_path / "2026-11-30-here-3"


def test_report_of_no_record_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path)]) == 1
    assert f"no record in {tmp_path}" in capsys.readouterr().err


def test_records_that_cannot_be_written_are_refused_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.cli.run", lambda *_: pytest.fail("measured"))
    (tmp_path / "file").touch()
    assert main(["run", "--peers", "floor", "--out", str(tmp_path / "file" / "record")]) == 1
    assert capsys.readouterr().err.endswith(f"error: {tmp_path}/file/record: Not a directory\n")


def test_a_full_disk_is_an_error_with_the_files_name(tmp_path: Path) -> None:
    (tmp_path / "record.unfinished").symlink_to("/dev/full")
    with pytest.raises(RecordError, match=r"/record\.unfinished: No space left on device"):
        save({"format": 1}, tmp_path)


def test_list_names_everything(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in [*BY_NAME, *SCENARIOS])


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("AMD EPYC 7763 64-Core Processor", "amd-epyc-7763"),
        ("Intel(R) Xeon(R) CPU @ 2.20GHz", "intel-xeon"),
        ("Intel(R) Core(TM) i7-8650U CPU @ 1.90GHz", "intel-core-i7-8650u"),
    ],
)
def test_machine_names_make_short_folders(name: str, slug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "processor", lambda: name)
    assert machine.slug() == f"{slug}-{len(os.sched_getaffinity(0))}c"
