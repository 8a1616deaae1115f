"""The GIL stays off for the whole life of the frontend, and no warning says otherwise."""

from __future__ import annotations

import os
import signal
import sys
import sysconfig

import pytest

from tests.support.fixtures import StartServer
from tests.support.mock import scripted
from tests.support.processes import thread_titles
from tests.support.server import HELLO, Server
from tests.support.waiting import wait_for

pytestmark = pytest.mark.skipif(
    not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this interpreter has no GIL to leave off"
)

PROGRAM = """
import os, signal, sys, threading
def tell(*_):
    names = sorted(thread.name for thread in threading.enumerate())
    os.write(2, f"GIL {sys._is_gil_enabled()} asyncio {'asyncio' in sys.modules} threads {names}\\n".encode())
signal.signal(signal.SIGUSR1, tell)
from fastfront.cli.main import main
sys.exit(main())
"""


def state(server: Server) -> str:
    """What the process says of itself."""
    before = server.log().count("GIL ")
    os.kill(server.pid, signal.SIGUSR1)
    wait_for(lambda: server.log().count("GIL ") > before, "an answer to the signal")
    return [line for line in server.log().splitlines() if line.startswith("GIL ")][-1]


def test_c75_the_gil_stays_off(start: StartServer, a: int) -> None:
    """After start-up, and after every kind of request."""
    server = start(program=(sys.executable, "-c", PROGRAM)).wait_ready()
    assert state(server).startswith("GIL False")
    script = scripted(a, a, then="stop")
    for stream in (False, True):
        assert server.chat(script, stream=stream).status_code == 200
        assert server.completion(script, stream=stream, n=2).status_code == 200
    assert server.chat(script, stop=["x"], temperature=0.5, logit_bias={"5": 1}, bad_words=["no"]).status_code == 200
    assert server.chat(temperature="hot").status_code == 400
    assert server.post("/v1/completions", b"{").status_code == 400
    for path in ("/health", "/ping", "/version", "/v1/models", "/metrics"):
        assert server.get(path).status_code == 200
    tokens = server.post("/tokenize", {"messages": HELLO}).json()["tokens"]
    assert server.post("/detokenize", {"tokens": tokens}).status_code == 200
    assert server.get("/nope").status_code == 404
    assert state(server).startswith("GIL False")
    assert "Warning" not in server.log()


def test_one_process_serves(start: StartServer) -> None:
    """Besides the engine there is one process, whatever the number of threads."""
    server = start("--lanes", "2", "--request-threads", "3").wait_ready()
    assert len(server.engine_pids()) == 1


def test_every_thread_has_a_title_of_its_own(start: StartServer) -> None:
    """As the system shows them (`top -H`); libzmq names its two itself."""
    server = start("--lanes", "2", "--request-threads", "2").wait_ready()
    own = {"http-0", "http-1", "request-0", "request-1", "lane-0", "lane-1", "engine-watcher", "engine-joiner", "metrics", "gc"}
    expected = own | {"access-log", "stats-log", "fastfront serve", "ZMQbg/Reaper", "ZMQbg/IO/0"}
    wait_for(lambda: sorted(thread_titles(server.pid)) == sorted(expected), "titles")
