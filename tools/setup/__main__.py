"""`python3 -m tools.setup TARGET`: make what the target needs and is not there yet."""

from __future__ import annotations

import argparse
import os
import sys

from tools.setup.console import Console
from tools.setup.paths import find_paths
from tools.setup.plan import Context, run_steps
from tools.setup.run import StepFailed
from tools.setup.steps import TARGETS

_DESCRIPTION = """Make what TARGET needs and is not there yet. Variables: FASTFRONT_CACHE (default ~/.cache/fastfront),
FASTFRONT_PYTHON (free-threaded Python to use), FASTFRONT_ENGINE_PYTHON (ordinary Python for the engine),
FASTFRONT_PGO and FASTFRONT_LTO (0 or 1, when Python is built here), FASTFRONT_VLLM_RS (a vllm-rs that is here already)."""


def main() -> int:
    """Exit status 0 when all is there, 1 with what was tried and what to do when a step failed, 130 on Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python3 -m tools.setup", description=_DESCRIPTION)
    parser.add_argument("target", choices=sorted(TARGETS))
    target = parser.parse_args().target
    console = Console()
    context = Context(find_paths(os.environ), dict(os.environ), console)
    try:
        run_steps(TARGETS[target], context)
    except StepFailed as error:
        console.summary("set-up stopped")
        print(error.report(), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        console.summary("set-up interrupted; what is finished is kept")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
