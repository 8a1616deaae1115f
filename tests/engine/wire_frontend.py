"""A minimal frontend on the engine-core wire: handshake, ADD, ABORT, UTILITY, outputs as plain lists."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import msgspec
import zmq

WAIT_S = 60.0
ADD_FIELDS = [
    *("request_id", "prompt_token_ids", "mm_features", "sampling_params", "pooling_params", "arrival_time"),
    *("lora_request", "cache_salt", "data_parallel_rank", "prompt_embeds", "prompt_is_token_ids", "client_index"),
    *("current_wave", "priority", "trace_headers", "resumable", "external_req_id", "reasoning_ended"),
    *("reasoning_parser_kwargs", "abort_immediately", "session_id", "kv_hints"),
]


@dataclass
class Answer:
    """What has come for one request so far."""

    tokens: list[int] = field(default_factory=list)
    steps: list[list[int]] = field(default_factory=list)
    outputs: list[list[Any]] = field(default_factory=list)
    finish: int | None = None
    stop_reason: int | str | None = None


class WireFrontend:
    """Binds everything in `folder` (ipc); use as a context manager. One engine or more, one client or more."""

    def __init__(self, folder: Path, clients: int = 1, coordinator: bool = False) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.handshake_address = f"ipc://{folder}/hs"
        self.handshake = self._bind(zmq.ROUTER, self.handshake_address)
        self.input_addresses = [f"ipc://{folder}/in{i}" for i in range(clients)]
        self.output_addresses = [f"ipc://{folder}/out{i}" for i in range(clients)]
        self.inputs = [self._bind(zmq.ROUTER, address) for address in self.input_addresses]
        self.outputs = [self._bind(zmq.PULL, address) for address in self.output_addresses]
        self.coordinator: tuple[zmq.Socket[bytes], zmq.Socket[bytes]] | None = None
        self.extra: dict[str, str | None] = dict.fromkeys(
            ("coordinator_input", "coordinator_output", "frontend_stats_publish_address")
        )
        if coordinator:
            addresses = {"coordinator_input": f"ipc://{folder}/ci", "coordinator_output": f"ipc://{folder}/co"}
            self.extra.update(addresses, frontend_stats_publish_address="ipc:///stats")
            publish = self._bind(zmq.XPUB, addresses["coordinator_input"])
            self.coordinator = (publish, self._bind(zmq.PULL, addresses["coordinator_output"]))
        self.init: dict[str, Any] = {}  # what else the answer to HELLO says
        self.ready: list[dict[str, Any]] = []
        self.hello: dict[str, Any] = {}
        self.answers: dict[str, Answer] = {}
        self.messages: list[Any] = []
        self.finished: list[str] = []
        self.stats: list[dict[str, Any]] = []
        self.replies: dict[int, list[Any]] = {}
        self.dead = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for socket in (self.handshake, *self.inputs, *self.outputs, *(self.coordinator or ())):
            socket.close(linger=0)
        self.context.term()

    def _bind(self, kind: int, address: str) -> zmq.Socket[bytes]:
        socket: zmq.Socket[bytes] = self.context.socket(kind)
        socket.setsockopt(zmq.RCVHWM, 0)
        socket.setsockopt(zmq.SNDHWM, 0)
        socket.bind(address)
        return socket

    def accept(self, wait_s: float = WAIT_S) -> dict[str, Any]:
        """Complete the handshake with one engine; its ready payload."""
        identity, hello = self._hs_recv(wait_s)
        self.hello = hello
        assert hello["status"] == "HELLO", hello
        addresses = {"inputs": self.input_addresses, "outputs": self.output_addresses}
        init = {"addresses": {**addresses, **self.extra}, "parallel_config": {}, **self.init}
        self.handshake.send_multipart([identity, msgspec.msgpack.encode(init)])
        for socket in self.inputs:
            assert socket.poll(int(wait_s * 1000)), "no ready payload"
            sender, payload = socket.recv_multipart()
            assert sender == identity
            self.ready.append(msgspec.msgpack.decode(payload))
        _, ready = self._hs_recv(wait_s)
        assert ready["status"] == "READY", ready
        return self.ready[-1]

    def _hs_recv(self, wait_s: float) -> tuple[bytes, dict[str, Any]]:
        assert self.handshake.poll(int(wait_s * 1000)), "no handshake message"
        identity, payload = self.handshake.recv_multipart()
        return identity, msgspec.msgpack.decode(payload)

    def send(self, frames: list[bytes], client: int = 0, engine: int = 0) -> None:
        self.inputs[client].send_multipart([engine.to_bytes(2, "little"), *frames])

    def add(
        self,
        request_id: str,
        prompt: list[int] | None,
        params: dict[str, Any] | None = None,
        client: int = 0,
        **fields: Any,
    ) -> Answer:
        """Send an ADD of all 22 elements; `fields` sets some by name."""
        body: dict[str, Any] = dict.fromkeys(ADD_FIELDS)
        body.update(request_id=request_id, prompt_token_ids=prompt, sampling_params={} if params is None else params)
        body.update(arrival_time=time.time(), client_index=client, current_wave=0, priority=0)
        body.update(resumable=False, abort_immediately=False)
        assert fields.keys() <= body.keys()
        body.update(fields)
        self.answers[request_id] = Answer()
        self.send([b"\x00", msgspec.msgpack.encode(list(body.values()))], client)
        return self.answers[request_id]

    def abort(self, *ids: str) -> None:
        self.send([b"\x01", msgspec.msgpack.encode(list(ids))])

    def call(self, method: str, *args: Any, call_id: int = (1 << 63) + 5, client: int = 0) -> list[Any]:
        """Make a utility call and wait for its `[call_id, failure, result]`."""
        self.send([b"\x03", msgspec.msgpack.encode([client, call_id, method, list(args)])], client)
        self.until(lambda: call_id in self.replies)
        return self.replies.pop(call_id)

    def pump(self, wait_ms: int = 0) -> None:
        """Take in everything that is there, waiting up to `wait_ms` for a first message."""
        poller = zmq.Poller()
        for socket in self.outputs:
            poller.register(socket, zmq.POLLIN)
        for socket, _ in poller.poll(wait_ms):
            while socket.poll(0):
                self._take(socket.recv_multipart())

    def _take(self, frames: list[bytes]) -> None:
        if frames[0] == b"ENGINE_CORE_DEAD":
            self.dead = True
            return
        message = msgspec.msgpack.decode(frames[0])
        self.messages.append(message)
        _, outputs, stats, _, utility, *_ = message
        assert utility or outputs or stats or message[5], "an empty message"
        assert not (utility and outputs), "a mixed message"
        if stats is not None:
            self.stats.append(stats)
        if utility is not None:
            self.replies[utility[0]] = utility
        self.finished += message[5] or []
        for output in outputs:
            answer = self.answers.setdefault(output[0], Answer())
            assert answer.finish is None, f"output after the finishing one of {output[0]}"
            answer.outputs.append(output)
            answer.tokens += output[1]
            answer.steps.append(output[1])
            if output[5] is not None:
                answer.finish, answer.stop_reason = output[5], output[6]

    def until(self, condition: Any, wait_s: float = WAIT_S) -> None:
        """Take in messages until `condition()` holds."""
        deadline = time.monotonic() + wait_s
        while not condition():
            assert time.monotonic() < deadline, "condition not reached"
            self.pump(50)

    def finish(self, *ids: str, wait_s: float = WAIT_S) -> None:
        """Wait until these requests (default: all) have finished."""
        wanted = ids or tuple(self.answers)
        self.until(lambda: all(self.answers[i].finish is not None for i in wanted), wait_s)
