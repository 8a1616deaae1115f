"""Whether this interpreter runs threads in parallel."""

from __future__ import annotations

import logging
import sys
import sysconfig

from fastfront.errors import SetupError

log = logging.getLogger("fastfront")


def gil_enabled() -> bool:
    check = getattr(sys, "_is_gil_enabled", None)
    return True if check is None else bool(check())


def require_gil_off() -> None:
    """On a free-threaded interpreter the GIL must be off: raises SetupError when some import turned it on.

    On an ordinary interpreter a warning is logged: everything works, one thread at a time.
    """
    if not sysconfig.get_config_var("Py_GIL_DISABLED"):
        log.warning("this Python has a GIL, which limits throughput to about one core: use a free-threaded build (3.13t)")
    elif gil_enabled():
        raise SetupError(
            "an extension module turned the GIL on; run `python -X gil=0 -W error -m fastfront ...` to see which,"
            " or look for the RuntimeWarning above that names it"
        )
