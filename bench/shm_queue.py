"""The engine's shared-memory ring against multiprocessing.Queue and ZeroMQ over ipc.

    .venv-engine/bin/python -m bench.shm_queue [--sizes 1024,65536] [--readers 1,2] [--rounds N] [--json FILE]

One writer, readers in processes of their own, every message to every reader. Latency is from before the writer's call
to after the reader's, messages sent at a fixed pace, so that readers have to wait for each one; a reader that spins
pays for that with CPU time, which is told. Throughput is flat out, until the last reader has the last message. The
variants take turns in several rounds, all samples count.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import secrets
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import zmq

from bench.machine import commit, machine
from engine.shm.reader import RingReader
from engine.shm.segment import create
from engine.shm.writer import RingWriter

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
        self._address = f"ipc://@fastfront-queue-{secrets.token_hex(8)}"
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


VARIANTS: dict[str, type[Queue]] = {"ring": Ring, "mp.Queue": MultiprocessingQueue, "zmq ipc": ZmqIpc}


def _read(queue: Queue, number: int, paced: int, burst: int, pipe: Connection) -> None:
    receive = queue.reader(number)
    latencies = []
    pipe.send("there")
    spent = time.process_time_ns()
    for _ in range(paced):
        message = receive()
        latencies.append(time.perf_counter_ns() - int.from_bytes(message[:_STAMP], "little"))
    pipe.send((latencies, time.process_time_ns() - spent))
    spent = time.process_time_ns()
    for _ in range(burst):
        receive()
    pipe.send((time.perf_counter_ns(), time.process_time_ns() - spent))
    pipe.recv()
    os._exit(0)


class Round(NamedTuple):
    """What one round of a variant gave; all times in us."""

    latencies: list[float]
    """Of all readers together."""
    waiting: float
    """CPU time of a reader per message that came at the pace."""
    rate: float
    """Messages per second flat out."""
    cost: float
    """CPU time of all processes per message of that."""


def run_round(kind: str, size: int, readers: int, paced: int, burst: int, pace_s: float) -> Round:
    """Start readers, send at the pace, send flat out, end them."""
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
    taken, waited = zip(*(pipe.recv() for pipe in pipes), strict=True)
    latencies = [value / 1000 for values in taken for value in values[WARM_UP:]]
    waiting = sum(waited) / 1000 / readers / (paced + WARM_UP)
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
    return Round(latencies, waiting, burst / (max(ends) - begin) * 1e9, cpu_ns / 1000 / burst)


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
    latency = f"{'p50 us':>8} {'p99 us':>8} {'reader CPU us':>13}"
    print(f"{'queue':<10} {'bytes':>6} {'readers':>7} {latency} {'messages/s':>11} {'MB/s':>8} {'CPU us':>8}")
    for size in map(int, args.sizes.split(",")):
        for readers in map(int, args.readers.split(",")):
            rounds: dict[str, list[Round]] = {kind: [] for kind in VARIANTS}
            for _ in range(args.rounds):
                for kind, done in rounds.items():
                    done.append(run_round(kind, size, readers, args.paced, args.burst, args.pace_us / 1e6))
            for kind, done in rounds.items():
                ordered = sorted(value for one in done for value in one.latencies)
                p50, p99 = ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
                waiting, rate, cost = (median(values) for values in zip(*(one[1:] for one in done), strict=True))
                figures = f"{p50:>8.1f} {p99:>8.1f} {waiting:>13.1f} {rate:>11,.0f} {rate * size / 1e6:>8,.0f} {cost:>8.2f}"
                print(f"{kind:<10} {size:>6} {readers:>7} {figures}", flush=True)
                result = {"queue": kind, "bytes": size, "readers": readers, "p50_us": p50, "p99_us": p99}
                result |= {"reader_cpu_us": waiting, "messages_per_s": rate, "cpu_us_per_message": cost}
                results.append({**result, "rates": [one.rate for one in done]})
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
