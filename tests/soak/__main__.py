"""`python -m tests.soak [requests] [connections] [serve flags...]`: one long run, its figures as JSON."""

from __future__ import annotations

import json
import sys

from tests.soak.load import soak
from tests.support.mock import MockEngine
from tests.support.server import Server
from tools.scratch import scratch_folder


def main(argv: list[str]) -> int:
    """Fails if a request is lost or hangs."""
    requests = int(argv[0]) if argv else 200_000
    connections = int(argv[1]) if len(argv) > 1 else 64
    with scratch_folder("soak") as folder, Server(folder, *argv[2:], mock=MockEngine(folder).quiet()) as server:
        server.wait_ready()
        figures = soak(server, requests, connections)
    print(json.dumps(figures.as_dict()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
