"""The floor: bench/peers/floor.c, compiled once per source into the cache."""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
from pathlib import Path

from bench.peers.base import Peer, Running, Setting, wait_healthy
from bench.peers.processes import Child, PeerFailed
from bench.ports import free_port
from tools.setup.machine import compiler
from tools.setup.paths import Paths

_SOURCE = Path(__file__).with_name("floor.c")


def problem(paths: Paths) -> str | None:
    """Why the floor cannot be had here."""
    return None if compiler() else "there is no C compiler (cc)"


def compiled(paths: Paths) -> Path:
    """The executable of the current source."""
    source = _SOURCE.read_bytes()
    target = paths.peers / f"floor-{hashlib.sha256(source).hexdigest()[:12]}"
    if not target.exists():
        cc = compiler()
        if cc is None:
            raise PeerFailed("floor: there is no C compiler (cc)")
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = target.with_name(f"{target.name}.{os.getpid()}")
        done = subprocess.run([cc, "-O2", "-o", str(unfinished), str(_SOURCE)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise PeerFailed(f"floor: {cc} failed:\n{done.stderr}")
        unfinished.replace(target)
    return target


def start(setting: Setting) -> Running:
    """The floor; it keeps the clock itself."""
    port = free_port()
    command = [str(compiled(setting.paths)), str(port), str(setting.step_ms)]
    began = time.monotonic()
    front = Child("floor", command, setting.folder / "floor.log", stdin=True)
    try:
        ready = wait_healthy(port, [front], setting.ready_timeout_s)
    except BaseException:
        front.stop()
        raise
    return Running("floor", port, front, None, ready - began)


FLOOR = Peer("floor", "floor (C, one write per token)", start, problem, lambda paths: "1")
