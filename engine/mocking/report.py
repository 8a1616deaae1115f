"""Observation for tests: one JSON line per event, on disk before anything else happens."""

from __future__ import annotations

from typing import IO, Any

import orjson


class Report:
    """Appends events to a file, or does nothing when there is none. Owned by the step loop."""

    def __init__(self, path: str | None) -> None:
        self._file: IO[bytes] | None = open(path, "ab", buffering=0) if path else None  # noqa: SIM115 - kept open
        self.on = self._file is not None

    def write(self, event: str, **fields: Any) -> None:
        """Append `{"event": event, ...}`; one write call, so that a reader never sees half of it from a live mock."""
        if self._file is not None:
            line = {"event": event, **fields}
            self._file.write(orjson.dumps(line, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_APPEND_NEWLINE))
