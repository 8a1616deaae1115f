"""The command line of `fastfront bench`."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench import record as records
from bench.machine import slug
from bench.peers.base import Peer
from bench.peers.fastfront import of_clone, with_flags
from bench.peers.registry import PEERS
from bench.plan import CONTROLS, NARROW, Plan
from bench.runner import run
from bench.scenarios.points import SCENARIOS
from tools.setup.paths import Paths, find_paths

_QUICK = {"decode", "requests", "unpaced"}


def parser() -> argparse.ArgumentParser:
    """All of its words."""
    top = argparse.ArgumentParser(
        prog="fastfront bench", description="Measure frontends side by side, all in front of the same mock engine."
    )
    jobs = top.add_subparsers(dest="job", metavar="JOB", required=True)
    listing = jobs.add_parser("list", help="which frontends and scenarios there are, and what is missing")
    listing.set_defaults(call=_list)
    running = jobs.add_parser("run", help="measure, and write a record")
    running.add_argument("--peers", help="only these, by comma (default: all that are installed)")
    running.add_argument("--scenario", action="append", choices=sorted(SCENARIOS), help="only this one; may be repeated")
    running.add_argument("--repeats", type=int, help="medians are over so many (default: 3, quick: 1)")
    running.add_argument("--quick", action="store_true", help="a few minutes: fewer and shorter points, once, no controls")
    running.add_argument("--flags", help="also fastfront with these flags, such as '--lanes 2'; a leading dash needs --flags=...")
    running.add_argument("--other", type=Path, help="also the fastfront of this other clone: before and after a change")
    running.add_argument("--model", type=Path, help="folder with config.json and tokenizer (default: smollm2 of the cache)")
    running.add_argument("--out", type=Path, help="folder of the record (default: bench/records/DATE-machine)")
    running.add_argument(
        "--resume", type=Path, metavar="FOLDER", help="go on with an interrupted record, flags as then"
    )
    running.set_defaults(call=_run)
    reporting = jobs.add_parser("report", help="tables and plots of a record")
    reporting.add_argument("record", type=Path, nargs="?", help="its folder (default: the newest)")
    reporting.add_argument("--readme", action="store_true", help="also put the summary of the newest record into README.md")
    reporting.set_defaults(call=_report)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status: 1 when something could not be measured or read, 2 for bad flags."""
    words = list(sys.argv[1:] if argv is None else argv)
    top = parser()
    arguments = top.parse_args(words)
    paths = find_paths(os.environ)
    try:
        status: int = arguments.call(arguments, paths, top, words)
    except records.RecordError as error:
        print(f"fastfront bench: error: {error}", file=sys.stderr)
        return 1
    return status


def _list(arguments: argparse.Namespace, paths: Paths, top: argparse.ArgumentParser, words: list[str]) -> int:
    for peer in PEERS:
        print(f"{peer.name:14} {peer.title:32} {peer.problem(paths) or 'installed'}")
    for name, title in SCENARIOS.items():
        print(f"{name:14} {title}")
    return 0


def _run(arguments: argparse.Namespace, paths: Paths, top: argparse.ArgumentParser, words: list[str]) -> int:
    before = None
    if arguments.resume:
        if words != ["run", "--resume", str(arguments.resume)]:
            top.error("--resume: goes without other flags, they are those of the record")
        before = records.load(arguments.resume)
        words = before["command"][2:]
        arguments, out = top.parse_args(words), arguments.resume
    else:
        out = arguments.out or _unused(records.FOLDER / f"{time.strftime('%Y-%m-%d')}-{slug()}")
    plan = _plan(arguments, paths, top)
    records.make_folder(out)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    record = run(
        plan,
        paths,
        ["fastfront", "bench", *words],
        lambda text: print(text, file=sys.stderr, flush=True),
        lambda record: records.save(record, out),
        before,
    )
    print(f"{out} ({record['seconds']:.0f} s)")
    return 1 if record["failures"] else 0


def _plan(arguments: argparse.Namespace, paths: Paths, top: argparse.ArgumentParser) -> Plan:
    """What the flags ask for; leaves with status 2 where that cannot be had."""
    repeats = arguments.repeats if arguments.repeats is not None else 1 if arguments.quick else 3
    if repeats < 1:
        top.error("--repeats: at least 1")
    model = arguments.model or paths.models / "smollm2"
    if not (model / "tokenizer.json").is_file():
        top.error(f"--model: no tokenizer.json in {model}" + ("" if arguments.model else " (make setup)"))
    peers, left_out = _chosen(arguments, paths, top)
    return Plan(
        peers=peers,
        scenarios=frozenset(arguments.scenario or (_QUICK if arguments.quick else SCENARIOS)),
        repeats=repeats,
        quick=arguments.quick,
        model=model,
        sparing=not arguments.peers,
        left_out=left_out,
    )


def _unused(folder: Path) -> Path:
    """The folder, or with the next free number behind its name."""
    found, number = folder, 1
    while found.exists():
        number += 1
        found = folder.with_name(f"{folder.name}-{number}")
    return found


def _chosen(arguments: argparse.Namespace, paths: Paths, top: argparse.ArgumentParser) -> tuple[tuple[Peer, ...], dict[str, str]]:
    """The peers to measure, and why others are left out; missing ones are an error if they were asked for."""
    by_name = {peer.name: peer for peer in PEERS}
    names = arguments.peers.split(",") if arguments.peers else list(by_name)
    chosen: list[Peer] = []
    left_out: dict[str, str] = {name: "not asked for" for name in by_name if name not in names}
    for name in names:
        if name not in by_name:
            top.error(f"--peers: {name} is none of {', '.join(by_name)}")
        problem = by_name[name].problem(paths)
        if problem and arguments.peers:
            top.error(f"--peers: {name}: {problem}")
        if problem is None and arguments.quick and not arguments.peers and name in (*CONTROLS, *NARROW):
            problem = "not in quick runs"
        if problem:
            left_out[name] = problem
            print(f"{name}: left out: {problem}", file=sys.stderr)
        else:
            chosen.append(by_name[name])
    variants = [with_flags(tuple(shlex.split(arguments.flags)))] if arguments.flags else []
    if arguments.other:
        variants.append(of_clone(arguments.other.resolve()))
    for variant in variants:
        problem = variant.problem(paths)
        if problem:
            top.error(f"{'--flags' if variant.name == 'fastfront-flags' else '--other'}: {problem}")
        chosen.append(variant)
    return tuple(chosen), left_out


def _report(arguments: argparse.Namespace, paths: Paths, top: argparse.ArgumentParser, words: list[str]) -> int:
    from bench.report.write import write_readme, write_report  # noqa: PLC0415 - matplotlib takes its time

    folder = arguments.record or records.newest()
    record = records.load(folder)
    try:
        for path in write_report(record, folder):
            print(path)
        if arguments.readme:
            print(write_readme(paths.root))
    except OSError as error:
        raise records.RecordError(f"{error.filename or folder}: {error.strerror}") from error
    return 0
