"""Run by the frontend's Python with `-X gil=1`: `fastfront`, which refuses a GIL on a free-threaded build, with one.

The same interpreter, the same code, the same threads; what is left out are the checks.
"""

import sys

from fastfront.cli.main import main
from fastfront.server import gil


def leave_out_checks() -> None:
    """Let fastfront believe that there is no GIL."""
    gil.gil_enabled = lambda: False


if __name__ == "__main__":
    assert gil.gil_enabled(), "start it with `python -X gil=1`"
    leave_out_checks()
    sys.exit(main())
