"""The mock's loop: one thread that receives, keeps the step clock and sends."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import orjson
import zmq

from engine.mocking.engine import Leave, MockEngine
from engine.mocking.options import MockOptions
from engine.mocking.report import Report
from engine.mocking.script import Script, ScriptError
from engine.protocol import (
    ABORT,
    ADD,
    UTILITY,
    Codec,
    EngineCoreOutputs,
    UtilityCall,
    utility_failure,
    utility_reply,
)
from engine.transport import DisconnectWatch, FrontendLink

BURST = 4096
"""Messages read from one socket before a step gets its turn."""
IDLE_MS = 1000


class MockLoop:
    """Sockets and clock around a `MockEngine`. Used by the main thread: it takes over SIGTERM."""

    def __init__(self, options: MockOptions, link: FrontendLink, watch: DisconnectWatch, script: Script, report: Report) -> None:
        """`link` is connected, `watch` on it."""
        self._options = options
        self._period = options.step_ms / 1e3
        self._link = link
        self._report = report
        self._codec = Codec()
        dp = link.coordinator_out is not None
        self._engine = MockEngine(options, len(link.outputs), script, report, self._send, dp)
        self._last_load = (0, 0)
        self._paused = False
        self._rate = (time.monotonic(), 0, 0, 0.0)
        self._watch = watch if options.headless and options.linger_s > 0 else None
        self._poller = zmq.Poller()
        for socket in link.inputs:
            self._poller.register(socket, zmq.POLLIN)
        if link.coordinator is not None:
            self._poller.register(link.coordinator, zmq.POLLIN)
        self._control: zmq.Socket[bytes] | None = None
        if options.control:
            self._control = zmq.Context.instance().socket(zmq.REP)
            self._control.bind(options.control)
            self._poller.register(self._control, zmq.POLLIN)
        self._signals, wakeup = os.pipe()
        os.set_blocking(wakeup, False)
        signal.set_wakeup_fd(wakeup)
        signal.signal(signal.SIGTERM, signal.SIG_IGN if options.ignore_sigterm else lambda *_: None)
        self._poller.register(self._signals, zmq.POLLIN)

    def run(self) -> int:
        """Serve until told to leave; returns the exit status."""
        engine = self._engine
        due = time.perf_counter()
        try:
            while True:
                period = self._period
                stepping = bool(engine.running or engine.waiting) and not self._paused
                left = due - time.perf_counter() if period else 0.0
                self._receive(max(0, int(left * 1e3)) if stepping else IDLE_MS)
                if self._paused or not (engine.running or engine.waiting):
                    self._idle()
                    due = time.perf_counter()
                    continue
                left = due - time.perf_counter()
                if period and left > 0:
                    if left > 1e-3:
                        continue
                    time.sleep(left)
                due = max(due + period, time.perf_counter())
                engine.step()
                self._report_load()
                if self._options.print_rate:
                    self._print_rate()
        except Leave as leave:
            self._link.close()
            return leave.code

    def _idle(self) -> None:
        self._report_load()
        if self._watch is not None and (self._watch.gone_for() > self._options.linger_s or self._watch.broken):
            self._report.write("exit", why="the frontend is gone")
            raise Leave(0)

    def _send(self, client: int, frames: list[bytes]) -> None:
        self._link.outputs[client].send_multipart(frames)

    def _receive(self, timeout_ms: int) -> None:
        for socket, _ in self._poller.poll(timeout_ms):
            if socket == self._signals:
                self._signalled()
            elif self._control is not None and socket is self._control:
                self._command(self._control)
            elif self._link.coordinator is not None and socket is self._link.coordinator:
                self._link.coordinator.recv_multipart()
            else:
                client = self._link.inputs.index(socket)
                for _ in range(BURST):
                    try:
                        frames = socket.recv_multipart(zmq.NOBLOCK)
                    except zmq.Again:
                        break
                    self._message(client, frames)

    def _message(self, client: int, frames: list[bytes]) -> None:
        kind = frames[0] if len(frames) > 1 else b""
        if kind == ADD:
            self._engine.add(client, frames[1])
        elif kind == ABORT:
            ids = self._codec.decode_abort(frames[1])
            if ids is None:
                self._report.write("bad", message="malformed ABORT")
            else:
                self._engine.abort(ids)
        elif kind == UTILITY:
            self._utility(client, frames[1])
        else:
            self._report.write("bad", message=f"unknown message {frames!r}"[:200])

    def _utility(self, client: int, frame: bytes) -> None:
        call = self._codec.decode_utility(frame)
        if call is None:
            self._report.write("bad", message="malformed UTILITY")
            return
        self._report.write("utility", method=call.method, args=repr(call.args))
        now, index = time.monotonic(), self._options.index
        answer = self._engine.script.utilities.get(call.method) or self._result(call)
        if "fail" in answer:
            reply = utility_failure(call, answer["fail"], now, index)
        elif "result" in answer:
            reply = utility_reply(call, answer["result"], now, index)
        else:
            return
        client = call.client_index if 0 <= call.client_index < len(self._link.outputs) else client
        self._send(client, [self._engine.reply(reply)])

    def _result(self, call: UtilityCall) -> dict[str, Any]:
        try:
            return {"result": self._engine.call(call.method, call.args)}
        except ValueError as error:
            return {"fail": str(error)}

    def _command(self, control: zmq.Socket[bytes]) -> None:
        """One JSON command from a test; answers `{"ok": true, ...counts}` or `{"ok": false, "error": ...}`."""
        answer: dict[str, Any] = {"ok": True}
        death: tuple[str, int] | None = None
        try:
            command = orjson.loads(control.recv())
            name = command["cmd"]
            if name == "script":
                self._engine.script = Script(command["script"])
            elif name in ("pause", "resume"):
                self._paused = name == "pause"
            elif name == "step":
                for _ in range(command.get("count", 1)):
                    self._engine.step()
            elif name == "clock":
                if not 0 <= command["step_ms"] < 1e6:
                    raise ValueError(f"step_ms: {command['step_ms']!r}")
                self._period = command["step_ms"] / 1e3
            elif name == "open":
                self._engine.gates.add(command["gate"])
            elif name == "raw":
                self._send(command.get("client", 0), [bytes.fromhex(frame) for frame in command["frames"]])
            elif name == "die":
                death = (command["how"], command.get("code", 1))
            elif name != "counts":
                raise ValueError(f"unknown command {name!r}")
        except (ScriptError, KeyError, ValueError, TypeError, IndexError) as error:
            answer = {"ok": False, "error": f"{type(error).__name__}: {error}"}
        control.send(orjson.dumps(answer | self._engine.load() | {"cpu_s": time.process_time()}))
        if death is not None:
            self._engine.die(*death)

    def _signalled(self) -> None:
        if signal.SIGTERM in os.read(self._signals, 64) and not self._options.ignore_sigterm:
            self._report.write("exit", why="SIGTERM", **self._engine.load())
            self._engine.abort_all()
            raise Leave(0)

    def _report_load(self) -> None:
        """Tell the coordinator, if there is one, when the load has changed."""
        out = self._link.coordinator_out
        load = (self._engine.running, self._engine.waiting)
        if out is not None and load != self._last_load:
            self._last_load = load
            message = EngineCoreOutputs(self._options.index, [], scheduler_stats=self._engine.stats(), timestamp=time.monotonic())
            out.send(self._engine.reply(message))

    def _print_rate(self) -> None:
        then, tokens, steps, cpu_s = self._rate
        now, engine = time.monotonic(), self._engine
        if now - then >= 2:
            self._rate = (now, engine.tokens, engine.steps, time.process_time())
            seconds = now - then
            rates = f"{(engine.tokens - tokens) / seconds:.0f} tok/s {(engine.steps - steps) / seconds:.0f} steps/s"
            cpu = f"cpu {(self._rate[3] - cpu_s) / seconds:.0%} of a core"
            print(f"{rates} running {engine.running} waiting {engine.waiting} {cpu}", file=sys.stderr, flush=True)
