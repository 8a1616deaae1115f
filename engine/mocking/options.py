"""Command line of the mock engine."""

from __future__ import annotations

import argparse
import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class MockOptions:
    """See the docstring of `engine.mock`."""

    handshake: str
    headless: bool = False
    index: int = 0
    step_ms: float = 10.0
    tokens: str = "random"
    vocab: int = 100000
    max_seqs: int = 4096
    max_model_len: int = 8192
    version: str = "0.32.0"
    dtype: str = "bfloat16"
    script: str | None = None
    report: str | None = None
    control: str | None = None
    stats: bool = False
    bare: bool = False
    print_rate: bool = False
    startup: str = "ok"
    load_ms: float = 0.0
    load_until: str | None = None
    ignore_sigterm: bool = False
    linger_s: float = 5.0
    max_loras: int = 0


def parse(argv: list[str], doc: str) -> MockOptions:
    """Parse a command line; leaves with status 2 on errors."""
    ap = argparse.ArgumentParser("engine.mock", description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--handshake", help="address of the frontend's handshake socket")
    ap.add_argument("--data-parallel-address", default="127.0.0.1", help="with --data-parallel-rpc-port, for --handshake")
    ap.add_argument("--data-parallel-rpc-port", type=int)
    where = ap.add_mutually_exclusive_group()
    where.add_argument("--headless", action="store_true", help="started on its own, joins a frontend elsewhere")
    where.add_argument("--local", action="store_true", help="started by the frontend (the default): dies with its parent")
    ap.add_argument("--index", "--data-parallel-rank", type=int, default=0, help="engine index")
    ap.add_argument("--step-ms", type=float, default=10.0, help="step clock, 0: no clock")
    ap.add_argument("--tokens", choices=("random", "echo"), default="random", help="what unscripted requests get")
    ap.add_argument("--vocab", type=int, default=100000, help="token ids are below")
    ap.add_argument("--max-seqs", "--max-num-seqs", type=int, default=4096)
    ap.add_argument("--max-model-len", type=int, default=8192)
    ap.add_argument("--version", default="0.32.0", help="version in the ready payload")
    ap.add_argument("--dtype", default="bfloat16", help="dtype in the ready payload")
    ap.add_argument("--script", help="JSON file with rules")
    ap.add_argument("--report", help="append one JSON line per event to this file")
    ap.add_argument("--control", help="address for a REP socket that takes JSON commands")
    ap.add_argument("--stats", action="store_true", help="send scheduler_stats with every step")
    ap.add_argument("--bare", action="store_true", help="no events and prefill stats in first outputs")
    ap.add_argument("--print-rate", action="store_true", help="print tokens/s every 2 s")
    ap.add_argument("--startup", choices=("ok", "silent", "exit"), default="ok", help="after HELLO: work, never get ready, leave")
    ap.add_argument("--load-ms", type=float, default=0.0, help="pretend to load that long")
    ap.add_argument("--load-until", help="load until there is such a file")
    ap.add_argument("--ignore-sigterm", action="store_true")
    ap.add_argument(
        "--linger-s", type=float, default=5.0, help="headless: leave when the frontend has been gone that long, 0: stay"
    )
    ap.add_argument("--enable-lora", action="store_true", help="take requests for adapters that add_lora has named")
    ap.add_argument("--max-loras", type=int, default=1, help="what the ready payload says of them")
    for name in ("--max-lora-rank", "--max-cpu-loras"):
        ap.add_argument(name, type=int, help="accepted: nothing is loaded")
    values = vars(ap.parse_args(argv))
    if not values.pop("enable_lora"):
        values["max_loras"] = 0
    del values["max_lora_rank"], values["max_cpu_loras"]
    host, port = values.pop("data_parallel_address"), values.pop("data_parallel_rpc_port")
    values.pop("local")
    if values["handshake"] is None:
        if port is None:
            ap.error("--handshake or --data-parallel-rpc-port is needed")
        values["handshake"] = f"tcp://{f'[{host}]' if ':' in host else host}:{port}"
    for name in ("report", "control", "script", "load_until"):
        if values[name] is not None:
            values[name] = values[name].replace("{index}", str(values["index"]))
    if values["vocab"] < 2:
        ap.error("--vocab: at least 2")
    return MockOptions(**values)
