"""`python -m tests.soak.engine [--minutes M] [serve flags...]`: mixed load on the native engine, figures as JSON."""

from __future__ import annotations

import argparse
import json
import sys

from tests.soak.mixed import mixed_load
from tests.support.server import Server
from tools.scratch import scratch_folder

BLOCKS = 100
"""Too few for the load at times: requests are preempted."""


def main(argv: list[str]) -> int:
    """Fails if an answer is wrong, or if blocks, memory, descriptors or processes are left over."""
    ap = argparse.ArgumentParser("python -m tests.soak.engine", description="Mixed load on SmolLM2 through the frontend.")
    ap.add_argument("--minutes", type=float, default=10.0)
    ap.add_argument("--clients", type=int, default=16)
    ap.add_argument("--seed", type=int, default=1)
    options, flags = ap.parse_known_args(argv)
    serve = ["--served-model-name", "m", "--max-model-len", "1024", "--max-num-seqs", "24"]
    serve += ["--max-num-batched-tokens", "256", "--num-gpu-blocks-override", str(BLOCKS), *flags]
    with scratch_folder("soak") as folder, Server(folder, *serve, model="smollm2") as server:
        server.wait_ready(timeout_s=300)
        try:
            figures = mixed_load(server, options.minutes * 60, options.clients, options.seed)
        except BaseException:
            print(server.log()[-8000:], file=sys.stderr)
            raise
        print(json.dumps(figures.as_dict(), indent=1), flush=True)
        figures.check()
        log = server.log()
    assert "Traceback" not in log, log[-4000:]
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
