"""`python -m bench.classic MODEL_FOLDER --port P --rpc-port R --api-servers N`: serve until SIGTERM."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bench.classic.supervisor import Options, serve


def main() -> int:
    """Exit status 0 after SIGTERM, 1 when a process ended by itself or the engine did not join, 2 for bad flags."""
    parser = argparse.ArgumentParser(prog="python -m bench.classic", description=sys.modules["bench.classic"].__doc__)
    parser.add_argument("model", type=Path, help="folder with tokenizer.json and tokenizer_config.json")
    parser.add_argument("--served-model-name", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--rpc-port", type=int, required=True, help="where the engine joins")
    parser.add_argument("--api-servers", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.api_servers < 1:
        parser.error("--api-servers: at least 1")
    if not (arguments.model / "tokenizer.json").is_file():
        parser.error(f"MODEL: no tokenizer.json in {arguments.model}")
    return serve(Options(arguments.model, arguments.served_model_name, arguments.port, arguments.rpc_port, arguments.api_servers))


if __name__ == "__main__":
    sys.exit(main())
