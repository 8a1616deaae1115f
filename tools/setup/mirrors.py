"""Reading the machine's apt sources, to find the Debian mirror that it already uses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_ONE_LINE = re.compile(r"^(?P<kind>deb|deb-src)\s+(?:\[(?P<options>[^\]]*)\]\s+)?(?P<uri>\S+)\s+(?P<rest>\S.*)$")


@dataclass(frozen=True)
class Source:
    """One package source of apt. `signed_by` is a keyring path, or None where apt's own trusted keys are meant."""

    uri: str
    suites: tuple[str, ...]
    components: tuple[str, ...]
    signed_by: str | None

    @property
    def is_debian_archive(self) -> bool:
        """Whether this is the main archive of Debian itself (no security archive, no other vendor's)."""
        return (
            self.uri.rstrip("/").rsplit("/", 1)[-1] == "debian"
            and "main" in self.components
            and any(not suite.endswith(("-security", "-updates")) for suite in self.suites)
        )


def parse_one_line(text: str) -> Iterator[Source]:
    """Entries of a sources.list file (`deb [options] uri suite component...`); other lines are skipped."""
    for line in text.splitlines():
        match = _ONE_LINE.match(line.split("#", 1)[0].strip())
        if match is None:
            continue
        options = dict(part.split("=", 1) for part in (match["options"] or "").split() if "=" in part)
        suite, *components = match["rest"].split()
        yield Source(match["uri"], (suite,), tuple(components), options.get("signed-by"))


def parse_deb822(text: str) -> Iterator[Source]:
    """Entries of a .sources file (paragraphs of `Field: value`), disabled ones left out.

    A key written into the file itself counts as no keyring, because it cannot be named by path.
    """
    for paragraph in re.split(r"\n\s*\n", text):
        fields: dict[str, str] = {}
        name = ""
        for line in paragraph.splitlines():
            if line.startswith("#"):
                continue
            if line[:1].isspace():
                fields[name] = fields.get(name, "") + "\n" + line.strip()
            elif ":" in line:
                name, value = line.split(":", 1)
                name = name.lower()
                fields[name] = value.strip()
        if "uris" not in fields or fields.get("enabled", "yes").lower() in ("no", "false", "0"):
            continue
        signed_by = fields.get("signed-by", "").strip()
        for uri in fields["uris"].split():
            yield Source(
                uri,
                tuple(fields.get("suites", "").split()),
                tuple(fields.get("components", "").split()),
                signed_by if signed_by.startswith("/") else None,
            )


def machine_sources(folder: Path = Path("/etc/apt")) -> list[Source]:
    """Every source that the machine's apt uses, in apt's order."""
    found: list[Source] = []
    files = [folder / "sources.list", *sorted((folder / "sources.list.d").glob("*"))]
    for path in files:
        if path.suffix not in (".list", ".sources") or not path.is_file():
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        found += parse_deb822(text) if path.suffix == ".sources" else parse_one_line(text)
    return found


def debian_mirror(sources: Iterable[Source]) -> Source | None:
    """The first source that serves Debian's main archive."""
    return next((source for source in sources if source.is_debian_archive), None)


def source_stanza(mirror: Source, suite: str, keyring: str | None) -> str:
    """A .sources file that gives the source packages of `suite` from `mirror`, checked against `keyring`."""
    lines = ["Types: deb-src", f"URIs: {mirror.uri}", f"Suites: {suite}", "Components: main"]
    if keyring is not None:
        lines.append(f"Signed-By: {keyring}")
    return "\n".join(lines) + "\n"
