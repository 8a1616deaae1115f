"""Running the generator and putting its result into words."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from bench.load.bodies import bodies, vary_at
from bench.load.build import program
from bench.load.options import Load, LoadError
from tools.scratch import scratch_folder

Phase = Literal["measuring", "ended"]
_MANY_STREAMS = 512


def run(load: Load, on_phase: Callable[[Phase], None] | None = None) -> dict[str, Any]:
    """Make the load and measure it; see `bench.load` for the result.

    `on_phase("measuring")` is called right before counting begins, which waits for it, and `on_phase("ended")` right
    behind its end: the places to read a server's CPU time. Raises LoadError; failing requests are part of the result instead.
    """
    binary = program()
    with scratch_folder("load") as folder:
        path = load.bodies
        if path is None:
            path = folder / "bodies.jsonl"
            with path.open("w", encoding="utf-8") as file:
                file.writelines(line + "\n" for line in bodies(load))
        argv = [str(binary), *_arguments(load, path)]
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            raw = _converse(process, on_phase)
        except BaseException:
            process.kill()
            raise
        finally:
            assert process.stdin is not None
            assert process.stdout is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            process.stdout.close()
            status = process.wait()
    if raw is None:
        raise LoadError(f"the load generator ended with status {status}; it says why on standard error")
    return _result(load, raw)


def _converse(process: subprocess.Popen[str], on_phase: Callable[[Phase], None] | None) -> dict[str, Any] | None:
    assert process.stdin is not None
    assert process.stdout is not None
    phases: tuple[Phase, ...] = ("measuring", "ended")
    for phase in phases:
        if process.stdout.readline().strip() != phase:
            return None
        if on_phase is not None:
            on_phase(phase)
        process.stdin.write("\n")
        process.stdin.flush()
    line = process.stdout.readline()
    raw: dict[str, Any] | None = json.loads(line) if line else None
    return raw


def threads(load: Load) -> int:
    """How many threads the generator runs."""
    wanted = load.threads or (2 if load.streams > _MANY_STREAMS else 1)
    return min(wanted, load.streams, wanted if load.threads else os.cpu_count() or 1)


def _arguments(load: Load, path: Path) -> list[str]:
    progress = sys.stderr.isatty() if load.progress is None else load.progress
    values: dict[str, object] = {
        "host": load.host, "port": load.port, "path": load.path, "bodies": path, "threads": threads(load),
        "streams": load.streams, "warmup": load.warmup_s, "drain": load.drain_s, "ramp": load.ramp_s,
        "tokens": load.max_tokens * load.choices, "choices": load.choices, "disconnect-share": load.disconnect_share,
        "slow-share": load.slow_share, "slow-bytes": max(1, load.slow_bytes_per_s // 10), "timeout": load.timeout_s,
        "connect-timeout": load.connect_timeout_s, "seed": load.seed,
        "headers": "".join(f"{name}: {value}\r\n" for name, value in load.headers.items()),
    }  # fmt: skip
    if load.requests:
        values["requests"] = load.requests
    else:
        values["seconds"] = load.seconds
    if load.mode == "open":
        values["rate"] = load.rate
    if (at := vary_at(load)) is not None:
        values["vary-at"] = at
    flags = {"open": load.mode == "open", "stream": load.stream, "new": load.connections == "new", "progress": progress}
    return [f"--{k}={v}" for k, v in values.items()] + [f"--{k}" for k, on in flags.items() if on]


def _result(load: Load, raw: dict[str, Any]) -> dict[str, Any]:
    elapsed, tokens = raw["elapsed_s"], raw["tokens"]
    user, system = raw["cpu_user_s"], raw["cpu_system_s"]
    failures: dict[str, int] = raw["failures"]
    names = ("started", "ok", "failed", "disconnected", "unfinished", "slow", "short")
    counted = {"by_ids": "ids", "by_usage": "usage", "by_events": "events"}
    return {
        "elapsed_s": elapsed,
        "tokens": tokens,
        "completed": raw["completed"],
        "tokens_per_s": _ratio(tokens, elapsed),
        "requests_per_s": _ratio(raw["completed"], elapsed),
        "events_per_s": _ratio(raw["events"], elapsed),
        "bytes": raw["bytes"],
        "requests": {name: raw[name] for name in names},
        "failures": failures,
        "connect_failures": sum(count for kind, count in failures.items() if kind.startswith("connect_")),
        "first_failure": raw["first_failure"],
        "reconnects": raw["reconnects"],
        "backlog_max": raw["backlog_max"],
        **{name: raw[name] for name in ("ttft_ms", "first_event_ms", "itl_ms", "tpot_ms", "e2e_ms", "connect_ms", "lag_ms")},
        "tokens_per_event": {
            "mean": _ratio(tokens, raw["token_events"]),
            "max": raw["clump_max"],
            "counts": raw["clumps"],
        },
        "events_per_read": _ratio(raw["events"], raw["reads"]) if raw["events"] else None,
        "tokens_counted_by": [word for key, word in counted.items() if raw[key]],
        "prompt_tokens_mean": _ratio(raw["prompt_tokens"], raw["prompts"]),
        "tokens_by_second": raw["by_second"],
        "cpu": {
            "user_s": user,
            "system_s": system,
            "us_per_token": _ratio((user + system) * 1e6, tokens),
            "cores": _ratio(user + system, elapsed),
        },
        "threads": threads(load),
        "load": {k: str(v) if isinstance(v, Path) else v for k, v in dataclasses.asdict(load).items()},
    }


def _ratio(of: float, by: float) -> float | None:
    return of / by if by else None
