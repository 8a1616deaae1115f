"""Micro-benchmark of the token path: one engine step of N streams through the pump, granian's send replaced by a no-op.

    .venv/bin/python -m bench.step [--tokenizer DIR/tokenizer.json] [--streams 1024] [--steps 1000] [--repeats 7] [--json FILE]
                                [--reads tools|reasoning [--fed]]

With `--reads` the answers are read by Hermes' parser of tool calls, or Qwen3's of reasoning, which the text then is; `--fed`
gives it every piece, so that nothing passes it by.

Each step message holds one token for every stream: decode + detokenize + stop check (2 stop strings) + SSE encode. Printed:
CPU time per token on one thread (median and best of the repeats), and how much two threads with a pump each do in the same time.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any

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


class Transport:
    """Stands for granian's transport, with a send of its own: threads would wait for each other to count references to one."""

    def __init__(self) -> None:
        nothing: list[bytes] = []
        self.send_bytes = nothing.count            # about the cheapest call that takes bytes


class Protocol:
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
            call = Call(prepared, vocabulary, Protocol(), [0], 0, "fp", 0.0)
            ((_, add),) = self.pump.attach(call)
            ids.append(_wire_id(add))
        self.messages = [
            packb([0, [[i, [rng.randrange(100, min(150_000, vocabulary.size))]] for i in ids], None, 1.0])
            for _ in range(MESSAGES)
        ]
        self.tokens_per_step = streams

    def run(self, steps: int) -> None:
        feed, messages = self.pump.feed, self.messages
        for k in range(steps):
            feed(messages[k % MESSAGES])


def _wire_id(add: bytes) -> str:
    length = add[4] if add[3] == 0xD9 else add[3] & 31
    start = 5 if add[3] == 0xD9 else 4
    return add[start : start + length].decode()


def one_thread(bench: Bench, steps: int) -> float:
    """CPU microseconds per token."""
    start = time.thread_time()
    bench.run(steps)
    return (time.thread_time() - start) * 1e6 / (steps * bench.tokens_per_step)


def two_threads(benches: list[Bench], steps: int) -> tuple[float, float]:
    """(wall seconds for both, CPU microseconds per token in the mean).

    By the threads' own clocks, from the first one's beginning to the last one's end: a third thread would get no core to look.
    They run a little before, so that the kernel has given each a core by then.
    """
    barrier = threading.Barrier(len(benches))
    cpu: list[float] = []
    ends: list[tuple[float, float]] = []

    def work(bench: Bench) -> None:
        bench.run(WARM_STEPS)
        barrier.wait()
        began = time.perf_counter()
        cpu.append(one_thread(bench, steps))
        ends.append((began, time.perf_counter()))

    threads = [threading.Thread(target=work, args=(bench,)) for bench in benches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return max(end for _, end in ends) - min(began for began, _ in ends), statistics.mean(cpu)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", type=Path, default=find_paths(os.environ).cache / "tokenizers/qwen3/tokenizer.json")
    parser.add_argument("--streams", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--reads", choices=("tools", "reasoning"), default="")
    parser.add_argument("--fed", action="store_true")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if not args.tokenizer.is_file():
        parser.error(f"--tokenizer: no such file: {args.tokenizer} (make tokenizers fetches some)")
    tokenizer = TextTokenizer(Tokenizer.from_file(str(args.tokenizer)), {}, args.tokenizer)
    vocabulary = Vocabulary.from_tokenizer(tokenizer.raw)
    benches = [Bench(tokenizer, vocabulary, args.streams, seed, args.reads, args.fed) for seed in (1, 2)]
    for bench in benches:
        bench.run(WARM_STEPS)
    singles = [one_thread(benches[0], args.steps) for _ in range(args.repeats)]
    wall_scale, cpu_scale = [], []
    for _ in range(args.repeats):
        start = time.perf_counter()
        alone_cpu = one_thread(benches[0], args.steps)
        alone = time.perf_counter() - start
        wall, cpu = two_threads(benches, args.steps)
        wall_scale.append(2 * alone / wall)
        cpu_scale.append(2 * alone_cpu / cpu)
    gil = "on" if getattr(sys, "_is_gil_enabled", lambda: True)() else "off"
    result: dict[str, Any] = {
        "streams": args.streams,
        "reads": args.reads,
        "fed": args.fed,
        "cpu_us_per_token": singles,
        "two_threads_speedup_wall": wall_scale,
        "two_threads_speedup_cpu": cpu_scale,
        "python": sys.version,
        "gil": gil,
        "machine": platform.processor() or platform.machine(),
    }
    print(
        f"one thread: median {statistics.median(singles):.3f} us per token, best {min(singles):.3f} (GIL {gil})"
    )
    print(f"two threads, two lanes: {statistics.median(wall_scale):.2f}x one thread by the clock (needs two idle cores),")
    print(f"{statistics.median(cpu_scale):.2f}x by CPU time per token")
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
