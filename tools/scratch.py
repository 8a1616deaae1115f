"""Temporary folders that do not outlive who made them by long: each start of a program removes what killed ones left."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_PREFIX = "fastfront-scratch-"


@contextlib.contextmanager
def scratch_folder(name: str) -> Iterator[Path]:
    """A new folder in the temporary folder, with `name` in its own; it is gone at the end.

    Its maker has a lock on it, which the kernel takes away however the maker ends. Folders without one, whatever their name, are
    removed before a new one is made.
    """
    sweep()
    path, lock = _new(name)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def sweep() -> list[Path]:
    """Remove the folders of makers that have ended; those that were removed."""
    removed = []
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            lock = _locked(path, fcntl.LOCK_NB)
            try:
                shutil.rmtree(path)
                removed.append(path)
            finally:
                os.close(lock)
    return removed


def _new(name: str) -> tuple[Path, int]:
    """A folder, and the descriptor that holds its lock."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{name}-"))
        with contextlib.suppress(FileNotFoundError):  # swept before it was locked
            return path, _locked(path)


def _locked(path: Path, how: int = 0) -> int:
    """A descriptor of a folder, with a lock. OSError if it is not there, or another process has one and LOCK_NB is given."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | how)
        path.stat()
    except OSError:
        os.close(folder)
        raise
    return folder
