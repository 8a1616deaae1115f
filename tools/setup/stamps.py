"""Stamps: which inputs a product was made from, so that a second run can tell that nothing is left to do."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path


def digest(values: Mapping[str, str], files: Iterable[Path] = ()) -> str:
    """Hash of named values and of the content of `files` (a missing file counts as such)."""
    state = hashlib.sha256(json.dumps(dict(values), sort_keys=True).encode())
    for path in sorted(files):
        state.update(b"\0" + path.name.encode() + b"\0")
        state.update(hashlib.sha256(path.read_bytes()).digest() if path.exists() else b"absent")
    return state.hexdigest()


def is_current(stamp: Path, inputs: str) -> bool:
    """Whether `stamp` records exactly these inputs."""
    try:
        return stamp.read_text(encoding="ascii").strip() == inputs
    except OSError:
        return False


def record(stamp: Path, inputs: str) -> None:
    """Note that the product beside `stamp` was made from `inputs`; the stamp appears whole or not at all."""
    stamp.parent.mkdir(parents=True, exist_ok=True)
    temporary = stamp.with_name(f"{stamp.name}.{os.getpid()}")
    temporary.write_text(inputs + "\n", encoding="ascii")
    temporary.replace(stamp)
