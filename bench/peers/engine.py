"""The mock engine that every frontend but the floor is put in front of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import zmq

from bench.peers.processes import Child, PeerFailed
from tools.setup.paths import Paths

_ANSWER_MS = 10_000


class MockEngine:
    """One mock engine, which joins the frontend at `rpc_port` whenever that comes up. Used by one thread."""

    def __init__(self, paths: Paths, folder: Path, name: str, rpc_port: int, step_ms: float, vocab: int) -> None:
        """`folder` takes its log and its control socket; `name` is that of the frontend."""
        self._control = f"ipc://{folder}/{name}-engine"
        command = [str(paths.engine_venv / "bin" / "python"), "-m", "engine.mock", "--headless", "--linger-s", "0"]
        command += ["--control", self._control, "--data-parallel-rpc-port", str(rpc_port)]
        command += ["--step-ms", str(step_ms), "--vocab", str(vocab)]
        self.child = Child(f"{name}-engine", command, folder / f"{name}-engine.log")

    def clock(self, step_ms: float) -> None:
        """Set the length of a step, 0: as fast as it can."""
        self._order({"cmd": "clock", "step_ms": step_ms})

    def counts(self) -> dict[str, Any]:
        """running, waiting, adds, aborts, steps, tokens as of now."""
        return self._order({"cmd": "counts"})

    def _order(self, command: dict[str, object]) -> dict[str, Any]:
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
        with context.socket(zmq.REQ) as socket:
            socket.setsockopt(zmq.LINGER, 0)
            socket.connect(self._control)
            socket.send_json(command)
            if not socket.poll(_ANSWER_MS):
                self.child.check()
                raise PeerFailed(f"{self.child.name} does not answer\n{self.child.tail()}")
            answer = socket.recv_json()
        if not isinstance(answer, dict) or not answer.get("ok"):
            raise PeerFailed(f"{self.child.name}: {command}: {answer}")
        return answer
