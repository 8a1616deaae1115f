"""Instructions that requests take in fastfront, counted by valgrind: the same on a busy machine as on a quiet one.

    python -m bench.request [--requests 300] [--streams 16] [--prompt-tokens 30] [--max-tokens 1] [--root CLONE] [--keep DIR]
                            [--flags="..."] [--extra JSON]

A server under callgrind in front of the mock engine without a step clock; after a warm-up, the instructions of every thread
during so many requests. What the kernel does for it does not count. `--keep` has the files for `callgrind_annotate`. Making
a request ready alone: `bench/prepare.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.load import Load
from bench.load.run import run
from bench.peers.base import SERVED, wait_healthy
from bench.peers.engine import MockEngine
from bench.peers.processes import Child, PeerFailed
from bench.ports import free_port
from tools.scratch import scratch_folder
from tools.setup.paths import Paths, find_paths

_READY_S = 120.0
_DUMP_S = 20.0
_FEWEST = 100.0  # instructions per request of a thread that is shown


@contextmanager
def counted_server(paths: Paths, root: Path, folder: Path, flags: Sequence[str]) -> Iterator[tuple[int, Child]]:
    """A server of the clone at `root` under callgrind, which counts nothing yet: its port and process."""
    port, rpc_port = free_port(), free_port()
    valgrind = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--separate-threads=yes"]
    valgrind += [f"--callgrind-out-file={folder}/out"]
    python, script = (str(root / ".venv" / "bin" / name) for name in ("python", "fastfront"))
    serve = ["serve", str(paths.models / "smollm2"), "--served-model-name", SERVED, "--host", "127.0.0.1", "--port", str(port)]
    away = ["--data-parallel-size-local", "0", "--data-parallel-address", "127.0.0.1", "--data-parallel-rpc-port", str(rpc_port)]
    children = [Child("fastfront", [*valgrind, python, script, *serve, *away, *flags], folder / "server.log")]
    try:
        engine = MockEngine(paths, folder, "counted", rpc_port, 0.0, 30_000)
        children.append(engine.child)
        wait_healthy(port, children, _READY_S)
        yield port, children[0]
    finally:
        for child in children:
            child.stop()


def count(paths: Paths, root: Path, folder: Path, load: dict[str, Any], flags: Sequence[str]) -> dict[str, float]:
    """Instructions per request by thread."""
    with counted_server(paths, root, folder, flags) as (port, server):
        asked = Load(port=port, progress=False, **load)
        run(asked)
        threads = thread_names(server.pid)
        _control("-i", "on", server.pid)
        run(asked)
        _control("-i", "off", server.pid)
        _control("-d", "", server.pid)
        totals = _totals(folder, len(threads))
    return {f"{name} ({k})": total / asked.requests for k, (name, total) in enumerate(zip(threads, totals, strict=True), 1)}


def thread_names(pid: int) -> list[str]:
    """Names of a process's threads in the order in which they were started."""
    tasks = sorted((int(task.name), task) for task in Path(f"/proc/{pid}/task").iterdir())
    return [(task / "comm").read_text().strip() for _, task in tasks]


def _control(option: str, value: str, pid: int) -> None:
    subprocess.run(["callgrind_control", option, *([value] if value else []), str(pid)], check=True, capture_output=True)


def _totals(folder: Path, threads: int) -> list[int]:
    """The sums of the newest dump's files, one per thread; it is written while the server goes on."""
    until = time.monotonic() + _DUMP_S
    while time.monotonic() < until:
        texts = [(folder / f"out.1-{k:02d}") for k in range(1, threads + 1)]
        found = [re.findall(r"^totals: (\d+)", path.read_text(errors="replace"), re.M) if path.exists() else [] for path in texts]
        if all(found):
            return [int(totals[-1]) for totals in found]
        time.sleep(0.1)
    raise SystemExit(f"callgrind wrote no figures of all {threads} threads to {folder}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.request", description="Instructions that requests take, by thread.")
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--prompt-tokens", type=int, default=30)
    parser.add_argument("--max-tokens", type=int, default=1)
    parser.add_argument("--root", type=Path, help="another clone, to compare with")
    parser.add_argument("--keep", type=Path, help="folder for callgrind's files")
    parser.add_argument("--flags", default="--disable-uvicorn-access-log", help="of the server; a leading dash needs --flags=...")
    parser.add_argument("--extra", type=json.loads, default={}, help="further fields of the requests, as JSON")
    arguments = parser.parse_args()
    if shutil.which("valgrind") is None:
        parser.error("valgrind is not installed")
    paths = find_paths(os.environ)
    names = ("requests", "streams", "prompt_tokens", "max_tokens", "extra")
    load = {name: getattr(arguments, name) for name in names}
    with scratch_folder("request") as temporary:
        folder = (arguments.keep or temporary).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        root = (arguments.root or paths.root).resolve()
        try:
            counted = count(paths, root, folder, load, shlex.split(arguments.flags))
        except PeerFailed as error:
            print(f"bench.request: {error}", file=sys.stderr)
            return 1
    for thread, instructions in counted.items():
        if instructions >= _FEWEST:
            print(f"{thread:24} {instructions:12,.0f}")
    print(f"{'all':24} {sum(counted.values()):12,.0f} instructions per request")
    return 0


if __name__ == "__main__":
    sys.exit(main())
