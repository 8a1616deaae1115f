"""Runs what is installed of the matrix and prints the table: `python -m bench.interop [--frontends a,b] [--engines a,b]`.

Run it in the engine environment (`make interop`). Ends with 1 if a cell fails; what is not installed does not count.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.interop.checks import CHECKS, CheckFailed, Client
from bench.interop.sides import ENGINES, FRONTENDS, Places, Side
from bench.peers.base import wait_healthy
from bench.peers.processes import Child, PeerFailed
from bench.ports import free_port
from tools.scratch import scratch_folder
from tools.setup.paths import find_paths


@dataclass(slots=True)
class Cell:
    """What came of one frontend and one engine. `skipped` says why they were not tried."""

    frontend: str
    engine: str
    skipped: str | None = None
    ready_s: float = 0.0
    passed: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    text: str = ""

    def words(self) -> str:
        """For the table."""
        if self.skipped is not None:
            return self.skipped
        total = len(self.passed) + len(self.failed)
        verdict = "all" if not self.failed else f"{len(self.passed)} of {total}: not {', '.join(self.failed)}"
        return f"{verdict} ({self.ready_s:.0f} s to start)"


def run_cell(frontend: Side, engine: Side, places: Places, folder: Path, timeout_s: float) -> Cell:
    """Starts both, asks everything, ends both."""
    cell = Cell(frontend.name, engine.name)
    problem = frontend.problem(places.paths) or engine.problem(places.paths)
    if problem is not None:
        cell.skipped = problem
        return cell
    name = f"{frontend.name}-{engine.name}"
    children: list[Child] = []
    began = time.monotonic()
    try:
        for side, what in ((frontend, "frontend"), (engine, "engine")):
            env = {**side.env, "VLLM_RPC_BASE_PATH": str(folder)}  # sockets of vLLM, which it leaves behind
            children.append(Child(f"{name} {what}", side.command(places), folder / f"{name}-{what}.log", env))
        cell.ready_s = wait_healthy(places.port, children, timeout_s) - began
        client = Client(places.port)
        for check, ask in CHECKS:
            try:
                found = ask(client)
            except (CheckFailed, OSError, KeyError, ValueError) as error:
                cell.failed[check] = f"{type(error).__name__}: {error}"
                continue
            cell.passed.append(check)
            if isinstance(found, str):
                cell.text = found
        for child in children:
            child.check()
    except PeerFailed as error:
        cell.failed["start" if not cell.passed else "staying up"] = str(error)
    finally:
        for child in children:
            for complaint in child.stop():
                cell.failed["end"] = complaint
    return cell


def table(cells: list[Cell]) -> str:
    """Markdown: a row for each frontend, a column for each engine."""
    engines = [engine for engine in ENGINES if any(cell.engine == engine.name for cell in cells)]
    lines = ["| frontend | " + " | ".join(engine.title for engine in engines) + " |", "|---" * (len(engines) + 1) + "|"]
    for frontend in FRONTENDS:
        row = {cell.engine: cell.words() for cell in cells if cell.frontend == frontend.name}
        if row:
            lines.append(f"| {frontend.title} | " + " | ".join(row.get(engine.name, "") for engine in engines) + " |")
    return "\n".join(lines)


def disagreements(cells: list[Cell]) -> list[str]:
    """Engines whose greedy text depends on the frontend."""
    found = []
    for engine in ENGINES:
        texts = {cell.text for cell in cells if cell.engine == engine.name and cell.text}
        if len(texts) > 1:
            found.append(f"{engine.title}: the frontends got different texts: {sorted(texts)}")
    return found


def main() -> int:
    """The exit status."""
    paths = find_paths(os.environ)
    parser = argparse.ArgumentParser("python -m bench.interop", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--frontends", help=",".join(side.name for side in FRONTENDS))
    parser.add_argument("--engines", help=",".join(side.name for side in ENGINES))
    parser.add_argument("--model", type=Path, default=paths.models / "smollm2")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds to wait for a pair to be ready (300)")
    parser.add_argument("--json", type=Path, help="write all results there")
    args = parser.parse_args()
    cells = []
    with scratch_folder("interop") as folder:
        for engine in _chosen(ENGINES, args.engines, parser):
            for frontend in _chosen(FRONTENDS, args.frontends, parser):
                places = Places(paths, args.model.resolve(), free_port(), free_port())
                cell = run_cell(frontend, engine, places, folder, args.timeout)
                cells.append(cell)
                print(f"{frontend.title}, {engine.title}: {cell.words()}", flush=True)
                for check, why in cell.failed.items():
                    print(f"    {check}: {why}", flush=True)
    print("\n" + table(cells))
    different = disagreements(cells)
    for line in different:
        print(line)
    if args.json is not None:
        args.json.write_text(json.dumps([asdict(cell) for cell in cells], indent=1))
    return 1 if different or any(cell.failed for cell in cells) else 0


def _chosen(sides: tuple[Side, ...], names: str | None, parser: argparse.ArgumentParser) -> list[Side]:
    if names is None:
        return list(sides)
    known = {side.name: side for side in sides}
    for name in names.split(","):
        if name not in known:
            parser.error(f"{name} is none of {', '.join(known)}")
    return [known[name] for name in names.split(",")]


if __name__ == "__main__":
    sys.exit(main())
