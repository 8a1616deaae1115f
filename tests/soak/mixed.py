"""What many kinds of clients do at once: random lengths, stop strings, choices, answers left unread, connections cut."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.support.http1 import Connection, post
from tests.support.metrics import gauges, metric
from tests.support.processes import open_files, resident_bytes, session_members, shared_memory
from tests.support.server import CHAT, COMPLETIONS, Server
from tests.support.sse import chunks
from tests.support.waiting import wait_for

HANG_S = 180.0
"""An answer takes seconds; on a crowded machine, with preemptions, a minute."""
SAMPLES = 10
GROWTH_MB = 48.0
"""Allocators and caches still fill up after the first samples; a leak of a block table or a prompt per request shows."""
WORDS = ("the", "cat", "sat", "on", "a", "mat", "and", "ate", "some", "fish", "while", "two", "dogs", "ran", "to", "find", "it")
QUESTION: dict[str, Any] = {"prompt": "The capital of France is", "temperature": 0, "max_tokens": 6}
KINDS = ("read", "read", "read", "stop", "choice", "constant", "cut", "cut", "reset", "early")


@dataclass
class Sample:
    """The server's processes at one time, and the shared memory of the whole machine."""

    at_s: float
    frontend_mb: float
    engine_mb: float
    descriptors: list[int]
    processes: int
    shared_memory: int


@dataclass
class Figures:
    """What a run showed."""

    seconds: float
    counts: dict[str, int]
    failures: list[str]
    tokens: float
    preemptions: float
    kv_usage: float
    running: float
    waiting: float
    samples: list[Sample] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def check(self) -> None:
        """All answers are right, nothing is running, all blocks are free, and nothing has grown since the first third."""
        assert not self.failures, self.failures[:5]
        assert (self.running, self.waiting, self.kv_usage) == (0, 0, 0)
        first, last = self.samples[len(self.samples) // 3], self.samples[-1]
        assert last.frontend_mb - first.frontend_mb < GROWTH_MB, self.samples
        assert last.engine_mb - first.engine_mb < GROWTH_MB, self.samples
        assert last.processes == first.processes, self.samples


def sample(server: Server, began: float) -> Sample:
    """Look at the frontend and everything that it has started."""
    engines = server.engine_pids()
    return Sample(
        at_s=round(time.monotonic() - began, 1),
        frontend_mb=round(resident_bytes(server.pid) / 1e6, 1),
        engine_mb=round(sum(map(resident_bytes, engines)) / 1e6, 1),
        descriptors=[open_files(pid) for pid in (server.pid, *engines)],
        processes=len(session_members(server.pid)),
        shared_memory=len(shared_memory()),
    )


class _Client:
    """One client's random acts until the time is up."""

    def __init__(self, server: Server, until: float, rng: random.Random) -> None:
        self.server = server
        self.until = until
        self.rng = rng
        self.counts: Counter[str] = Counter()
        self.failures: list[str] = []
        self.constant: set[str] = set()

    def run(self) -> None:
        while time.monotonic() < self.until:
            kind = self.rng.choice(KINDS)
            body: dict[str, Any] = {}
            try:
                body = self.body(kind)
                self.act(kind, body)
                self.counts[kind] += 1
            except Exception as error:
                self.failures.append(f"{kind} {json.dumps(body)[:300]}: {error!r}")

    def body(self, kind: str) -> dict[str, Any]:
        rng = self.rng
        if kind == "constant":
            return dict(QUESTION)
        text = " ".join(rng.choices(WORDS, k=int(rng.paretovariate(0.7)) * 4 % 400 + 1))
        # Shared beginnings for the prefix cache.
        text = "Once upon a time there was a king who had three sons. " * rng.randrange(0, 4) + text
        body: dict[str, Any] = {
            "max_tokens": rng.choice((1, 4, 16, 40, 90)),
            "temperature": rng.choice((0, 0.7, 1.3)),
            "stream": rng.random() < 0.6,
            "n": 1,
        }
        if rng.random() < 0.5:
            body["prompt"] = text
        else:
            body["messages"] = [{"role": "user", "content": text}]
        if body["temperature"] and rng.random() < 0.3:
            body.update(n=rng.randrange(2, 4), top_p=0.9, seed=rng.randrange(1000))
        if rng.random() < 0.3:
            body.update(repetition_penalty=1.1, presence_penalty=0.3)
        if kind == "stop":
            body["stop"] = rng.sample([" the", "a", "\n", ".", "king"], k=2)
        if kind == "choice":
            body.update(structured_outputs={"choice": ["yes", "no", "perhaps"]}, max_tokens=16)
        if kind in ("cut", "reset", "early"):
            body.update(stream=kind != "early", max_tokens=200)
        return body

    def act(self, kind: str, body: dict[str, Any]) -> None:
        path = CHAT if "messages" in body else COMPLETIONS
        with Connection(self.server.address, HANG_S) as connection:
            connection.send(post(path, {"model": "m", **body}))
            if kind == "early":
                # No answer is waited for: the request may be queued, running or not yet read.
                connection.silent(self.rng.random() * 0.5)
            elif kind in ("cut", "reset"):
                status, _ = connection.response_head()
                assert status == 200
                for _ in range(self.rng.randrange(6)):
                    if not connection.piece():
                        break
                if kind == "reset":
                    connection.reset()
            else:
                response = connection.response()
                assert response.status == 200, response.body[:300]
                self.judge(kind, body, response.body)

    def judge(self, kind: str, body: dict[str, Any], answer: bytes) -> None:
        """The answer is whole, and what was asked for."""
        finishes: list[str]
        texts = [""] * body.get("n", 1)
        if body.get("stream"):
            found = [choice for chunk in chunks(answer) for choice in chunk["choices"]]
            for choice in found:
                texts[choice["index"]] += (choice["text"] if "text" in choice else choice["delta"].get("content")) or ""
            finishes = [choice["finish_reason"] for choice in found if choice["finish_reason"]]
        else:
            found = json.loads(answer)["choices"]
            texts = [choice["text"] if "text" in choice else choice["message"]["content"] for choice in found]
            finishes = [choice["finish_reason"] for choice in found]
        assert len(finishes) == len(texts)
        assert set(finishes) <= {"stop", "length"}, finishes
        if kind == "stop":
            assert not any(stop in text for stop in body["stop"] for text in texts), texts
        if kind == "choice":
            assert set(texts) <= {"yes", "no", "perhaps"}, texts
        if kind == "constant":
            self.constant.update(texts)


def mixed_load(server: Server, seconds: float, clients: int, seed: int) -> Figures:
    """Run `clients` clients for that long; then wait until the engine is idle."""
    began = time.monotonic()
    workers = [_Client(server, began + seconds, random.Random(seed * 1000 + number)) for number in range(clients)]
    threads = [threading.Thread(target=worker.run) for worker in workers]
    for thread in threads:
        thread.start()
    samples = []
    for number in range(SAMPLES):
        time.sleep(max(0.0, began + seconds * (number + 1) / SAMPLES - time.monotonic()))
        samples.append(sample(server, began))
    for thread in threads:
        thread.join()
    wait_for(lambda: gauges(server) == (0, 0, 0), "an idle engine with all blocks free", HANG_S, every_s=0.2)
    samples.append(sample(server, began))
    failures = [failure for worker in workers for failure in worker.failures]
    answers = set().union(*(worker.constant for worker in workers))
    if len(answers) > 1:
        failures.append(f"the same question had {len(answers)} answers: {sorted(answers)}")
    running, waiting, usage = gauges(server)
    return Figures(
        seconds=round(time.monotonic() - began, 1),
        counts=dict(sum((worker.counts for worker in workers), Counter())),
        failures=failures,
        tokens=metric(server, "vllm:generation_tokens_total"),
        preemptions=metric(server, "vllm:num_preemptions_total"),
        kv_usage=usage,
        running=running,
        waiting=waiting,
        samples=samples,
    )
