"""The weight files of a model folder: all there, whole, and read once before the model is built."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.model.errors import ModelError
from engine.progress import Progress

INDEX = "model.safetensors.index.json"
PIECE = 16 << 20
_LENGTH = 8
_MOST_HEADER = 100 << 20


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files that the folder's index lists, or all of them. ModelError names what is missing or broken."""
    index = folder / INDEX
    if index.exists():
        try:
            names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ModelError(f"{index}: no index of weights ({type(error).__name__}: {error})") from error
        files = [folder / name for name in names]
        missing = [path.name for path in files if not path.is_file()]
        if missing:
            raise ModelError(f"{folder}: {len(missing)} of {len(files)} weight files are missing, first {missing[0]}")
    else:
        files = sorted(folder.glob("*.safetensors"))
        if not files:
            raise ModelError(f"{folder}: no .safetensors file")
    for path in files:
        check(path)
    return files


def check(path: Path) -> None:
    """ModelError if `path` is no whole safetensors file: its header tells how long it must be."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(_LENGTH), "little")
            header = file.read(min(length, _MOST_HEADER))
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror}") from error
    if size < _LENGTH or not 2 <= length <= _MOST_HEADER:
        raise ModelError(f"{path}: no safetensors file ({size} bytes, a header of {length})")
    if len(header) < length:
        raise ModelError(f"{path}: truncated, {size} bytes do not hold the header of {length}")
    try:
        entries: dict[str, Any] = json.loads(header)
        data = max((entry["data_offsets"][1] for name, entry in entries.items() if name != "__metadata__"), default=0)
        whole = _LENGTH + length + int(data)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise ModelError(f"{path}: no safetensors file, its header cannot be understood") from error
    if size < whole:
        raise ModelError(f"{path}: truncated, {size} of {whole} bytes")


def read_ahead(files: list[Path], say: Callable[[str], None], memory_bytes: int) -> None:
    """Read the files once, with progress, so that they are in memory when the model is built from them.

    Does nothing if they are larger than `memory_bytes`. ModelError names a file that cannot be read.
    """
    total = sum(path.stat().st_size for path in files)
    if total > memory_bytes:
        say(f"weights: {total / 1e9:.1f} GB in {len(files)} files, read as needed")
        return
    progress = Progress("weights", total, say, sys.stderr)
    piece = bytearray(PIECE)
    for path in files:
        try:
            with path.open("rb", buffering=0) as file:
                while count := file.readinto(piece):
                    progress.add(count)
        except OSError as error:
            raise ModelError(f"{path}: cannot be read: {error.strerror}") from error
    progress.finish()
