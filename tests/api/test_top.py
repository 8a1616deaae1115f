"""`fastfront top` beside a running server."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import termios

import pytest

from tests.support.http1 import post
from tests.support.metrics import gauges
from tests.support.mock import MockEngine, scripted
from tests.support.paths import FASTFRONT, environment
from tests.support.server import COMPLETIONS, Server
from tests.support.tokens import Pieces
from tests.support.waiting import wait_for


def command(server: Server, *flags: str) -> list[str]:
    return [str(FASTFRONT), "top", "--url", f"http://127.0.0.1:{server.port}/", *flags]


def test_one_frame(server: Server, mock: MockEngine, pieces: Pieces) -> None:
    connections = [server.connect() for _ in range(3)]
    for connection in connections:
        connection.send(post(COMPLETIONS, {"prompt": [5], "stream": True, **scripted(pieces.byte_level("a"))}))
        connection.response_head()
    wait_for(lambda: gauges(server)[:2] == (3, 0), "three running requests")
    done = subprocess.run(
        command(server, "--once", "--interval", "0.1"), capture_output=True, text=True, timeout=60, check=True, env=environment()
    )
    for connection in connections:
        connection.close()
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"fastfront top  http://127.0.0.1:{server.port}  smollm2  ")
    assert "streams 3" in lines[2]
    assert done.stdout.count("░") + done.stdout.count("█") >= 20, "a bar for the lane and one for the engine"
    assert re.search(r"^ +0 +3 +0 .* up$", done.stdout, re.M), "the engine's row"
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize("how", ["q", "SIGINT", "SIGTERM"])
def test_a_terminal_is_left_as_it_was(server: Server, how: str) -> None:
    outer, inner = pty.openpty()
    kept = termios.tcgetattr(inner)
    process = subprocess.Popen(command(server, "--interval", "0.1"), stdin=inner, stdout=inner, stderr=inner, env=environment())
    seen = b""

    def shown(what: bytes) -> bool:
        nonlocal seen
        if what not in seen:
            seen += os.read(outer, 65536)
        return what in seen

    try:
        wait_for(lambda: shown(b"\x1b[?1049h"), "the other screen")
        wait_for(lambda: shown(b"streams"), "a frame")
        assert termios.tcgetattr(inner)[3] != kept[3], "keys come without Enter"
        if how == "q":
            os.write(outer, b"q")
        else:
            process.send_signal(getattr(signal, how))
        wait_for(lambda: shown(b"\x1b[?1049l"), "the old screen")
        assert process.wait(60) == 0
        assert termios.tcgetattr(inner) == kept
    finally:
        process.kill()
        process.wait()
        os.close(inner)
        os.close(outer)


def followed(server: Server) -> subprocess.Popen[str]:
    """Without a terminal; it is asked for frames again and again, which go to its standard output."""
    return subprocess.Popen(
        command(server, "--interval", "0.1"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    )


def test_without_a_terminal_frames_follow_each_other(server: Server) -> None:
    with followed(server) as process:
        try:
            assert process.stdout is not None
            seen = [next(line for line in process.stdout if line.startswith("fastfront top")) for _ in range(2)]
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        finally:
            process.kill()
    assert len(seen) == 2


def test_it_ends_when_nobody_reads(server: Server) -> None:
    with followed(server) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline()
            process.stdout.close()
            assert process.wait(60) == 0
            assert process.stderr.read() == ""
        finally:
            process.kill()
