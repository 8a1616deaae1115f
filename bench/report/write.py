"""Writing reports: into the record's folder, and the newest one's summary into the README."""

from __future__ import annotations

import re
from pathlib import Path

from bench import record as records
from bench.record import Record, RecordError
from bench.report.figures import Figures
from bench.report.plots import plot
from bench.report.tables import summary, whole

NONE = "No record has been taken yet: `fastfront bench run`, then `fastfront bench report --readme`."
BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"


def write_report(record: Record, folder: Path) -> list[Path]:
    """README.md and the plots of a record; their paths."""
    text = folder / "README.md"
    text.write_text(whole(record), encoding="utf-8")
    return [text, *plot(Figures(record), folder)]


def block(root: Path) -> str:
    """What belongs between the README's marks: the summary of the newest record."""
    try:
        folder = records.newest(root / "bench" / "records")
    except RecordError:
        return NONE
    return summary(records.load(folder), folder.relative_to(root).as_posix())


def with_block(readme: str, text: str) -> str:
    """The README with `text` between the marks; raises RecordError where they are missing."""
    found, count = re.subn(
        f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: f"{BEGIN}\n{text}\n{END}", readme, count=1, flags=re.S
    )
    if count == 0:
        raise RecordError(f"README.md has no {BEGIN} ... {END}")
    return found


def write_readme(root: Path) -> Path:
    """Put the summary of the newest record into the README; its path."""
    path = root / "README.md"
    path.write_text(with_block(path.read_text(encoding="utf-8"), block(root)), encoding="utf-8")
    return path
