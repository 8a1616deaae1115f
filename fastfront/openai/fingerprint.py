"""What `system_fingerprint` says."""

from __future__ import annotations

import hashlib
import importlib.metadata

from fastfront.config import ServeConfig


def fingerprint(config: ServeConfig) -> str:
    """`system_fingerprint` of this server's answers, "" for none.

    It is the same for the same version, model and layout; with the mode `hash` for any layout.
    """
    if config.answers.fingerprint_mode in ("custom", "none"):
        return config.answers.fingerprint_value
    version = importlib.metadata.version("fastfront")
    what = f"{config.model} {config.dtype}"
    if config.answers.fingerprint_mode == "full":
        what += f" {config.data_parallel_size} {config.tensor_parallel_size}"
    return f"fastfront-{version}-{hashlib.sha256(what.encode()).hexdigest()[:8]}"
