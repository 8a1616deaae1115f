"""The executor for worker processes, one per rank."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from engine.config import EngineConfig
from engine.executor.messages import Answer, Call, Codec, Loaded, Order, Reply, Result, Start, Step
from engine.executor.monitor import Failure, WorkerMonitor, WorkerProcess
from engine.executor.plan import MAX_IN_FLIGHT, StepPlan, StepResult, WorkerInfo
from engine.executor.processes import Layout
from engine.lora.errors import AdapterError
from engine.model.errors import ModelError
from engine.shm.errors import RingError
from engine.shm.reader import RingReader
from engine.shm.segment import create
from engine.shm.writer import RingWriter

ORDERS_BYTES = 4 << 20
REPLIES_BYTES = 1 << 20
LARGEST_REPLY = 1 << 36
"""Many requests may bring the logprobs of their prompts in one step (`engine.core.validate.MAX_PROMPT_LOGPROBS` each)."""
CLOSE_S = 5.0
"""Workers that have not left by then are killed."""
FAILURE_S = 2.0
"""How long a broken ring waits for the monitor to say why."""
MODEL_ERROR = 3
"""Exit status of a worker that cannot load the model; the last line it has written says why, after ERROR."""
ERROR = "error: "
WORKER = ("engine.worker.main",)


class WorkerDiedError(Exception):
    """A worker has ended; the message names its rank, its exit status and the last lines it wrote."""


class CallFailedError(Exception):
    """A worker's method has raised an error of a kind that is not known here."""


_RAISED: dict[str, type[Exception]] = {
    "AdapterError": AdapterError,
    "ModelError": ModelError,
    "ValueError": ValueError,
    "TypeError": TypeError,
    "NotImplementedError": NotImplementedError,
}


class MpExecutor:
    """Every order is written once and read by all workers; the output rank alone answers. One thread, as UniExecutor."""

    def __init__(
        self,
        config: EngineConfig,
        layout: Layout,
        say: Callable[[str], None],
        failed: Callable[[str], None],
        module: tuple[str, ...] = WORKER,
    ) -> None:
        """`failed(why)` is called from another thread when a worker ends unasked; `module` is what workers run.

        Raises RingError or OSError without shared memory.
        """
        self._config = config
        self._layout = layout
        self._say = say
        self._on_failure = failed
        self._module = module
        self._codec = Codec()
        self._orders = RingWriter(create(len(layout.workers), ORDERS_BYTES))
        self._replies = RingReader(create(1, REPLIES_BYTES), 0, max_message=LARGEST_REPLY)
        self._workers: list[WorkerProcess] = []
        self._monitor: WorkerMonitor | None = None
        self._failure: Failure | None = None
        self._failed = threading.Event()
        self._outstanding = 0
        self._results: deque[Result] = deque()  # of steps, that came while an answer was waited for

    @property
    def pids(self) -> list[int]:
        """Processes by rank."""
        return [worker.process.pid for worker in self._workers]

    @property
    def tails(self) -> list[tuple[str, ...]]:
        """The last lines that each worker has written."""
        return [tuple(worker.tail) for worker in self._workers]

    def load(self) -> WorkerInfo:
        """Start the workers and have them load the model. To be called on the main thread: they end with that one."""
        rendezvous = os.memfd_create("fastfront-rendezvous", os.MFD_CLOEXEC)
        try:
            for rank, title in enumerate(self._layout.workers):
                self._workers.append(WorkerProcess(rank, title, self._start(rank, rendezvous)))
        finally:
            os.close(rendezvous)
        self._orders.watch([worker.peer for worker in self._workers])
        self._monitor = WorkerMonitor(self._config.index, self._workers, self._note_failure)
        self._monitor.start()
        self._send(Start(self._config))
        reply = self._receive()
        assert isinstance(reply, Loaded), reply
        return reply.info

    def launch(self, plan: StepPlan) -> None:
        """Begin a step."""
        assert self._outstanding < MAX_IN_FLIGHT
        self._send(Step(plan))
        self._outstanding += 1

    def collect(self) -> StepResult:
        """Wait for the oldest step; WorkerDiedError if a worker has ended."""
        reply = self._results.popleft() if self._results else self._receive()
        self._outstanding -= 1
        assert isinstance(reply, Result), reply
        return reply.result

    def call(self, method: str, *args: object) -> object:
        """Run a method on every worker and wait for the output rank's answer."""
        self._send(Call(method, list(args)))
        while isinstance(reply := self._receive(), Result):
            self._results.append(reply)
        assert isinstance(reply, Answer), reply
        if reply.error is not None:
            kind, text = reply.error
            raise _RAISED[kind](text) if kind in _RAISED else CallFailedError(f"{kind}: {text}")
        return reply.value

    def close(self) -> None:
        """Tell the workers to leave and kill those that do not."""
        if self._monitor is not None:
            self._monitor.expect_end()
        self._orders.close()
        deadline = time.monotonic() + CLOSE_S
        for worker in self._workers:
            try:
                worker.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self._say(f"{worker.title} does not leave, killing it")
                worker.process.kill()
                worker.process.wait()
        if self._monitor is not None:
            self._monitor.join()
        for worker in self._workers:
            worker.close()
        self._workers = []
        self._replies.close()

    def _start(self, rank: int, rendezvous: int) -> subprocess.Popen[bytes]:
        descriptors = {"orders": self._orders.fd, "replies": self._replies.fd, "rendezvous": rendezvous}
        command = [sys.executable, "-m", *self._module, "--engine", str(self._config.index), "--rank", str(rank)]
        command += ["--parent", str(os.getpid())]
        for name, fd in descriptors.items():
            command += [f"--{name}", str(fd)]
        # The package of this very process, wherever the working directory is.
        root = str(Path(__file__).resolve().parents[2])
        paths = [root, *(path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path)]
        return subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=list(descriptors.values()),
        )

    def _send(self, order: Order) -> None:
        data = self._codec.encode(order)
        try:
            self._orders.send(data)
        except RingError as error:
            raise self._cause(error) from error

    def _receive(self) -> Reply:
        try:
            return self._codec.decode_reply(self._replies.receive())
        except RingError as error:
            raise self._cause(error) from error

    def _cause(self, error: RingError) -> Exception:
        """What the monitor knows of why a ring is broken."""
        if not self._failed.wait(FAILURE_S) or self._failure is None:
            return error
        tail = self._failure.tail
        if self._failure.status == MODEL_ERROR and tail and ERROR in tail[-1]:
            return ModelError(tail[-1].partition(ERROR)[2])
        return WorkerDiedError(self._failure.text)

    def _note_failure(self, failure: Failure) -> None:
        """On the monitor's thread."""
        self._failure = failure
        self._failed.set()
        self._replies.interrupt(failure.text)
        self._on_failure(failure.text)
