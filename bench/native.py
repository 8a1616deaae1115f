"""Micro-benchmarks of single native modules: table building, detokenizing, stop strings, JSON escape.

    python bench/native.py [--tokenizer NAME-OR-FILE] [--repeats N] [--json FILE]

Best of the repeats, one thread unless said; `..._two_threads_cpu_x` is the CPU time per token of two threads at once
over that of one (1.0: they do not disturb each other). The whole step is in bench/step.py.
"""

import argparse
import json
import os
import platform
import random
import sys
import threading
import time
from array import array
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tokenizers import Tokenizer

from fastfront._speedups.detokenizer import StreamSet
from fastfront._speedups.json_escape import escape
from fastfront._speedups.stop_matcher import StopMatcher
from fastfront._speedups.vocabulary import Vocabulary
from tools.setup.paths import find_paths

STREAMS = 1024
STEPS = 64
ROUNDS = 20  # per thread when threads are compared: starting a thread must not count
TEXT = (
    "The scheduler hands out one batch per step; every stream gets its token, no more.\n"
    "Größere Mengen werden geteilt: \"a\", 'b' und so weiter. 日本語のテキストも少し。 👋🏽\n"
    "def step(batch):\n    for stream in batch:\n        stream.push(batch[stream])\n"
)


def best(repeats: int, work: Callable[[], object]) -> float:
    """Seconds of the fastest run."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def cpu_in_threads(works: Sequence[Callable[[], object]]) -> float:
    """CPU seconds of one run when each work runs ROUNDS times, all at once: grows when threads disturb each other."""
    barrier = threading.Barrier(len(works))
    times: list[float] = []

    def run(work: Callable[[], object]) -> None:
        barrier.wait()
        start = time.thread_time()
        for _ in range(ROUNDS):
            work()
        times.append((time.thread_time() - start) / ROUNDS)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(times) / len(times)


def measure(path: Path, repeats: int) -> dict[str, float]:
    """Figures by name; the unit is the end of the name."""
    tokenizer = Tokenizer.from_file(str(path))
    figures = {"vocabulary_build_ms": best(min(repeats, 3), lambda: Vocabulary.from_tokenizer(tokenizer)) * 1e3}
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    figures["vocabulary_bytes_per_token"] = vocabulary.memory / vocabulary.size
    text_ids = tokenizer.encode(TEXT, add_special_tokens=False).ids
    rng = random.Random(0)
    mixes = {
        "text": [text_ids[(stream * 7 + step) % len(text_ids)] for step in range(STEPS) for stream in range(STREAMS)],
        "random_ids": [rng.randrange(vocabulary.size) for _ in range(STEPS * STREAMS)],
    }
    for name, ids in mixes.items():
        column = array("q", ids)
        streams = [StreamSet(vocabulary, STREAMS) for _ in range(2)]
        one = best(repeats, partial(streams[0].steps, column))
        works = [partial(s.steps, column) for s in streams]
        alone = min(cpu_in_threads(works[:1]) for _ in range(repeats))
        two = min(cpu_in_threads(works) for _ in range(repeats))
        figures[f"detokenize_{name}_ns"] = one / len(ids) * 1e9
        figures[f"detokenize_{name}_two_threads_cpu_x"] = two / alone
    text = TEXT.encode() * 200
    for count, stops in ((1, ["###"]), (2, ["###", "\nUser:"]), (4, ["###", "\nUser:", "</s>", "the end."])):
        matcher = StopMatcher(stops)
        figures[f"stops_{count}_ns_per_4_bytes"] = best(repeats, partial(matcher.scan, text, 4)) / len(text) * 4e9
    size = len(TEXT.encode())
    figures["escape_ns_per_kb"] = best(repeats, lambda: [escape(TEXT) for _ in range(200)]) / 200 / size * 1e12
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", default="qwen3", help="folder of the tokenizer cache, or a tokenizer.json")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    folder = find_paths(os.environ).cache / "tokenizers"
    path = Path(options.tokenizer)
    if not path.is_file():
        path = folder / options.tokenizer / "tokenizer.json"
    if not path.is_file():
        parser.error(f"--tokenizer: no such file: {path} (make tokenizers fetches some)")
    figures = measure(path, options.repeats)
    for name, value in figures.items():
        print(f"{name:45} {value:10.2f}")
    if options.json:
        record: dict[str, object] = {"tokenizer": path.parent.name, "machine": platform.platform()}
        record |= {"python": sys.version, "load": os.getloadavg(), "repeats": options.repeats, "figures": figures}
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
