"""Ranks that step together: when one starts the others are told, once, and by its number of the wave."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from typing import Any

import pytest
import zmq

from fastfront._speedups.msgpack import packb, unpackb
from fastfront.engine_client.coordinator import Coordinator, Start, Waves, free_ports, take_report
from fastfront.engine_client.handshake import Together, init_message
from fastfront.engine_client.head import read_init
from fastfront.errors import EngineError

Said = tuple[int, int | None, int | None]  # engine, wave_complete, start_wave


@pytest.mark.parametrize(
    ("said", "orders", "wave", "running"),
    [
        ([(1, None, 0)], [Start(0, 1)], 0, True),
        ([(1, None, 0), (0, None, 0)], [Start(0, 1)], 0, True),  # rank 0 tells that it has been started
        ([(1, None, 0), (0, 0, None), (2, None, 1)], [Start(0, 1), Start(1, 2)], 1, True),
        ([(1, None, 0), (2, None, 1), (0, 0, None)], [Start(0, 1), Start(1, 2)], 1, True),  # the end of a wave is told late
        ([(0, 3, None)], [], 4, False),
        ([(0, 3, None), (1, None, 2)], [], 4, False),  # a start that all have seen the end of
        ([(0, 3, None), (0, 3, None)], [], 4, False),
        ([(0, None, None)], [], 0, False),
    ],
)
def test_waves(said: list[Said], orders: list[Start], wave: int, running: bool) -> None:
    waves = Waves()
    assert [order for one in said if (order := waves.report(*one)) is not None] == orders
    assert (waves.wave, waves.running) == (wave, running)


def message(engine: Any, complete: Any = None, start: Any = None, stats: Any = None) -> bytes:
    return packb([engine, [], stats, 1.0, None, None, complete, start, None])


@pytest.mark.parametrize("bad", [b"", b"\xc1", packb(5), packb([]), packb(["x", []]), packb([0, []]), message(0, "x", "y")])
def test_what_is_no_report_starts_nothing(bad: bytes) -> None:
    orders: list[Start] = []
    waves = Waves()
    take_report(bad, waves, orders.append)
    assert orders == []
    take_report(message(1, start=0, stats={"num_running_reqs": 1}), waves, orders.append)
    assert orders == [Start(0, 1)]


class Engine:
    """An engine's two sockets towards the coordinator."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], coordinator: Coordinator) -> None:
        self.orders, self.reports = context.socket(zmq.XSUB), context.socket(zmq.PUSH)
        self.orders.connect(coordinator.orders_address)
        self.reports.connect(coordinator.reports_address)
        self.orders.send(b"\x01")

    def close(self) -> None:
        self.orders.close(linger=0)
        self.reports.close(linger=0)

    def order(self) -> list[bytes]:
        assert self.orders.poll(60_000)
        return self.orders.recv_multipart()


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    yield context
    context.destroy(linger=0)


def test_engines_are_ready_together_and_started_by_the_first(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    own: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    coordinator = Coordinator(own, "127.0.0.1", 2)
    coordinator.start()
    first = Engine(context, coordinator)
    assert not first.orders.poll(100)  # not while the other is missing
    second = Engine(context, coordinator)
    assert first.order() == second.order() == [b"READY"]
    second.reports.send(message(1, stats={"num_running_reqs": 1}))
    second.reports.send(message(1, start=0))
    for engine in (first, second):
        kind, order = engine.order()
        assert (kind, unpackb(order)) == (b"\x02", [0, 1])
        engine.close()
    own.term()  # when its thread has closed its sockets


def test_what_engines_are_told(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    coordinator = Coordinator(context, "127.0.0.1", 3)
    told = unpackb(init_message([], coordinator.together()))
    addresses = told["addresses"]
    assert addresses["coordinator_input"] != addresses["coordinator_output"]
    for key in ("coordinator_input", "coordinator_output"):
        assert re.fullmatch(r"tcp://127\.0\.0\.1:\d+", addresses[key])
    config = told["parallel_config"]
    ports = [config.pop("data_parallel_master_port"), *config.pop("_data_parallel_master_port_list")]
    assert len(set(ports)) == 6
    assert config == {"data_parallel_master_ip": "127.0.0.1", "_coord_store_port": 0, "data_parallel_size": 3}
    coordinator.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_ports_are_free(host: str) -> None:
    ports = free_ports(host, 4)
    assert len(set(ports)) == 4
    for port in ports:
        socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()


def test_a_frontend_elsewhere_learns_of_the_coordinator() -> None:
    together = Together("tcp://a:1", "tcp://a:2", {"data_parallel_size": 2})
    assert read_init(init_message([], together), "tcp://a:3") == together


@pytest.mark.parametrize("bad", [b"", b"\xc1", packb(5), packb({}), init_message([]), packb({"addresses": []})])
def test_a_head_without_a_coordinator_is_named(bad: bytes) -> None:
    with pytest.raises(EngineError, match="tcp://a:3 has no coordinator"):
        read_init(bad, "tcp://a:3")
