"""Records: the raw results of one run with everything needed to judge them, as one JSON file in a folder of its own."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

FORMAT = 1
FILE = "record.json"
FOLDER = Path(__file__).parent / "records"

Record = dict[str, Any]


class RecordError(Exception):
    """There is no such record, or it cannot be read or written."""


def save(record: Record, folder: Path) -> Path:
    """Write a record, one line per sample; it appears whole or not at all. Raises RecordError."""
    head = {key: value for key, value in record.items() if not isinstance(value, list)}
    parts = [json.dumps(head, indent=1)[:-2]]
    for name, value in record.items():
        if isinstance(value, list):
            lines = ",\n".join(f"  {json.dumps(item)}" for item in value)
            parts.append(f' "{name}": [\n{lines}\n ]' if value else f' "{name}": []')
    path = folder / FILE
    unfinished = path.with_suffix(".unfinished")
    make_folder(folder)
    try:
        unfinished.write_text(",\n".join(parts) + "\n}\n", encoding="utf-8")
        unfinished.replace(path)
    except OSError as error:
        raise RecordError(f"{unfinished}: {error.strerror}") from error
    return path


def make_folder(folder: Path) -> None:
    """Make sure that records can be written there; raises RecordError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordError(f"{folder}: {error.strerror}") from error
    if not os.access(folder, os.W_OK):
        raise RecordError(f"{folder}: may not be written to")


def load(folder: Path) -> Record:
    """The record of a folder; raises RecordError."""
    try:
        record = json.loads((folder / FILE).read_text(encoding="utf-8"))
    except OSError as error:
        raise RecordError(f"no record in {folder}: {error.strerror}") from error
    except ValueError as error:
        raise RecordError(f"{folder / FILE}: {error}") from error
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise RecordError(f"{folder / FILE}: not a record of format {FORMAT}")
    return record


def newest(root: Path = FOLDER) -> Path:
    """The folder of the newest record by its name (DATE-machine-NUMBER); raises RecordError when there is none."""
    found = [path.parent for path in root.glob(f"*/{FILE}")]
    if not found:
        raise RecordError(f"no records in {root}")
    return max(found, key=lambda folder: [(int(word) if word.isdigit() else 0, word) for word in folder.name.split("-")])
