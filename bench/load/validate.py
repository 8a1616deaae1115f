"""The load generator against `vllm-rs bench serve`: the same prompts on the same server, in turn; medians compared.

    python -m bench.load.validate [--repeats 3] [--vllm-rs PATH] [--json FILE]

Scenarios on fastfront with a mock engine at 10 ms steps: closed loops, and arrivals at random times,
whose times to first token are spread over a step. Both generators must agree within 5% on tokens per second and TTFT p50.

Both start a request's clock before they send it, keep connections alive, and stop it at the first event with text. What
differs is how long each takes to notice: `vllm-rs bench` has a task for every request on a runtime of several threads and spends
three to six times the CPU time per token, so that its times are a few tenths of a millisecond longer, and more where other
programs want the cores. That is measured first, on the floor, which answers at once: `own delay`, no difference of definition.

Random arrivals are spread evenly over a step of 10 ms: the median of 1,600 has a standard error of an eighth of a millisecond, so
that medians of three runs differ by 1 to 2% by chance. (400 were too few: 3%.)
In a closed loop requests begin when a step has ended, so that times to first token are whole steps, 10 or 20 ms: where the
machine is busy, two medians may lie on different sides of that. A difference there means nothing unless a quiet machine shows it.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import random
import resource
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.load.bodies import body, random_prompts
from bench.load.options import Load, LoadError
from bench.load.run import run
from bench.peers.base import SERVED, Running, Setting
from bench.peers.fastfront import FASTFRONT
from bench.peers.floor import FLOOR
from bench.peers.processes import PeerFailed
from tools.scratch import scratch_folder
from tools.setup.paths import Paths, find_paths

TOLERANCE = 0.05
WARM_UP = Load(port=1, model=SERVED, streams=32, requests=64, max_tokens=8, progress=False)
OURS, THEIRS = "bodies.jsonl", "dataset.jsonl"
_COMMON = dataclasses.replace(WARM_UP, max_tokens=96)
SCENARIOS = {
    "closed loop, 16 streams": dataclasses.replace(_COMMON, streams=16, requests=256),
    "closed loop, 64 streams": dataclasses.replace(_COMMON, streams=64, requests=768),
    "160 requests/s": dataclasses.replace(_COMMON, mode="open", rate=160.0, streams=512, requests=1600),
}


_DELAYS_OF = "160 requests/s"


@dataclass(frozen=True)
class Figures:
    """What one generator measured."""

    tokens_per_s: float
    ttft_p50_ms: float
    ttft_p99_ms: float
    own_cpu_us: float
    """Of the generator's process for each token that came."""
    ok: int


class OtherFailed(Exception):
    """The other generator did not run."""


def ours(load: Load) -> Figures:
    """One run of `bench.load`."""
    result = run(load)
    ttft = result["ttft_ms"]
    cpu_us = result["cpu"]["us_per_token"] or 0.0
    return Figures(result["tokens_per_s"], ttft["p50"], ttft["p99"], cpu_us, result["requests"]["ok"])


def theirs(load: Load, binary: Path, model: Path, folder: Path) -> Figures:
    """One run of `vllm-rs bench serve` that asks for the same. Raises OtherFailed with its words if it fails."""
    command = [
        str(binary), "bench", "serve", "--backend", "openai-chat", "--host", load.host, "--port", str(load.port),
        "--model", str(model), "--served-model-name", SERVED, "--tokenizer", str(model), "--dataset-name", "custom",
        "--dataset-path", str(folder / THEIRS), "--custom-output-len", "-1", "--skip-chat-template",
        "--disable-shuffle", "--num-prompts", str(load.requests), "--max-concurrency", str(load.streams), "--ignore-eos",
        "--no-steady-state", "--disable-tqdm", "--save-result", "--result-dir", str(folder), "--result-filename", "theirs.json",
        "--percentile-metrics", "ttft", "--metric-percentiles", "50,99",
    ]  # fmt: skip
    if load.mode == "open":
        command += ["--request-rate", str(load.rate)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    path = folder / "theirs.json"
    if done.returncode != 0 or not path.exists():
        words = f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        raise OtherFailed(f"vllm-rs bench serve ended with status {done.returncode}:\n{words}")
    result = json.loads(path.read_text())
    path.unlink()
    cpu_us = (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime) * 1e6 / max(result["total_output_tokens"], 1)
    return Figures(result["output_throughput"], result["median_ttft_ms"], result["p99_ttft_ms"], cpu_us, result["completed"])


def compare(running: Running, name: str, binary: Path, setting: Setting, repeats: int) -> dict[str, Any]:
    """Both generators in turn on one scenario; the medians, their differences, and all runs."""
    load = dataclasses.replace(SCENARIOS[name], port=running.port, bodies=setting.folder / OURS)
    runs: dict[str, list[Figures]] = {"ours": [], "theirs": []}
    for repeat in range(repeats):
        for who in ("ours", "theirs") if repeat % 2 == 0 else ("theirs", "ours"):
            runs[who].append(ours(load) if who == "ours" else theirs(load, binary, setting.model, setting.folder))
            running.check()
    names = [field.name for field in dataclasses.fields(Figures)]
    medians = {who: {n: _middle(n, [getattr(one, n) for one in found]) for n in names} for who, found in runs.items()}
    differences = {n: medians["ours"][n] / medians["theirs"][n] - 1 for n in names}
    every = {who: [dataclasses.asdict(one) for one in found] for who, found in runs.items()}
    return {"scenario": name, **medians, "difference": differences, "runs": every}


def _middle(name: str, values: list[float]) -> float:
    """The median, but no failure goes unseen."""
    return min(values) if name == "ok" else statistics.median(values)


def show(found: dict[str, Any], scenario: str) -> bool:
    """Print the rows of one scenario; True if the generators agree."""
    agree = True
    for name, digits in (("tokens_per_s", 0), ("ttft_p50_ms", 2), ("ttft_p99_ms", 2), ("own_cpu_us", 1), ("ok", 0)):
        difference = found["difference"][name]
        bound = TOLERANCE if name in ("tokens_per_s", "ttft_p50_ms") else 0.0 if name == "ok" else None
        good = bound is None or abs(difference) <= bound
        agree = agree and good
        figures = f"{found['ours'][name]:.{digits}f} | {found['theirs'][name]:.{digits}f} | {difference:+.1%}"
        print(f"| {scenario} | {name} | {figures} | {'' if bound is None else 'yes' if good else 'NO'} |", flush=True)
    return agree


def main(argv: list[str] | None = None) -> int:
    """Exit status 0 if they agree, 1 if not, 2 if something could not be run."""
    paths = find_paths(os.environ)
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("bench.load.validate", description=__doc__, formatter_class=raw)
    there = "(default: %(default)s, from make bench-peers)"
    parser.add_argument("--vllm-rs", type=Path, default=paths.peers / "vllm-rs", help=there)
    parser.add_argument("--model", type=Path, default=paths.models / "smollm2", help="(default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="(default: %(default)s)")
    parser.add_argument("--json", type=Path, help="write all figures there")
    args = parser.parse_args(argv)
    if not os.access(args.vllm_rs, os.X_OK):
        print(f"bench.load.validate: --vllm-rs {args.vllm_rs}: not there; make bench-peers brings it", file=sys.stderr)
        return 2
    with scratch_folder("validate") as folder:
        try:
            results = _run(paths, args.model.resolve(), args.vllm_rs, folder, args.repeats)
        except (LoadError, OtherFailed, PeerFailed) as error:
            print(f"bench.load.validate: {error}", file=sys.stderr)
            return 2
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0 if all(result["agree"] for result in results) else 1


def own_delays(setting: Setting, binary: Path, repeats: int) -> dict[str, float]:
    """Median times to first token, ms, that each generator sees where the answer comes at once."""
    with FLOOR.start(setting) as running:
        load = dataclasses.replace(SCENARIOS[_DELAYS_OF], requests=400, port=running.port, bodies=setting.folder / OURS)
        found = [(ours(load), theirs(load, binary, setting.model, setting.folder)) for _ in range(repeats)]
    return {
        "ours": statistics.median(one.ttft_p50_ms for one, _ in found),
        "theirs": statistics.median(other.ttft_p50_ms for _, other in found),
    }


def _write_requests(folder: Path) -> None:
    """The same prompts and lengths for both. Lengths differ: streams that stay in step see multiples of a step, or do not."""
    rng = random.Random(1)
    count = max(load.requests for load in SCENARIOS.values())
    with (folder / OURS).open("w") as our_file, (folder / THEIRS).open("w") as their_file:
        for text in random_prompts(count, WARM_UP.prompt_tokens, seed=1):
            length = rng.randrange(32, 97)
            our_file.write(body(dataclasses.replace(WARM_UP, max_tokens=length), text) + "\n")
            their_file.write(json.dumps({"prompt": text, "output_tokens": length}) + "\n")


def _run(paths: Paths, model: Path, binary: Path, folder: Path, repeats: int) -> list[dict[str, Any]]:
    _write_requests(folder)
    setting = Setting(paths, model, folder)
    results = []
    print("| scenario | figure | bench.load | vllm-rs bench | difference | within 5% |\n|---|---|---|---|---|---|")
    own = own_delays(setting, binary, repeats)
    delays = f"{own['ours']:.2f} | {own['theirs']:.2f} | {own['ours'] - own['theirs']:+.2f} ms"
    print(f"| {_DELAYS_OF}, floor | own delay ms | {delays} | |", flush=True)
    with FASTFRONT.start(setting) as running:
        ours(dataclasses.replace(WARM_UP, port=running.port))
        for scenario in SCENARIOS:
            found = compare(running, scenario, binary, setting, repeats)
            results.append({**found, "agree": show(found, scenario)})
    return results


if __name__ == "__main__":
    sys.exit(main())
