"""Engines behind a data-parallel coordinator list finished requests and report their load; mock and real engine alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from tests.engine.conftest import Spawn
from tests.engine.wire_frontend import WireFrontend

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture
def wire(tmp_path: Path) -> Iterator[WireFrontend]:
    (tmp_path / "dp").mkdir()
    with WireFrontend(tmp_path / "dp", coordinator=True) as frontend:
        yield frontend


@pytest.mark.parametrize("kind", ["mock", "core"])
def test_finished_requests_and_load(wire: WireFrontend, spawn: Spawn, tiny_model: Callable[..., Path], kind: str) -> None:
    args = ("engine.mock", "--tokens", "echo", "--step-ms", 10) if kind == "mock" else ("engine", tiny_model("llama"))
    spawn(*args, handshake=wire.handshake_address)
    ready = wire.accept()
    assert ready["dp_stats_address"] == "ipc:///stats"
    assert wire.coordinator is not None
    publish, reports = wire.coordinator
    assert publish.recv() == b"\x01"
    publish.send(b"READY")
    publish.send_multipart([b"\x02", msgspec.msgpack.encode([0, None])])
    # First the one that stays for long: the other comes while it runs.
    wire.add("gone", [11, 12], {"max_tokens": 400, "temperature": 0.0})
    wire.add("done", [11, 12], {"max_tokens": 3, "temperature": 0.0})
    wire.finish("done")
    wire.abort("gone")
    wire.until(lambda: sorted(wire.finished) == ["done", "gone"])
    loads: list[tuple[int, int]] = []
    while not loads or loads[-1] != (0, 0):
        assert reports.poll(60_000)
        index, outputs, stats, *rest = msgspec.msgpack.decode(reports.recv())
        assert (index, outputs, len(stats)) == (0, [], 18)
        assert rest[1:] == [None] * 5
        loads.append((stats["num_running_reqs"], stats["num_waiting_reqs"]))
    assert max(running for running, _ in loads) == 2
