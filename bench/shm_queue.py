"""The engine's shared-memory ring against multiprocessing.Queue and ZeroMQ over ipc.

    .venv-engine/bin/python -m bench.shm_queue [--sizes 1024,65536] [--readers 1,2] [--rounds N] [--json FILE]

One writer, readers in processes of their own, every message to every reader. Latency is from before the writer's call
to after the reader's, messages sent at a fixed pace, so that readers have to wait for each one. Throughput is flat
out, until the last reader has the last message. The variants take turns in several rounds, all samples count.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import zmq

from bench.machine import commit, machine
from engine.shm.ring import RingReader, RingWriter
from engine.shm.segment import create

CAPACITY = 4 << 20
WARM_UP = 200
_STAMP = 8


class Queue(ABC):
    """One way to hand messages to readers. Made before the readers' processes are forked off."""

    def __init__(self, readers: int) -> None:
        self.readers = readers

    @abstractmethod
    def reader(self, number: int) -> Callable[[], Any]:
        """In a reader's process: what takes the next message."""

    @abstractmethod
    def writer(self) -> Callable[[bytes], Any]:
        """In the writer's process, after the readers have started: what sends to all."""

    @abstractmethod
    def close(self) -> None:
        """By the writer, at the end."""


class Ring(Queue):
    def __init__(self, readers: int) -> None:
        super().__init__(readers)
        self._writer = RingWriter(create(readers, CAPACITY))

    def reader(self, number: int) -> Callable[[], Any]:
        return RingReader(os.dup(self._writer.fd), number).receive

    def writer(self) -> Callable[[bytes], Any]:
        return self._writer.send

    def close(self) -> None:
        self._writer.close()


class MultiprocessingQueue(Queue):
    def __init__(self, readers: int) -> None:
        super().__init__(readers)
        self._queues = [multiprocessing.get_context("fork").Queue() for _ in range(readers)]

    def reader(self, number: int) -> Callable[[], Any]:
        return self._queues[number].get

    def writer(self) -> Callable[[bytes], Any]:
        if self.readers == 1:
            return self._queues[0].put
        queues = self._queues

        def send(message: bytes) -> None:
            for queue in queues:
                queue.put(message)

        return send

    def close(self) -> None:
        for queue in self._queues:
            queue.close()
            queue.join_thread()


class ZmqIpc(Queue):
    def __init__(self, readers: int) -> None:
        super().__init__(readers)
        self._folder = tempfile.TemporaryDirectory()
        self._address = f"ipc://{self._folder.name}/queue"
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None

    def reader(self, number: int) -> Callable[[], Any]:
        self._context = zmq.Context()
        socket = self._context.socket(zmq.SUB)
        socket.setsockopt(zmq.RCVHWM, 0)
        socket.setsockopt(zmq.SUBSCRIBE, b"")
        socket.connect(self._address)
        return socket.recv

    def writer(self) -> Callable[[bytes], Any]:
        self._context = zmq.Context()
        socket = self._context.socket(zmq.XPUB)
        socket.setsockopt(zmq.SNDHWM, 0)
        socket.setsockopt(zmq.XPUB_VERBOSE, 1)
        socket.bind(self._address)
        for _ in range(self.readers):
            socket.recv()
        return socket.send

    def close(self) -> None:
        if self._context is not None:
            self._context.destroy(linger=1000)
        self._folder.cleanup()


VARIANTS: dict[str, type[Queue]] = {"ring": Ring, "mp.Queue": MultiprocessingQueue, "zmq ipc": ZmqIpc}


def _read(queue: Queue, number: int, paced: int, burst: int, pipe: Connection) -> None:
    receive = queue.reader(number)
    latencies = []
    pipe.send("there")
    for _ in range(paced):
        message = receive()
        latencies.append(time.perf_counter_ns() - int.from_bytes(message[:_STAMP], "little"))
    pipe.send(latencies)
    spent = time.process_time_ns()
    for _ in range(burst):
        receive()
    pipe.send((time.perf_counter_ns(), time.process_time_ns() - spent))
    pipe.recv()
    os._exit(0)


def run_round(kind: str, size: int, readers: int, paced: int, burst: int, pace_s: float) -> tuple[list[float], float, float]:
    """Latencies in us of all readers together; messages/s flat out, and all processes' CPU time in us per message of that."""
    queue = VARIANTS[kind](readers)
    fork = multiprocessing.get_context("fork")
    pipes, processes = [], []
    for number in range(readers):
        ours, theirs = fork.Pipe()
        process = fork.Process(target=_read, args=(queue, number, paced + WARM_UP, burst, theirs), daemon=True)
        process.start()
        pipes.append(ours)
        processes.append(process)
    send = queue.writer()
    for pipe in pipes:
        pipe.recv()
    rest = bytes(size - _STAMP)
    for _ in range(paced + WARM_UP):
        time.sleep(pace_s)
        send(time.perf_counter_ns().to_bytes(_STAMP, "little") + rest)
    latencies = [value / 1000 for pipe in pipes for value in pipe.recv()[WARM_UP:]]
    message = bytes(size)
    begin, spent = time.perf_counter_ns(), time.process_time_ns()
    for _ in range(burst):
        send(message)
    ends, spent_reading = zip(*(pipe.recv() for pipe in pipes), strict=True)
    cpu_ns = time.process_time_ns() - spent + sum(spent_reading)
    for pipe, process in zip(pipes, processes, strict=True):
        pipe.send("leave")
        process.join()
    queue.close()
    return latencies, burst / (max(ends) - begin) * 1e9, cpu_ns / 1000 / burst


def main(argv: list[str]) -> int:
    ap = argparse.ArgumentParser("bench.shm_queue")
    ap.add_argument("--sizes", default="1024,65536", help="bytes per message")
    ap.add_argument("--readers", default="1,2")
    ap.add_argument("--paced", type=int, default=2000, metavar="N", help="messages per round whose latency is taken")
    ap.add_argument("--burst", type=int, default=20_000, metavar="N", help="messages per round flat out")
    ap.add_argument("--pace-us", type=float, default=300.0, metavar="US", help="time between paced messages")
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--json", type=Path, metavar="FILE")
    args = ap.parse_args(argv)
    results = []
    print(f"{'queue':<10} {'bytes':>6} {'readers':>7} {'p50 us':>8} {'p99 us':>8} {'messages/s':>11} {'MB/s':>8} {'CPU us':>8}")
    for size in map(int, args.sizes.split(",")):
        for readers in map(int, args.readers.split(",")):
            samples: dict[str, list[float]] = {kind: [] for kind in VARIANTS}
            rates: dict[str, list[float]] = {kind: [] for kind in VARIANTS}
            costs: dict[str, list[float]] = {kind: [] for kind in VARIANTS}
            for _ in range(args.rounds):
                for kind in VARIANTS:
                    latencies, rate, cost = run_round(kind, size, readers, args.paced, args.burst, args.pace_us / 1e6)
                    samples[kind] += latencies
                    rates[kind].append(rate)
                    costs[kind].append(cost)
            for kind in VARIANTS:
                ordered = sorted(samples[kind])
                p50, p99 = ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
                rate, cost = median(rates[kind]), median(costs[kind])
                figures = f"{p50:>8.1f} {p99:>8.1f} {rate:>11,.0f} {rate * size / 1e6:>8,.0f} {cost:>8.2f}"
                print(f"{kind:<10} {size:>6} {readers:>7} {figures}", flush=True)
                result = {"queue": kind, "bytes": size, "readers": readers, "p50_us": p50, "p99_us": p99}
                results.append({**result, "messages_per_s": rate, "cpu_us_per_message": cost, "rates": rates[kind]})
    if args.json:
        record = {"machine": surroundings(), "arguments": argv, "results": results}
        args.json.write_text(json.dumps(record, indent=1) + "\n")
    return 0


def surroundings() -> dict[str, object]:
    """Where the figures come from."""
    versions = {"python": platform.python_version(), "pyzmq": zmq.pyzmq_version(), "zmq": zmq.zmq_version()}
    return {**machine(), **commit(Path(__file__).parents[1]), **versions}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
