"""Writing reports: into the record's folder, and the newest one's figures into the README."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from bench import record as records
from bench.record import Record, RecordError
from bench.report.figures import Figures
from bench.report.headline import headline
from bench.report.plots import plot
from bench.report.tables import summary, whole

NONE = "No record has been taken yet: `fastfront bench run`, then `fastfront bench report --readme`."
Marks = tuple[str, str]

SUMMARY: Marks = "<!-- bench: begin -->", "<!-- bench: end -->"
HEADLINE: Marks = "<!-- bench headline: begin -->", "<!-- bench headline: end -->"


def write_report(record: Record, folder: Path) -> list[Path]:
    """README.md and the plots of a record; their paths."""
    text = folder / "README.md"
    text.write_text(whole(record), encoding="utf-8")
    return [text, *plot(Figures(record), folder)]


def blocks(root: Path) -> dict[Marks, str]:
    """What belongs between the README's marks, of the newest record."""
    try:
        folder = records.newest(root / "bench" / "records")
    except RecordError:
        return {HEADLINE: NONE, SUMMARY: NONE}
    record = records.load(folder)
    return {HEADLINE: headline(Figures(record)), SUMMARY: summary(record, folder.relative_to(root).as_posix())}


def with_blocks(readme: str, texts: Mapping[Marks, str]) -> str:
    """The README with each text between its marks; raises RecordError where they are missing."""
    for (begin, end), text in texts.items():
        found = re.search(f"{re.escape(begin)}.*?{re.escape(end)}", readme, flags=re.S)
        if found is None:
            raise RecordError(f"README.md has no {begin} ... {end}")
        readme = f"{readme[: found.start()]}{begin}\n{text}\n{end}{readme[found.end() :]}"
    return readme


def write_readme(root: Path) -> Path:
    """Put the newest record's figures into the README; its path."""
    path = root / "README.md"
    path.write_text(with_blocks(path.read_text(encoding="utf-8"), blocks(root)), encoding="utf-8")
    return path
