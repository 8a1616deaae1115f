"""What `system_fingerprint` says."""

from __future__ import annotations

import hashlib
import importlib.metadata

from fastfront.config import ServeConfig


def fingerprint(config: ServeConfig) -> str:
    """`system_fingerprint` of this server's answers: the same for the same version, model and layout."""
    version = importlib.metadata.version("fastfront")
    what = f"{config.model} {config.data_parallel_size} {config.tensor_parallel_size} {config.dtype}"
    return f"fastfront-{version}-{hashlib.sha256(what.encode()).hexdigest()[:8]}"
