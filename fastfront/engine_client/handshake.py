"""Bringing engines in: HELLO -> addresses -> ready payloads -> READY (the wire's section 3 and 4)."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import zmq

from fastfront._speedups.engine_sockets import EngineSockets
from fastfront._speedups.msgpack import DecodeError, packb, unpackb
from fastfront.engine_client.addresses import Addresses
from fastfront.errors import EngineError

POLL_MS = 200
HEARTBEAT_MS, SILENCE_MS = 5_000, 30_000  # the engine's socket library answers, however busy the engine is
BACKLOG = 1024
READY_INTS = ("max_model_len", "num_gpu_blocks", "block_size", "max_num_seqs", "max_num_batched_tokens")


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What an engine says of itself in its ready payload. `limits` holds the whole payload."""

    index: int
    max_model_len: int
    num_gpu_blocks: int
    block_size: int
    version: str
    limits: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Greeting:
    """What an engine says on the handshake socket; `status` is HELLO or READY."""

    index: int
    status: str
    local: bool
    config_hash: str | None = None  # of ranks that step together


@dataclass(slots=True)
class LaneSockets:
    """The sockets of a lane and where engines find them; one thread owns them at a time."""

    sockets: EngineSockets
    input_address: str
    output_address: str


def bind(context: zmq.Context[zmq.Socket[bytes]], address: str, kind: int = zmq.ROUTER) -> tuple[zmq.Socket[bytes], str]:
    """A socket, usually the handshake's, and the address that engines connect to. Raises EngineError naming the address."""
    router = context.socket(kind)
    router.setsockopt(zmq.SNDHWM, 0)
    router.setsockopt(zmq.RCVHWM, 0)
    router.setsockopt(zmq.LINGER, 0)
    if "[" in address:
        router.setsockopt(zmq.IPV6, 1)
    if address.startswith("tcp:"):  # a machine that is gone closes no connection
        router.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
        router.setsockopt(zmq.HEARTBEAT_TIMEOUT, SILENCE_MS)
    if kind == zmq.ROUTER:
        router.setsockopt(zmq.ROUTER_HANDOVER, 1)
        router.setsockopt(zmq.ROUTER_MANDATORY, 1)
    try:
        router.bind(address)
    except zmq.ZMQError as error:
        router.close()
        raise cannot_listen(address, str(error.strerror)) from error
    return router, router.getsockopt_string(zmq.LAST_ENDPOINT) if address.endswith(":*") else address


def cannot_listen(address: str, why: str) -> EngineError:
    return EngineError(f"cannot listen for engines at {address}: {why} (--data-parallel-address, --data-parallel-rpc-port)")


def listen(address: str) -> tuple[socket.socket, str]:
    """A socket that listens at an endpoint as ZeroMQ writes it, and where engines connect to. Raises EngineError naming it."""
    try:
        if address.startswith("ipc://"):
            path = address.removeprefix("ipc://")
            unix = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            unix.bind("\0" + path[1:] if path.startswith("@") else path)
            unix.listen(BACKLOG)
            return unix, address
        host, _, port = address.removeprefix("tcp://").rpartition(":")
        found = socket.getaddrinfo(
            host.strip("[]"), 0 if port == "*" else int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        tcp = socket.create_server(found[4][:2], family=found[0], backlog=BACKLOG)
        return tcp, f"tcp://{host}:{tcp.getsockname()[1]}"
    except OSError as error:
        raise cannot_listen(address, str(error.strerror)) from error


def bind_lanes(addresses: Addresses, engines: int) -> list[LaneSockets]:
    lanes = []
    for at_input, at_output in zip(addresses.inputs, addresses.outputs, strict=True):
        (inputs, input_address), (outputs, output_address) = listen(at_input), listen(at_output)
        for sock in (inputs, outputs):
            sock.setblocking(False)
        tcp = at_input.startswith("tcp:")
        sockets = EngineSockets(
            inputs.detach(), outputs.detach(), engines, tcp=tcp, heartbeat_s=HEARTBEAT_MS / 1e3, silence_s=SILENCE_MS / 1e3
        )
        lanes.append(LaneSockets(sockets, input_address, output_address))
    return lanes


def parse_ready(index: int, payload: bytes) -> EngineInfo:
    """The ready payload of an engine. Raises EngineError naming the key that is wrong."""
    try:
        values = unpackb(payload) if payload else {}
    except DecodeError as error:
        raise EngineError(f"engine {index} sent a ready payload that is not msgpack: {error}") from error
    if not isinstance(values, dict):
        raise EngineError(f"engine {index} sent a ready payload that is not a map")
    for key in READY_INTS:
        value = values.get(key, 0)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise EngineError(f"engine {index}: ready payload has a bad {key}: {value!r}")
    return EngineInfo(
        index=index,
        max_model_len=values.get("max_model_len", 0),
        num_gpu_blocks=values.get("num_gpu_blocks", 0),
        block_size=values.get("block_size", 0),
        version=str(values.get("vllm_version", "")),
        limits=values,
    )


def read_greeting(frames: list[bytes], ranks: range) -> Greeting | None:
    """A message of the handshake socket, as it came; None if no engine wrote it: random bytes can make up a whole message of the
    transport's first version. Raises EngineError if it is none of an engine of those ranks."""
    if len(frames) != 2 or len(frames[0]) != 2:
        return None
    index = int.from_bytes(frames[0], "little")
    try:
        message = unpackb(frames[1])
    except DecodeError:
        return None
    if not isinstance(message, dict) or message.get("status") not in ("HELLO", "READY"):
        raise EngineError(f"engine {index}: unknown handshake message {message!r:.200}")
    if index not in ranks:
        raise stranger(index, ranks)
    config_hash = message.get("parallel_config_hash")
    return Greeting(
        index, message["status"], bool(message.get("local")), config_hash if isinstance(config_hash, str) else None
    )


def stranger(index: int, ranks: range) -> EngineError:
    """What to say of an engine that this frontend does not serve."""
    flags = "--data-parallel-rank, --data-parallel-start-rank" if ranks.start else "--data-parallel-size"
    served = f"rank {ranks.start}" if len(ranks) == 1 else f"ranks {ranks.start} to {ranks.stop - 1}"
    return EngineError(f"engine {index} has joined, but this frontend serves {served} ({flags})")


@dataclass(frozen=True, slots=True)
class Together:
    """For ranks that step together: where the coordinator listens, and what goes into their parallel configuration."""

    orders_address: str
    reports_address: str
    parallel_config: dict[str, Any]


def init_message(lanes: list[LaneSockets], together: Together | None = None) -> bytes:
    """The answer to HELLO: where the lanes are."""
    addresses = {
        "inputs": [lane.input_address for lane in lanes],
        "outputs": [lane.output_address for lane in lanes],
        "coordinator_input": None if together is None else together.orders_address,
        "coordinator_output": None if together is None else together.reports_address,
        "frontend_stats_publish_address": None,
    }
    message: dict[str, Any] = {"addresses": addresses, "parallel_config": {} if together is None else together.parallel_config}
    if any(lane.input_address.startswith("tcp:") for lane in lanes):  # for this project's engines; others do not look
        message |= {"heartbeat_ms": HEARTBEAT_MS, "silence_ms": SILENCE_MS}
    return packb(message)


class Handshake:
    """The start of every engine of one deployment. Owned by the thread that runs it; no socket outlives it but the lanes'."""

    def __init__(
        self, socket: zmq.Socket[bytes], lanes: list[LaneSockets], ranks: range, local: range,
        together: Together | None = None, joined: range | None = None,
    ) -> None:  # fmt: skip
        """Those of `ranks` that are in `local` say so. `together` is for ranks that step together.

        `joined`: the ranks that are waited for, if there are some among them that others serve.
        """
        self.config_hashes: dict[int, str | None] = {}
        self._joined = ranks if joined is None else joined
        self._init = init_message(lanes, together)
        self._socket = socket
        self._lanes = lanes
        self._ranks = ranks
        self._local = local
        self._greeted: set[int] = set()
        self._ready: set[int] = set()
        self._payloads: dict[tuple[int, int], EngineInfo] = {}

    def run(self, timeout_s: float, check: Callable[[], None], report: Callable[[str], None]) -> list[EngineInfo]:
        """Waits for every engine. `check` is called several times a second and may raise (an engine process ended).

        Raises EngineError when an engine breaks the protocol or is not ready after `timeout_s` seconds.
        """
        deadline = time.monotonic() + timeout_s
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        for lane in self._lanes:
            poller.register(lane.sockets.fileno(), zmq.POLLIN)
        while len(self._ready) < len(self._joined) or len(self._payloads) < len(self._ranks) * len(self._lanes):
            check()
            if time.monotonic() > deadline:
                raise EngineError(
                    f"{len(self._ready)} of {len(self._joined)} engines were ready after {timeout_s:g} s"
                    " (--engine-ready-timeout, VLLM_ENGINE_READY_TIMEOUT_S); look at the engines' own output for the cause"
                )
            for ready, _ in poller.poll(POLL_MS):
                if ready is self._socket:
                    self._greet(report)
            for index, lane in enumerate(self._lanes):
                lane.sockets.wait(0)
                for frames in lane.sockets.take_inputs():
                    self._take_payload(index, frames, report)
        return [self._payloads[index, 0] for index in self._ranks]

    def _greet(self, report: Callable[[str], None]) -> None:
        frames = self._socket.recv_multipart()
        found = read_greeting(frames, self._joined)
        if found is None:
            report("something that is not an engine connected to the handshake address")
            return
        index = found.index
        if found.status == "READY":
            self._ready.add(index)
            self.config_hashes[index] = found.config_hash
            report(f"engine {index} is ready")
            return
        if found.local != (index in self._local):
            said = "local" if found.local else "remote"
            raise EngineError(f"engine {index} says it is {said}, but {len(self._local)} are local (--data-parallel-size-local)")
        if index in self._greeted:
            raise EngineError(f"engine {index} joined twice: two processes use the same rank")
        try:
            self._socket.send_multipart([frames[0], self._init])
        except zmq.ZMQError as error:  # gone again
            report(f"engine {index} cannot be answered: {error.strerror}")
            return
        self._greeted.add(index)
        report(f"engine {index} has joined and is loading")

    def _take_payload(self, lane: int, frames: list[bytes], report: Callable[[str], None]) -> None:
        if len(frames) != 2 or len(frames[0]) != 2:
            report("something that is not an engine connected to an input address")
            return
        index = int.from_bytes(frames[0], "little")
        if index not in self._ranks:
            raise stranger(index, self._ranks)
        self._payloads[index, lane] = parse_ready(index, frames[1])
