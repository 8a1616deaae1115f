"""The mock's state machine: requests in, encoded messages out, one call per step. No socket inside."""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NoReturn

import msgspec

from engine.mocking import fragments
from engine.mocking.batch import PlainBatch
from engine.mocking.logprobs import EncodedLogprobs
from engine.mocking.options import MockOptions
from engine.mocking.report import Report
from engine.mocking.script import Script, Step
from engine.mocking.streams import Stream, TokenSource, generated, scripted
from engine.protocol import (
    ENGINE_CORE_DEAD,
    Codec,
    EngineCoreOutput,
    EngineCoreOutputs,
    Event,
    EventType,
    FailedOutput,
    FinishReason,
    LoraRequest,
    OutputError,
    PrefillStats,
    RequestFault,
    SchedulerStats,
)

Send = Callable[[int, list[bytes]], None]
FLUSH_S = 0.1
"""Time for the I/O thread to bring messages on their way before a violent death."""
KV_TOKENS = 1_600_000
"""Size of the pretended KV cache, for the usage figure."""


class Leave(Exception):
    """Ends the mock with this exit status."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class MockEngine:
    """All requests of the mock. Used by one thread; `send(client, frames)` puts a message on a client's output."""

    def __init__(self, options: MockOptions, clients: int, script: Script, report: Report, send: Send, dp: bool) -> None:
        """`dp`: list finished requests in the messages, as an engine behind a coordinator does."""
        self.script = script
        self.gates: set[str] = set()
        self.adapters: dict[int, str] = {}
        self.adds = self.aborts = self.steps = self.tokens = 0
        self._options = options
        self._report = report
        self._send = send
        self._codec = Codec()
        self._source = TokenSource(options.vocab)
        logprobs = EncodedLogprobs(options.vocab)
        self._plain = [PlainBatch(self._source, logprobs) for _ in range(clients)]
        self._others: dict[str, Stream] = {}
        self._waiting: deque[Stream] = deque()
        self._pieces: list[list[bytes]] = [[] for _ in range(clients)]
        self._counts = [0] * clients
        self._finished: list[list[str]] | None = [[] for _ in range(clients)] if dp else None

    @property
    def running(self) -> int:
        """Admitted requests."""
        return sum(map(len, self._plain)) + len(self._others)

    @property
    def waiting(self) -> int:
        """Requests that the next step will admit, if max-seqs lets it."""
        return len(self._waiting)

    def load(self) -> dict[str, int]:
        """Counts for reports and for the control socket."""
        return {
            "running": self.running,
            "waiting": self.waiting,
            "adds": self.adds,
            "aborts": self.aborts,
            "steps": self.steps,
            "tokens": self.tokens,
        }

    def stats(self) -> SchedulerStats:
        """Scheduler stats as of now."""
        usage = min(1.0, self.running * 256 / KV_TOKENS)
        return SchedulerStats(num_running_reqs=self.running, num_waiting_reqs=self.waiting, kv_cache_usage=usage)

    # --- input

    def add(self, client: int, frame: bytes) -> None:
        """Take an ADD payload that came on `client`'s input."""
        request = self._codec.decode_add(frame)
        order = self.adds
        self.adds += 1
        lora = None if isinstance(request, RequestFault) else request.lora_request
        if lora is not None and self.adapters.get(lora.lora_int_id) != lora.lora_name:
            request = RequestFault(request.request_id, f"adapter {lora.lora_name!r} ({lora.lora_int_id}) was never loaded")
        if isinstance(request, RequestFault):
            self._report.write("bad", message=request.message, id=request.request_id)
            if request.request_id is not None:
                error = OutputError("validation_error", request.message)
                self._emit(client, FailedOutput(request.request_id, [], finish_reason=FinishReason.ERROR, error=error))
                self._flush()
            return
        if 0 <= request.client_index < len(self._plain):
            client = request.client_index
        self._waiting.append(Stream(request, client, self.script.rule_for(request, order), time.monotonic()))
        if self._report.on:
            fields = self._codec.decode_plain(frame)
            what = {"id": fields[0], "client": client, "prompt": fields[1], "params": fields[3], "fields": fields}
            self._report.write("add", n=order, **what, **self.load())

    def abort(self, ids: list[str]) -> None:
        """Forget these requests; unknown ids are ignored."""
        self.aborts += len(ids)
        known = [(self._forget(request_id), request_id) for request_id in ids]
        gone = set(ids)
        if self._waiting:
            known += [(stream.client, stream.request_id) for stream in self._waiting if stream.request_id in gone]
            self._waiting = deque(stream for stream in self._waiting if stream.request_id not in gone)
        known = [(client, request_id) for client, request_id in known if client >= 0]
        if self._report.on:
            self._report.write("abort", ids=ids, known=[request_id for _, request_id in known], **self.load())
        if self._finished is not None:
            for client, request_id in known:
                self._finished[client].append(request_id)
            if not self.running:
                self._flush()

    def _forget(self, request_id: str) -> int:
        """Drop a running request; its client, or -1 if there is none of that id."""
        stream = self._others.pop(request_id, None)
        if stream is not None:
            return stream.client
        return next((client for client, batch in enumerate(self._plain) if batch.discard(request_id)), -1)

    def abort_all(self) -> None:
        """Finish everything in flight with reason abort."""
        streams = [(s.client, s.request_id) for s in (*self._others.values(), *self._waiting)]
        streams += [(client, i) for client, batch in enumerate(self._plain) for i in batch.ids()]
        for client, request_id in streams:
            self._emit(client, EngineCoreOutput(request_id, [], finish_reason=FinishReason.ABORT))
        self._flush()

    # --- steps

    def step(self) -> None:
        """One token for each running request, requests that wait are admitted, one message per client."""
        self.steps += 1
        now = time.monotonic()
        done: list[Stream] = []
        for client, batch in enumerate(self._plain):
            count, pieces = batch.step(self.steps, done)
            if count:
                self._pieces[client].append(pieces)
                self._counts[client] += count
                self.tokens += count
        for stream in done:
            self._ended(stream, FinishReason.LENGTH)
        room = self._options.max_seqs - self.running
        while self._waiting and room > 0:
            self._admit(self._waiting.popleft(), now)
            room -= 1
        for stream in list(self._others.values()):
            self._advance(stream, now)
        self._flush()

    def _admit(self, stream: Stream, now: float) -> None:
        stream.scheduled_at = now
        if not stream.plain(self._options.tokens == "echo"):
            self._others[stream.request_id] = stream
            return
        last = stream.left <= 1
        first = None if self._options.bare else (stream.queued_at, now, len(stream.prompt))
        tail = fragments.output_tail(FinishReason.LENGTH if last else None, first)
        self._pieces[stream.client] += self._plain[stream.client].output(stream, tail)
        self._counts[stream.client] += 1
        self.tokens += 1
        if last:
            self._ended(stream, FinishReason.LENGTH)
        else:
            self._plain[stream.client].add(stream, self.steps + stream.left - 1)

    def _advance(self, stream: Stream, now: float) -> None:
        """One step of a request that is not on the fast path."""
        first = stream.made == 0
        if stream.rule is None:
            self._output(stream, self._generate(stream, self._options.tokens), first)
            return
        step = stream.next_step(now, self.gates)
        if step is not None:
            self._perform(stream, step, first)
        elif stream.held is None and stream.then in ("random", "echo"):
            self._output(stream, self._generate(stream, stream.then), first)
        elif stream.held is None and stream.then in ("stop", "length"):
            finish = FinishReason.STOP if stream.then == "stop" else FinishReason.LENGTH
            self._output(stream, EngineCoreOutput(stream.request_id, [], finish_reason=finish), first)

    def _generate(self, stream: Stream, mode: str) -> EngineCoreOutput:
        if mode == "echo":
            return generated(stream, [stream.echo_token(self._options.vocab)], self._options.vocab, True)
        token = self._source.tokens[self._source.take(1)]
        return generated(stream, [token], self._options.vocab, False)

    def _perform(self, stream: Stream, step: Step, first: bool) -> None:
        if step.stall_ms:
            time.sleep(step.stall_ms / 1e3)
        if step.raw is not None:
            self._flush()
            self._send(stream.client, list(step.raw))
        if step.tokens or step.finish is not None:
            rule = stream.rule
            output = scripted(stream, step, self._options.vocab, rule is None or rule.obey)
            self._output(stream, output, first)
        if step.die is not None:
            self._flush()
            self.die(step.die, step.exit_code)

    def die(self, how: str, code: int) -> NoReturn:
        """Leave in one of the ways of `script.DEATHS`."""
        self._report.write("die", how=how, **self.load())
        if how == "dead":
            for client in range(len(self._plain)):
                self._send(client, [ENGINE_CORE_DEAD])
        elif how == "kill":
            time.sleep(FLUSH_S)
            os.kill(os.getpid(), signal.SIGKILL)
        elif how == "hang":
            while True:
                time.sleep(3600)
        raise Leave(code)

    # --- output

    def _output(self, stream: Stream, output: EngineCoreOutput, first: bool) -> None:
        if first and not self._options.bare:
            prompt = len(stream.prompt)
            output.events = [
                Event(EventType.QUEUED, stream.queued_at),
                Event(EventType.SCHEDULED, stream.scheduled_at),
            ]
            output.prefill_stats = PrefillStats(prompt, prompt)
        self.tokens += len(output.new_token_ids)
        self._emit(stream.client, output)
        if output.finish_reason is not None:
            self._others.pop(stream.request_id, None)
            self._ended(stream, output.finish_reason)

    def _emit(self, client: int, output: EngineCoreOutput) -> None:
        self._pieces[client].append(self._codec.encode(output))
        self._counts[client] += 1

    def _ended(self, stream: Stream, reason: int) -> None:
        if self._finished is not None:
            self._finished[stream.client].append(stream.request_id)
        if self._report.on:
            made = stream.made or stream.max_tokens
            what = {"id": stream.request_id, "reason": int(reason), "made": made}
            self._report.write("finish", **what, **self.load())

    def _flush(self) -> None:
        """Send what has been collected, one message per client."""
        index, now = self._options.index, time.monotonic()
        stats = fragments.NIL
        if self._options.stats:
            stats = self._codec.encode(self.stats())
        for client, count in enumerate(self._counts):
            finished = fragments.NIL
            if self._finished is not None and self._finished[client]:
                finished = self._codec.encode(self._finished[client])
                self._finished[client] = []
            if count or finished != fragments.NIL:
                pieces = b"".join(self._pieces[client])
                self._send(client, [fragments.message(index, count, pieces, now, stats, finished)])
                self._pieces[client] = []
                self._counts[client] = 0
                stats = fragments.NIL

    def call(self, method: str, args: list[Any]) -> Any:
        """The result of a utility call that the script says nothing about; ValueError for one that fails."""
        if method == "add_lora":
            return self._add_lora(args)
        if method == "list_loras":
            return sorted(self.adapters)
        return utility_result(method)

    def _add_lora(self, args: list[Any]) -> bool:
        if not self._options.max_loras:
            raise ValueError("LoRA is not enabled")
        (lora,) = msgspec.convert(args, tuple[LoraRequest])
        new = lora.lora_int_id not in self.adapters
        self.adapters[lora.lora_int_id] = lora.lora_name
        return new or lora.load_inplace

    def reply(self, message: EngineCoreOutputs) -> bytes:
        """Encode a utility reply or a load report."""
        return self._codec.encode(message)


def utility_result(method: str) -> Any:
    """Default answers to utility calls."""
    if method == "get_supported_tasks":
        return ["generate"]
    if method == "get_weight_version":
        return "default"
    if method in ("wake_up", "reset_prefix_cache"):
        return True
    return False if method.startswith("is_") else None
