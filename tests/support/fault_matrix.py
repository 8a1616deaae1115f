"""kill -9 of each kind of process of a server with two engines of two workers: what happens, and what is left.

    .venv-engine/bin/python -m tests.support.fault_matrix      prints the table
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tests.support.paths import SMOLLM2
from tests.support.processes import session_members, shared_memory, socket_inodes, title, unix_sockets
from tests.support.server import COMPLETIONS, Server
from tests.support.sse import frames
from tests.support.waiting import wait_for
from tools.scratch import scratch_folder

FLAGS = (
    "--data-parallel-size", "2", "--tensor-parallel-size", "2", "--engine-restarts", "9", "--max-model-len", "512",
    "--max-num-seqs", "8", "--num-gpu-blocks-override", "256", "--dtype", "float32", "--served-model-name", "m",
    "--", "--threads", "1",
)  # fmt: skip
VICTIMS = ("fastfront::worker-0-1", "fastfront::worker-0-0", "fastfront::engine-core-1", "fastfront serve")
LIMIT_S = 180.0  # an engine takes seconds to start, where others compute more


@dataclass(frozen=True, slots=True)
class Row:
    """What came of one kill. Seconds are from the kill."""

    victim: str
    its_streams: str  # how the streams of the engine that was hit ended
    other_streams: str  # and those of the other engine
    streams_s: float  # until the former had ended
    health: str  # /health right after, and at the end
    again_s: float | None  # until all engines served again
    processes_left: int  # of those that are not meant to be there
    shared_memory_left: int  # segments of the engine that was hit
    sockets_left: int


def tiny_folder(folder: Path) -> Path:
    """A random model with few parameters, and SmolLM2's tokenizer."""
    from tests.engine.tiny import save_tiny  # noqa: PLC0415 - torch takes seconds

    save_tiny("llama", folder, vocab_size=49152)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(SMOLLM2 / name, folder / name)
    return folder


def processes(server: Server) -> dict[str, int]:
    """The server's processes that have a title of ours."""
    found = {pid: title(pid) for pid, state in session_members(server.pid).items() if state not in "ZX"}
    return {name: pid for pid, name in found.items() if name.startswith("fastfront")}


def segments() -> set[str]:
    """Shared memory of fastfront on this machine."""
    return {name for name in shared_memory() if name.startswith("fastfront")}


def bound_by(pids: set[int]) -> set[str]:
    """Unix sockets of these processes."""
    return unix_sockets({inode for pid in pids for inode in socket_inodes(pid)})


class Streams:
    """Some endless streams on each engine, read by threads."""

    def __init__(self, server: Server) -> None:
        self.ends: dict[tuple[int, int], tuple[str, float]] = {}
        started = threading.Barrier(5)
        self._threads = [
            threading.Thread(target=self._read, args=(server, rank, k, started)) for rank in range(2) for k in range(2)
        ]
        for thread in self._threads:
            thread.start()
        started.wait(LIMIT_S)

    def _read(self, server: Server, rank: int, number: int, started: threading.Barrier) -> None:
        body: dict[str, Any] = {"model": "m", "prompt": "hello", "max_tokens": 400, "ignore_eos": True, "stream": True}
        text, end = b"", "whole"
        with server.client.stream("POST", COMPLETIONS, json=body, headers={"X-data-parallel-rank": str(rank)}) as response:
            try:
                for piece in response.iter_raw():
                    if not text:
                        started.wait(LIMIT_S)
                    text += piece
            except Exception as error:
                end = f"cut off ({type(error).__name__})"
        if response.status_code != 200:
            end = f"HTTP {response.status_code}"
        elif end == "whole":
            *_, last, done = frames(text)
            end = ("error event, [DONE]" if '"error"' in last else "whole") if done == "[DONE]" else "cut"
        self.ends[rank, number] = end, time.monotonic()

    def of(self, rank: int) -> tuple[str, float]:
        """How the rank's streams ended, and when the last did."""
        found = [self.ends[rank, number] for number in range(2)]
        return " / ".join(sorted({end for end, _ in found})), max(at for _, at in found)

    def join(self) -> None:
        for thread in self._threads:
            thread.join(LIMIT_S)
            assert not thread.is_alive(), "a stream hangs"


def ready_again(server: Server, count: int) -> bool:
    return server.log().count("is ready again") == count


def kill(server: Server, victim: str, before: set[str]) -> Row:
    """Kills one process under load. `before` are the segments that were there before the server."""
    was = processes(server)
    pid = next(pid for name, pid in was.items() if name.startswith(victim))
    rank = int(victim.split("-")[2 if "core" in victim else 1]) if "::" in victim else -1
    hit = {
        pid for name, pid in was.items() if rank < 0 or f"core-{rank}" in name or f"worker-{rank}-" in name
    }  # fmt: skip
    sockets = bound_by(hit)
    count = server.log().count("is ready again")
    mine = segments() - before
    streams = Streams(server)
    began = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    health = ""
    if rank >= 0:
        health = str(server.get("/health").status_code)
    streams.join()
    its, ended = streams.of(max(rank, 0))
    others, _ = streams.of(1 - max(rank, 0))
    again = None
    if rank >= 0:
        wait_for(lambda: ready_again(server, count + 1), "the engine to come again", LIMIT_S)
        again = time.monotonic() - began
        health += f", {server.get('/health').status_code}"
        assert server.post(COMPLETIONS, {"model": "m", "prompt": "x", "max_tokens": 1}).status_code == 200
    else:
        server.process.wait()
        wait_for(lambda: not session_members(server.pid), "the end of all processes", LIMIT_S)
        mine = segments() - before
    now = set(processes(server).values())
    gone = segments()
    return Row(
        victim, its, others, ended - began, health or "-", again,
        processes_left=len(hit & now),
        shared_memory_left=len(mine & gone) if rank < 0 else len(gone - before) - len(mine),
        sockets_left=len(sockets & unix_sockets()) if rank < 0 else len((sockets & unix_sockets()) - bound_by(now)),
    )  # fmt: skip


def run(server: Server, before: set[str], victims: Sequence[str] = VICTIMS) -> list[Row]:
    """Kills the victims one after another, of a server that is ready. `before` are the segments that were there before it."""
    for _ in range(2):  # the first forward pass takes its time
        assert server.post(COMPLETIONS, {"model": "m", "prompt": "x", "max_tokens": 2}).status_code == 200
    return [kill(server, victim, before) for victim in victims]


def table(rows: list[Row]) -> str:
    """Markdown."""
    names = [field.name for field in fields(Row)]
    lines = ["| " + " | ".join(name.replace("_", " ") for name in names) + " |", "|---" * len(names) + "|"]
    for row in rows:
        values = [getattr(row, name) for name in names]
        lines.append("| " + " | ".join(f"{value:.2f}" if isinstance(value, float) else str(value) for value in values) + " |")
    return "\n".join(lines)


def main() -> int:
    with scratch_folder("faults") as folder:
        (folder / "model").mkdir()
        before = segments()
        with Server(folder, *FLAGS, model=tiny_folder(folder / "model")) as server:
            try:
                print(table(run(server.wait_ready(300), before)))
            except BaseException:
                print(server.log(), file=sys.stderr)
                raise
    return 0


if __name__ == "__main__":
    sys.exit(main())
