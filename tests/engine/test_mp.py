"""The executor for worker processes, with stand-ins for workers; codec and table."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import EngineConfig
from engine.core.core import EngineCore
from engine.core.messages import Add, Leave
from engine.core.options import parse
from engine.executor.messages import Answer, Call, Codec, Loaded, Result, Start, Step
from engine.executor.mp import CallFailedError, MpExecutor, WorkerDiedError
from engine.executor.plan import (
    PENDING,
    Logprobs,
    NewSequence,
    SequenceStep,
    StepPlan,
    StepResult,
    TokenMasks,
    WorkerInfo,
)
from engine.executor.processes import device_name, layout
from engine.kv_cache.manager import KvCacheManager
from engine.model.errors import ModelError
from engine.protocol import SamplingParams
from engine.scheduler.request import Request
from engine.scheduler.scheduler import Limits, Scheduler
from engine.structured.grammars import Grammars
from tests.engine.conftest import ROOT
from tests.engine.letters import Letters
from tests.support.processes import title
from tests.support.waiting import wait_for

STAND_IN = ("tests.engine.rank_worker",)
WAIT_S = 60.0


class Running:
    """An executor on stand-ins, and what it has said."""

    def __init__(self, model: str = "fine", ranks: int = 2) -> None:
        config = EngineConfig(model, tensor_parallel_size=ranks, index=3, executor="mp")
        self.failures: list[str] = []
        self.failed = threading.Event()
        self.then: Callable[[str], None] = lambda _why: None
        self.executor = MpExecutor(config, layout(config), lambda _text: None, self._fail, STAND_IN)

    def _fail(self, why: str) -> None:
        self.failures.append(why)
        self.failed.set()
        self.then(why)


@pytest.fixture
def start() -> Iterator[Callable[..., Running]]:
    """Start executors; at the end each is closed, and none of its processes may be left."""
    started: list[Running] = []

    def begin(*args: Any, **options: Any) -> Running:
        started.append(Running(*args, **options))
        return started[-1]

    yield begin
    for running in started:
        pids = running.executor.pids
        running.executor.close()
        assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
        assert not [thread for thread in threading.enumerate() if thread.name == "worker-monitor"]


def a_plan(*ids: str, tokens: int = 1) -> StepPlan:
    return StepPlan([SequenceStep(name, [5] * tokens, 0, [1], samples=True) for name in ids])


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_steps_come_back_in_order_from_the_output_rank(start: Callable[..., Running], ranks: int) -> None:
    executor = start(ranks=ranks).executor
    assert executor.load() == WorkerInfo(100, 64, 512, 32, 16, "float32", "cpu")
    executor.launch(a_plan("a", tokens=1))
    executor.launch(a_plan("a", "b", tokens=2))
    assert executor.collect().tokens == {"a": 1001}
    executor.launch(a_plan("b", tokens=3))
    assert executor.collect().tokens == {"a": 2002, "b": 2002}
    assert executor.collect().tokens == {"b": 3003}
    assert executor.call("rank") == 0
    assert [title(pid) for pid in executor.pids] == [f"fastfront::worker-3-{rank}" for rank in range(ranks)]


def test_calls_reach_every_rank_and_raise_what_was_raised(start: Callable[..., Running], tmp_path: Path) -> None:
    executor = start().executor
    executor.load()
    executor.call("note", str(tmp_path / "called"))
    wait_for(lambda: len(list(tmp_path.iterdir())) == 2, "both ranks")
    with pytest.raises(ValueError, match="as asked"):
        executor.call("fail", "value")
    with pytest.raises(CallFailedError, match="KeyError: 'as asked'"):
        executor.call("fail", "key")
    with pytest.raises(TypeError, match="cannot be sent"):
        executor.call("note", object())
    assert executor.call("rank") == 0


def test_a_plan_larger_than_the_ring(start: Callable[..., Running]) -> None:
    executor = start().executor
    executor.load()
    words = np.arange(40_000 * 40, dtype=np.int32).reshape(40, 40_000)
    plan = a_plan("a")
    plan.masks = TokenMasks(["a"], words.copy())
    executor.launch(plan)
    back = executor.collect().logprobs["masks"]
    assert (back.ids == words + 1).all()
    assert (back.ids.dtype, back.values.dtype, back.ranks.dtype) == (np.int32, np.float32, np.int64)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_worker_that_is_killed_between_steps_is_reported(
    start: Callable[..., Running], rank: int, capfd: pytest.CaptureFixture[str]
) -> None:
    running = start()
    executor = running.executor
    executor.load()
    executor.call("say", "I feel unwell")
    wait_for(lambda: executor.tails[rank][-1:] and "unwell" in executor.tails[rank][-1], "its last line")
    pid = executor.pids[rank]
    os.kill(pid, signal.SIGKILL)
    assert running.failed.wait(WAIT_S)
    assert running.failures[0].startswith(f"worker {rank} of engine 3 (pid {pid}) ended with signal SIGKILL; the last lines")
    assert f"this is rank {rank} of 2" in running.failures[0]
    assert "I feel unwell" in running.failures[0]
    # The others do not live on, and nothing waits for ever.
    wait_for(lambda: not [pid for pid in executor.pids if Path(f"/proc/{pid}").exists()], "the end of all workers")
    with pytest.raises(WorkerDiedError, match="SIGKILL"):
        executor.collect()
    assert len(running.failures) == 1
    assert "I feel unwell" in capfd.readouterr().err


@pytest.mark.parametrize("rank", [0, 1])
def test_a_worker_that_is_killed_in_a_step_ends_the_wait_for_it(start: Callable[..., Running], rank: int) -> None:
    running = start()
    executor = running.executor
    executor.load()
    executor.launch(a_plan("hangs-0"))
    killer = threading.Timer(0.2, os.kill, (executor.pids[rank], signal.SIGKILL))
    killer.start()
    with pytest.raises(WorkerDiedError, match=f"worker {rank} of engine 3 .* ended with signal SIGKILL"):
        executor.collect()
    killer.join()


@pytest.mark.parametrize("rank", [0, 1])
def test_an_error_in_a_step_comes_with_its_traceback(start: Callable[..., Running], rank: int) -> None:
    executor = start().executor
    executor.load()
    executor.launch(a_plan("fine"))
    executor.launch(a_plan(f"raises-{rank}"))
    assert executor.collect().tokens == {"fine": 1001}

    def collect_all() -> None:
        # The output rank of stand-ins does not need the other.
        while True:
            executor.collect()

    with pytest.raises(WorkerDiedError) as caught:
        collect_all()
    assert str(caught.value).startswith(f"worker {rank} of engine 3")
    assert "exit status 1" in str(caught.value)
    assert "RuntimeError: this step cannot be computed" in str(caught.value)


def test_a_model_that_cannot_be_loaded_is_a_model_error(start: Callable[..., Running]) -> None:
    with pytest.raises(ModelError, match=r"^broken: no such folder$"):
        start("broken").executor.load()


@pytest.mark.parametrize("rank", [0, 1])
def test_a_worker_that_dies_while_loading(start: Callable[..., Running], rank: int) -> None:
    with pytest.raises(WorkerDiedError, match=f"worker {rank} of engine 3 .* ended with signal SIGKILL"):
        start(f"killed-{rank}").executor.load()


def test_closing_ends_workers_in_the_middle_of_a_step(start: Callable[..., Running], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.executor.mp.CLOSE_S", 0.1)
    running = start()
    running.executor.load()
    running.executor.launch(a_plan("hangs-1"))
    running.executor.close()
    running.executor.close()
    assert running.failures == []


@pytest.mark.parametrize("request_id", [None, "hangs-0"])
def test_a_busy_loop_ends_when_a_worker_does(start: Callable[..., Running], request_id: str | None) -> None:
    """Also one that has nothing to do and waits for requests."""
    running = start()
    executor, commands, messages = running.executor, queue.SimpleQueue[Any](), queue.SimpleQueue[Any]()
    executor.load()
    running.then = lambda why: commands.put(Leave(why, error=True))
    scheduler = Scheduler(Limits(8, 64, 64), KvCacheManager(64, 4))
    core = EngineCore(scheduler, executor, commands, messages, grammars=Grammars(Letters(), commands.put), index=3, clients=1)
    if request_id is not None:
        commands.put(Add(Request(request_id, 0, [1, 2], SamplingParams(max_tokens=3), 3)))
    killer = threading.Timer(0.3, os.kill, (executor.pids[0], signal.SIGKILL))
    killer.start()
    try:
        why = core.run().why
    except WorkerDiedError as error:
        why = str(error)
    killer.join()
    assert why.startswith("worker 0 of engine 3")
    assert "SIGKILL" in why
    # Nobody has been told that it went well.
    assert messages.empty()


CORE = f"""
import sys, time
from engine.config import EngineConfig
from engine.executor.mp import MpExecutor
from engine.executor.processes import layout
config = EngineConfig("fine", tensor_parallel_size=2)
executor = MpExecutor(config, layout(config), print, print, {STAND_IN})
executor.load()
print(*executor.pids, flush=True)
time.sleep(600)
"""


def test_workers_die_with_their_core() -> None:
    with subprocess.Popen([sys.executable, "-c", CORE], cwd=ROOT, stdout=subprocess.PIPE, text=True) as core:
        assert core.stdout is not None
        pids = [int(word) for word in core.stdout.readline().split()]
        assert [title(pid) for pid in pids] == ["fastfront::worker-0-0", "fastfront::worker-0-1"]
        # Signals to the whole group are for the core.
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
            os.kill(pid, signal.SIGINT)
        core.kill()
        wait_for(lambda: not any(alive(pid) for pid in pids), "the end of the workers")
    assert not [name for name in os.listdir("/dev/shm") if "fastfront" in name]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


TOKENS = st.lists(st.integers(0, 1 << 31), max_size=5)
PLANS = st.builds(
    StepPlan,
    st.lists(
        st.builds(SequenceStep, st.text(), st.lists(st.integers(PENDING, 1 << 31)), st.integers(0, 9), TOKENS, st.booleans())
    ),
    st.lists(
        st.builds(
            NewSequence, st.text(), TOKENS, st.just(SamplingParams(top_p=0.5, logit_bias={3: -1.5})), st.integers(0, 1 << 63)
        )
    ),
    st.lists(st.text()),
)


@given(PLANS)
@settings(max_examples=30)
def test_plans_survive_the_codec(plan: StepPlan) -> None:
    codec = Codec()
    assert codec.decode_order(codec.encode(Step(plan))) == Step(plan)


def test_everything_else_survives_the_codec() -> None:
    codec = Codec()
    config = EngineConfig("m", max_model_len=5, tensor_parallel_size=2, executor="mp")
    for order in (Start(config), Call("method", [1, "a", None, 2.5])):
        assert codec.decode_order(codec.encode(order)) == order
    for reply in (Loaded(WorkerInfo(1, 2, 3, 4, 5, "d", "e")), Answer({"a": [1]}), Answer(None, ("ValueError", "text"))):
        assert codec.decode_reply(codec.encode(reply)) == reply
    arrays = Logprobs(np.array([[1, 2]], "<i4"), np.array([[0.5, -1]], "<f4"), np.zeros((0,), "<i8"))
    reply = codec.decode_reply(codec.encode(Result(StepResult({"a": 1}, {"a": [2, 3]}, {"a": arrays}))))
    assert isinstance(reply, Result)
    assert reply.result.further == {"a": [2, 3]}
    for mine, theirs in zip(arrays, reply.result.logprobs["a"], strict=True):
        assert mine.dtype == theirs.dtype
        assert mine.shape == theirs.shape
        assert (mine == theirs).all()


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x80", b"\x81\xa4type\x09", msgspec.msgpack.encode({"type": 2, "plan": 5})])
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        Codec().decode_order(data)


@pytest.mark.parametrize("payload", [b"", b"i4\x01\x00", b"xx\x00\x00", b"i4\x01\x00\x05\x00\x00\x00abcd"])
def test_what_is_no_array_is_refused(payload: bytes) -> None:
    data = msgspec.msgpack.encode({"type": 3, "value": msgspec.msgpack.Ext(1, payload)})
    with pytest.raises((ValueError, msgspec.DecodeError)):
        Codec().decode_reply(data)


TABLE: list[tuple[str, int, str, tuple[str, ...]]] = [
    ("auto", 1, "uni", ()),
    ("uni", 1, "uni", ()),
    ("mp", 1, "mp", ("fastfront::worker-4-0",)),
    ("auto", 2, "mp", ("fastfront::worker-4-0", "fastfront::worker-4-1")),
    ("mp", 2, "mp", ("fastfront::worker-4-0", "fastfront::worker-4-1")),
]


@pytest.mark.parametrize(("executor", "ranks", "becomes", "workers"), TABLE)
def test_the_table_of_processes(executor: Any, ranks: int, becomes: str, workers: tuple[str, ...]) -> None:
    chosen = layout(EngineConfig("m", index=4, executor=executor, tensor_parallel_size=ranks))
    assert (chosen.executor, chosen.titles) == (becomes, ("fastfront::engine-core-4", *workers))


def test_impossible_combinations_are_refused_by_flag(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, message in (
        (["-tp", "0"], "--tensor-parallel-size/-tp: 0 is not positive"),
        (["-tp", "2", "--distributed-executor-backend", "uni"], "uni runs one worker, --tensor-parallel-size is 2"),
        (["-tp", "33"], "--tensor-parallel-size 33: an engine has 32 workers at most"),
        (["--distributed-executor-backend", "ray"], "invalid choice: 'ray'"),
    ):
        with pytest.raises(SystemExit) as caught:
            parse(["m", *arguments])
        assert caught.value.code == 2
        assert message in capsys.readouterr().err


DEVICES: list[tuple[str, int, int, int, int, str | None]] = [
    # device, engine, ranks, rank, CUDA devices, which one
    ("auto", 0, 2, 1, 0, "cpu"),
    ("cpu", 0, 2, 1, 8, "cpu"),
    ("auto", 0, 1, 0, 1, "cuda:0"),
    ("auto", 1, 2, 1, 4, "cuda:3"),
    ("cuda", 1, 1, 0, 2, "cuda:1"),
    ("cuda:2", 5, 2, 1, 4, "cuda:3"),
    ("auto", 0, 2, 0, 1, None),
    ("auto", 1, 2, 0, 3, None),
    ("cuda:3", 0, 2, 0, 4, None),
    ("cuda", 0, 1, 0, 0, None),
]


@pytest.mark.parametrize(("device", "engine", "ranks", "rank", "count", "which"), DEVICES)
def test_devices_of_ranks(device: str, engine: int, ranks: int, rank: int, count: int, which: str | None) -> None:
    config = EngineConfig("m", device=device, index=engine, tensor_parallel_size=ranks)
    if which is not None:
        assert device_name(config, rank, count) == which
    else:
        with pytest.raises(
            ModelError, match=f"--tensor-parallel-size {ranks}: engine {engine} would use CUDA device.*there are {count}"
        ):
            device_name(config, rank, count)


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_devices_are_counted_on_each_machine(device: str) -> None:
    config = parse(["m", "--index", "9", "--local-index", "1", "--tensor-parallel-size", "2", "--device", device, "--handshake", "ipc://x"])
    assert [device_name(config.engine, rank, 4) for rank in range(2)] == ["cuda:2", "cuda:3"]


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:-1", "cpu:0", ""])
def test_what_is_no_device_is_refused(name: str) -> None:
    with pytest.raises(ModelError, match=f"--device {name}: there are auto, cpu, cuda and cuda:N"):
        device_name(EngineConfig("m", device=name), 0, 4)
