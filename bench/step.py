"""Micro-benchmark of the token path: one engine step of N streams through the pump, sends replaced by a no-op.

    .venv/bin/python -m bench.step [--tokenizer DIR/tokenizer.json] [--streams 1024] [--steps 1000] [--repeats 15] [--json FILE]
                                [--reads tools|reasoning [--fed]] [--cold-mb 8]

With `--reads` the answers are read by Hermes' parser of tool calls, or Qwen3's of reasoning, which the text then is; `--fed`
gives it every piece, so that nothing passes it by. With `--cold-mb` so much other memory is written before each step of one
thread, as sending and other processes do between the steps of a server: 8 empties the caches of a core, a few hundred all.

Each step message holds one token for every stream: decode + detokenize + stop check (2 stop strings) + SSE encode. Printed:
CPU time per token on one thread (median and best of the repeats), and how much two threads with a pump each do in the same time,
beside what two threads that only compute do: more than that the machine does not give.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import random
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from tokenizers import Tokenizer

from fastfront._speedups.call import Call
from fastfront._speedups.msgpack import packb
from fastfront._speedups.pump import Pump
from fastfront._speedups.vocabulary import Vocabulary
from fastfront.metrics.tool_calls import ToolCallCounts
from fastfront.openai.chat_sink import ChatSink
from fastfront.openai.reading import Reading
from fastfront.openai.reasoning.think import Qwen3Reasoning
from fastfront.openai.tools.choice import Parsers
from fastfront.openai.tools.hermes import HermesParser
from fastfront.render.tokenizer import TextTokenizer
from fastfront.streams.prepared import PreparedCall, PreparedPrompt
from tools.setup.paths import find_paths

STOPS = ["\n\nHuman:", "<|end_of_turn|>"]
WARM_STEPS = 50
MESSAGES = 16
PROMPT = [9707, 11, 1879, 0]
HASHED = bytes(1 << 18)
"""Takes about as long as a step."""


class Transport:
    """Stands for a transport, with a send of its own: threads would wait for each other to count references to one."""

    def __init__(self) -> None:
        nothing: list[bytes] = []
        self.send_bytes = nothing.count            # about the cheapest call that takes bytes

    def end(self) -> None:
        pass


class Connection:
    def response_stream(self, status: int, headers: list[tuple[str, str]]) -> Transport:
        return Transport()


class FedSink(ChatSink):
    """Nothing passes it by."""

    def passage(self, index: int) -> None:
        return None


def sink_of(prepared: PreparedCall, tokenizer: TextTokenizer, reads: str, fed: bool) -> ChatSink:
    """What makes the events of a call whose text is the answer of a model with tools, or its reasoning."""
    parsers = Parsers(tools=HermesParser) if reads == "tools" else Parsers(reasoning=Qwen3Reasoning)
    plan = parsers.plan({"tools": [{"function": {"name": "f"}}]} if reads == "tools" else {}, stream=True)
    assert plan is not None
    reading = Reading(plan, plan.start(""), tokenizer, (), ToolCallCounts("m", True), "chat")
    return (FedSink if fed else ChatSink)(prepared, [reading], "fp")


class Bench:
    """One lane's worth of streams and ready-made step messages."""

    def __init__(self, tokenizer: TextTokenizer, vocabulary: Vocabulary, streams: int, seed: int, reads: str, fed: bool) -> None:
        self.pump = Pump(vocabulary, lambda code, text: (500, [], b""), lambda code, text: b"", [], [])
        rng = random.Random(seed)
        ids = []
        for _k in range(streams):
            prepared = PreparedCall(
                kind="chat",
                external_id=f"chatcmpl-{rng.getrandbits(64):016x}",
                created=1_795_972_768,
                model="m",
                prompts=[PreparedPrompt(PROMPT, 1 << 30)],
                sampling={},
                stream=True,
                stop=STOPS,
                return_token_ids=reads == "reasoning",                     # they are counted
            )
            if reads:
                prepared.sink = sink_of(prepared, tokenizer, reads, fed)
            call = Call(prepared, vocabulary, Connection(), [0], 0, "fp", 0.0)
            ((_, add),) = self.pump.attach(call)
            ids.append(_wire_id(add))
        self.messages = [
            packb([0, [[i, [rng.randrange(100, min(150_000, vocabulary.size))]] for i in ids], None, 1.0])
            for _ in range(MESSAGES)
        ]

    def run(self, steps: int) -> None:
        feed, messages = self.pump.feed, self.messages
        for k in range(steps):
            feed(messages[k % MESSAGES])


def _wire_id(add: bytes) -> str:
    length = add[4] if add[3] == 0xD9 else add[3] & 31
    start = 5 if add[3] == 0xD9 else 4
    return add[start : start + length].decode()


class Work(Protocol):
    """What a thread does, in steps of like length."""

    def run(self, steps: int) -> None: ...


class Hashing:
    """Two of these share nothing, and hardly touch memory."""

    def run(self, steps: int) -> None:
        for _ in range(steps):
            hashlib.sha256(HASHED).digest()


def cpu_of(work: Work, steps: int) -> float:
    """CPU seconds on this thread."""
    start = time.thread_time()
    work.run(steps)
    return time.thread_time() - start


def cold_steps(bench: Bench, steps: int, size: int) -> list[float]:
    """CPU seconds of each step, which finds the caches full of something else: `size` bytes."""
    other, zeros = bytearray(size), bytes(size)
    found = []
    for k in range(steps):
        other[:] = zeros
        start = time.thread_time()
        bench.pump.feed(bench.messages[k % MESSAGES])
        found.append(time.thread_time() - start)
    return found


def both_at_once(works: Sequence[Work], steps: int) -> tuple[float, float]:
    """(wall seconds for all, CPU seconds of one in the mean).

    By the threads' own clocks, from the first one's beginning to the last one's end: a third thread would get no core to look.
    They run a little before, so that the kernel has given each a core by then.
    """
    barrier = threading.Barrier(len(works))
    cpu: list[float] = []
    ends: list[tuple[float, float]] = []

    def go(work: Work) -> None:
        work.run(WARM_STEPS)
        barrier.wait()
        began = time.perf_counter()
        cpu.append(cpu_of(work, steps))
        ends.append((began, time.perf_counter()))

    threads = [threading.Thread(target=go, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return max(end for _, end in ends) - min(began for began, _ in ends), statistics.mean(cpu)


def speedup(works: Sequence[Work], steps: int) -> tuple[float, float]:
    """How much two threads do in the time of one: by the clock, and by CPU time."""
    start = time.perf_counter()
    alone_cpu = cpu_of(works[0], steps)
    alone = time.perf_counter() - start
    wall, cpu = both_at_once(works, steps)
    return len(works) * alone / wall, len(works) * alone_cpu / cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", type=Path, default=find_paths(os.environ).cache / "tokenizers/qwen3/tokenizer.json")
    parser.add_argument("--streams", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--reads", choices=("tools", "reasoning"), default="")
    parser.add_argument("--fed", action="store_true")
    parser.add_argument("--cold-mb", type=int, default=0)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if not args.tokenizer.is_file():
        parser.error(f"--tokenizer: no such file: {args.tokenizer} (make tokenizers fetches some)")
    tokenizer = TextTokenizer(Tokenizer.from_file(str(args.tokenizer)), {}, args.tokenizer)
    vocabulary = Vocabulary.from_tokenizer(tokenizer.raw)
    benches = [Bench(tokenizer, vocabulary, args.streams, seed, args.reads, args.fed) for seed in (1, 2)]
    for bench in benches:
        bench.run(WARM_STEPS)
    if args.cold_mb:
        cold = sorted(seconds * 1e6 for seconds in cold_steps(benches[0], args.steps, args.cold_mb << 20))
        step = cold[len(cold) // 4]
        print(f"caches full of something else: lower quartile {step:.1f} us per step, {step / args.streams:.3f} us per token")
        return
    tokens = args.steps * args.streams
    singles = [cpu_of(benches[0], args.steps) * 1e6 / tokens for _ in range(args.repeats)]
    hashing = [Hashing(), Hashing()]
    lanes, computing = [], []
    for _ in range(args.repeats):                   # by turns, so that both meet the machine in the same moods
        lanes.append(speedup(benches, args.steps))
        computing.append(speedup(hashing, args.steps))
    gil = "on" if getattr(sys, "_is_gil_enabled", lambda: True)() else "off"
    result: dict[str, Any] = {
        "streams": args.streams,
        "reads": args.reads,
        "fed": args.fed,
        "cpu_us_per_token": singles,
        "two_threads_speedup_wall": [wall for wall, _ in lanes],
        "two_threads_speedup_cpu": [cpu for _, cpu in lanes],
        "two_threads_that_only_compute": [wall for wall, _ in computing],
        "python": sys.version,
        "gil": gil,
        "machine": platform.processor() or platform.machine(),
    }
    print(
        f"one thread: median {statistics.median(singles):.3f} us per token, best {min(singles):.3f} (GIL {gil})"
    )
    wall, cpu, most = (
        statistics.median(result[key])
        for key in ("two_threads_speedup_wall", "two_threads_speedup_cpu", "two_threads_that_only_compute")
    )
    print(f"two threads, two lanes: {wall:.2f}x one thread by the clock, {cpu:.2f}x by CPU time per token")
    print(f"two threads that only compute, by the clock: {most:.2f}x")
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
