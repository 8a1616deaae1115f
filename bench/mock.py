"""What the mock engine costs: its CPU time per token and per request, without a frontend.

    python -m bench.mock [--streams 1024,2048,4096] [--step-ms 10,0] [--seconds 5] [--json FILE]

A stand-in for a frontend takes the engine's messages and only counts outputs. Streams: all running, a token each per step.
Requests: 64 at a time, one token each, a next burst when all are answered; without the step clock.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec
import zmq

from bench.peers.processes import Child
from bench.process import Snapshot, snapshot
from tools.scratch import scratch_folder
from tools.setup.paths import find_paths

ENGINE = b"\0\0"
ADD, ABORT = b"\x00", b"\x01"
BURST = 64
WITH_LOGPROBS = 128
PROMPT = list(range(100, 130))
_ENDLESS = 1 << 40
_READY_MS = 20_000
_PARAMS = {"temperature": 0.0, "ignore_eos": True, "output_kind": 1, "_all_stop_token_ids": [2], "_eos_token_id": 2}


@dataclass(frozen=True)
class Cost:
    """One measurement: `count` tokens or requests."""

    what: str
    step_ms: float
    per_second: float
    cpu_us: float
    """Of the engine's process, per token or request."""
    cores: float


class Drain:
    """The frontend's end of the wire, by ipc in `folder`. Used by one thread."""

    def __init__(self, folder: Path) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.address = f"ipc://{folder}/handshake"
        self._handshake = self._bind(zmq.ROUTER, self.address)
        self._input = self._bind(zmq.ROUTER, f"ipc://{folder}/in")
        self._output = self._bind(zmq.PULL, f"ipc://{folder}/out")
        self._addresses = {"inputs": [f"ipc://{folder}/in"], "outputs": [f"ipc://{folder}/out"]}
        self._next = 0

    def _bind(self, kind: int, address: str) -> zmq.Socket[bytes]:
        socket: zmq.Socket[bytes] = self._context.socket(kind)
        socket.setsockopt(zmq.RCVHWM, 0)
        socket.setsockopt(zmq.SNDHWM, 0)
        socket.bind(address)
        return socket

    def accept(self) -> None:
        """Complete the handshake with the engine. Raises TimeoutError if it does not come."""
        for step in range(2):
            if not self._handshake.poll(_READY_MS):
                raise TimeoutError("the mock engine does not come")
            identity, _ = self._handshake.recv_multipart()
            if step == 0:
                none = dict.fromkeys(("coordinator_input", "coordinator_output", "frontend_stats_publish_address"))
                init = {"addresses": {**self._addresses, **none}, "parallel_config": {}}
                self._handshake.send_multipart([identity, msgspec.msgpack.encode(init)])
        self._input.recv_multipart()

    def add(self, count: int, max_tokens: int, logprobs: int | None = None) -> list[str]:
        """Send that many requests; their ids."""
        ids = [f"{self._next + i:08x}-chatcmpl-{self._next + i:016x}" for i in range(count)]
        self._next += count
        params = {**_PARAMS, "max_tokens": max_tokens, "logprobs": logprobs}
        for request_id in ids:
            fields = [request_id, PROMPT, None, params, None, time.time(), None, None, None, None, None, 0, 0, 0, None, False]
            fields += [request_id, None, None, False, None, None]
            self._input.send_multipart([ENGINE, ADD, msgspec.msgpack.encode(fields)])
        return ids

    def abort(self, ids: list[str]) -> None:
        """Give requests up."""
        self._input.send_multipart([ENGINE, ABORT, msgspec.msgpack.encode(ids)])

    def take(self, wait_ms: int) -> int:
        """The number of outputs in the next message, 0 if none comes."""
        if not self._output.poll(wait_ms):
            return 0
        return outputs(self._output.recv())

    def need(self) -> int:
        """The same. Raises TimeoutError if none comes in a long time."""
        found = self.take(_READY_MS)
        if not found:
            raise TimeoutError("the mock engine sends nothing")
        return found

    def close(self) -> None:
        """Close all sockets."""
        self._context.destroy(linger=0)


def outputs(message: bytes) -> int:
    """How many outputs a message of engine 0 carries; it is an array whose second element is theirs."""
    head = message[2]
    if head & 0xF0 == 0x90:
        return head & 15
    return int.from_bytes(message[3 : 5 if head == 0xDC else 7], "big")


def measure_streams(drain: Drain, pid: int, streams: int, step_ms: float, seconds: float, logprobs: int | None = None) -> Cost:
    """All streams running, a token each per step."""
    ids = drain.add(streams, _ENDLESS, logprobs)
    while drain.need() != streams:
        pass
    for _ in range(20):
        drain.need()
    before, tokens = snapshot(pid, pss=False), 0
    while (now := time.monotonic()) - before.at_s < seconds:
        tokens += drain.need()
    what = f"{streams} streams" + ("" if logprobs is None else f", {logprobs} logprobs")
    found = _cost(what, step_ms, tokens, before, snapshot(pid, pss=False), now)
    drain.abort(ids)
    while drain.take(100):
        pass
    return found


def measure_requests(drain: Drain, pid: int, seconds: float) -> Cost:
    """Bursts of requests for one token."""
    before, requests = snapshot(pid, pss=False), 0
    while (now := time.monotonic()) - before.at_s < seconds:
        drain.add(BURST, 1)
        left = BURST
        while left > 0:
            left -= drain.need()
        requests += BURST
    return _cost("requests", 0, requests, before, snapshot(pid, pss=False), now)


def _cost(what: str, step_ms: float, count: int, before: Snapshot, after: Snapshot, now: float) -> Cost:
    cpu_s = sum(thread.cpu_s for _, thread in after.since(before).by_thread)
    elapsed = now - before.at_s
    return Cost(what, step_ms, count / elapsed, cpu_s * 1e6 / max(count, 1), cpu_s / elapsed)


def main(argv: list[str] | None = None) -> int:
    """Prints a table."""
    parser = argparse.ArgumentParser("bench.mock", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=_numbers, default="1024,2048,4096", help="(default: %(default)s)")
    parser.add_argument("--step-ms", type=_numbers, default="10,0", help="(default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    args = parser.parse_args(argv)
    python = find_paths(os.environ).engine_venv / "bin" / "python"
    found = []
    print("| load | step ms | per second | engine CPU us each | cores |\n|---|---|---|---|---|")
    for step_ms in args.step_ms:
        with scratch_folder("mock") as folder:
            drain = Drain(folder)
            command = [str(python), "-m", "engine.mock", "--headless", "--linger-s", "0", "--handshake", drain.address]
            child = Child("mock engine", [*command, "--step-ms", str(step_ms)], folder / "mock.log")
            try:
                drain.accept()
                for streams in map(int, args.streams):
                    found.append(measure_streams(drain, child.pid, streams, step_ms, args.seconds))
                    _show(found[-1])
                found.append(measure_streams(drain, child.pid, WITH_LOGPROBS, step_ms, args.seconds, logprobs=5))
                _show(found[-1])
                if step_ms == 0:  # the clock would hold every burst up
                    found.append(measure_requests(drain, child.pid, args.seconds))
                    _show(found[-1])
            finally:
                child.stop()
                drain.close()
    if args.json:
        args.json.write_text(json.dumps([asdict(cost) for cost in found], indent=1) + "\n")
    return 0


def _numbers(text: str) -> list[float]:
    try:
        return [float(word) for word in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not numbers by comma") from None


def _show(cost: Cost) -> None:
    print(f"| {cost.what} | {cost.step_ms:g} | {cost.per_second:.0f} | {cost.cpu_us:.3f} | {cost.cores:.2f} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
