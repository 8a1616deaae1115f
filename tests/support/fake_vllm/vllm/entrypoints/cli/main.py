"""`vllm serve MODEL --headless ...`: notes its command line, and has a child process be the engine, as vLLM's does."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path


def main() -> int:
    """Ends when the engine does."""
    ap = argparse.ArgumentParser(allow_abbrev=False)
    ap.add_argument("command", choices=["serve"])
    ap.add_argument("model")
    ap.add_argument("--headless", action="store_true", required=True)
    for name in ("size", "size-local", "start-rank", "rpc-port"):
        ap.add_argument(f"--data-parallel-{name}", type=int, required=True)
    ap.add_argument("--data-parallel-address", required=True)
    args, others = ap.parse_known_args()
    assert args.data_parallel_size_local == 1
    rank = args.data_parallel_start_rank
    project = Path(__file__).resolve().parents[6]
    (Path(os.environ["FAKE_VLLM_NOTES"]) / f"vllm-{rank}.json").write_text(
        json.dumps({"others": others, "model": args.model, "path": os.environ["PYTHONPATH"]})
    )
    # As vLLM does, and never removed by itself: whoever ends this process has to see to it.
    segment = SharedMemory(f"{os.environ['FAKE_VLLM_SEGMENT']}-{os.getpid()}", create=True, size=64)
    command = [sys.executable, "-m", "engine.mock", "--headless", "--index", str(rank), "--step-ms", "0", "--linger-s", "0"]
    command += ["--data-parallel-address", args.data_parallel_address]
    command += ["--data-parallel-rpc-port", str(args.data_parallel_rpc_port)]
    engine = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(project)})
    signal.signal(signal.SIGTERM, lambda *_: engine.terminate())
    status = engine.wait()
    segment.close()
    return status


if __name__ == "__main__":
    sys.exit(main())
