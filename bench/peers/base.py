"""What a peer is, and what is known of a running one."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.peers.engine import MockEngine
from bench.peers.processes import Child, PeerFailed
from tools.setup.paths import Paths

SERVED = "m"
"""The model's name in requests."""
TOOL_PARSER = "hermes"
"""What reads tool calls in answers to requests that have tools; others have nothing to do with it."""
_HEALTH_POLL_S = 0.01
_HEALTH_TIMEOUT_S = 2.0


@dataclass(frozen=True)
class Setting:
    """What all peers of a run have in common. `folder` takes logs and sockets; `vocab` bounds the engine's token ids."""

    paths: Paths
    model: Path
    folder: Path
    step_ms: float = 10.0
    vocab: int = 30_000
    ready_timeout_s: float = 300.0


@dataclass
class Running:
    """A frontend that serves, and the engine behind it (none: the floor makes its tokens itself).

    `front.pid` is the root of the process tree whose cost counts. Leaving the context stops everything.
    """

    name: str
    port: int
    front: Child
    engine: MockEngine | None
    ready_s: float
    complaints: list[str] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def check(self) -> None:
        """`PeerFailed` if one of the processes has ended."""
        self.front.check()
        if self.engine is not None:
            self.engine.child.check()

    def clock(self, step_ms: float) -> None:
        """Set the length of the engine's steps, 0: as fast as it can. The floor takes it on standard input."""
        if self.engine is not None:
            self.engine.clock(step_ms)
        else:
            self.front.tell(str(step_ms))

    def stop(self) -> None:
        """End frontend and engine; what did not go well is added to `complaints`."""
        self.complaints += self.front.stop()
        if self.engine is not None:
            self.complaints += self.engine.child.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()


@dataclass(frozen=True)
class Peer:
    """One way to serve. `problem` says why it cannot be had here, or None; `start` returns when it answers /health."""

    name: str
    title: str
    start: Callable[[Setting], Running]
    problem: Callable[[Paths], str | None]
    version: Callable[[Paths], str]


def wait_healthy(port: int, children: Sequence[Child], timeout_s: float) -> float:
    """Wait until `GET /health` answers 200; the moment on `time.monotonic`. `PeerFailed` when a child ends before."""
    until = time.monotonic() + timeout_s
    while True:
        for child in children:
            child.check()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_HEALTH_TIMEOUT_S)
        try:
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return time.monotonic()
        except (OSError, http.client.HTTPException):
            pass
        finally:
            connection.close()
        if time.monotonic() > until:
            logs = "\n".join(f"{child.name}:\n{child.tail()}" for child in children)
            raise PeerFailed(f"not ready after {timeout_s:.0f} s\n{logs}")
        time.sleep(_HEALTH_POLL_S)


def start_in_front(name: str, setting: Setting, argv: Sequence[str], port: int, rpc_port: int, env: dict[str, str]) -> Running:
    """Start a frontend that waits for its engine at `rpc_port`, then the engine; return when both serve."""
    began = time.monotonic()
    front = Child(name, argv, setting.folder / f"{name}.log", env)
    children = [front]
    try:
        engine = MockEngine(setting.paths, setting.folder, name, rpc_port, setting.step_ms, setting.vocab)
        children.append(engine.child)
        ready = wait_healthy(port, children, setting.ready_timeout_s)
    except BaseException:
        for child in children:
            child.stop()
        raise
    return Running(name, port, front, engine, ready - began)
