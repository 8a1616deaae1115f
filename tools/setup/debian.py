"""Debian's source package of CPython, fetched with apt through the machine's own mirror.

apt works in a folder of our own here: the machine's package lists and sources stay as they are. Signatures are
always checked.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.setup.mirrors import Source, debian_mirror, machine_sources, source_stanza
from tools.setup.plan import Context
from tools.setup.run import Command, StepFailed

SUITE = "trixie"
PACKAGE = "python3.13"
_KEYRING = "usr/share/keyrings/debian-archive-keyring.gpg"
ADVICE = (
    "Give a free-threaded Python by FASTFRONT_PYTHON=/path/to/python3.13t, or install one "
    "(`uv python install 3.13t`, `pyenv install 3.13t`), then run this again."
)


@dataclass(frozen=True)
class SourcePackage:
    """A downloaded source package: upstream's tarball, Debian's packaging, and the version."""

    version: str
    tarball: Path
    packaging: Path


class PrivateApt:
    """apt with its state, cache and sources under `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.downloads = folder / "downloads"
        for part in ("state/lists/partial", "cache/archives/partial", "parts", "downloads"):
            (folder / part).mkdir(parents=True, exist_ok=True)

    def write_sources(self, text: str) -> None:
        (self.folder / "fastfront.sources").write_text(text, encoding="utf-8")

    def command(self, *arguments: str, advice: str = ADVICE) -> Command:
        """An apt-get command confined to this folder."""
        options = {
            "Dir::State": self.folder / "state",
            "Dir::Cache": self.folder / "cache",
            "Dir::Etc::sourcelist": self.folder / "fastfront.sources",
            "Dir::Etc::sourceparts": self.folder / "parts",
            "Dir::State::status": "/var/lib/dpkg/status",
            # Downloads land in folders that apt's own unprivileged user cannot write to.
            "APT::Sandbox::User": "root",
        }
        flags = [flag for name, value in options.items() for flag in ("-o", f"{name}={value}")]
        return Command(["apt-get", *flags, *arguments], advice, cwd=self.downloads, timeout_s=600)


def fetch_source(context: Context, folder: Path) -> SourcePackage:
    """Download the source package into `folder`; `StepFailed` says at which point that was impossible."""
    if shutil.which("apt-get") is None:
        raise StepFailed("this machine has no apt-get, so Debian's source package cannot be fetched", ADVICE)
    mirror = debian_mirror(machine_sources())
    if mirror is None:
        raise StepFailed("no source in /etc/apt serves Debian's main archive", ADVICE)
    apt = PrivateApt(folder)
    context.console.note(f"source package {PACKAGE} of Debian {SUITE} from {mirror.uri}")
    _update(context, apt, mirror)
    context.run(apt.command("source", "--download-only", PACKAGE))
    return _downloaded(apt.downloads)


def _update(context: Context, apt: PrivateApt, mirror: Source) -> None:
    """Read the suite's package lists, with the first keyring that its signature verifies with."""
    failure: StepFailed | None = None
    for keyring in _keyrings(context, apt, mirror):
        apt.write_sources(source_stanza(mirror, SUITE, keyring))
        try:
            # Without this, apt calls a suite that it cannot verify a warning and goes on with what it had.
            context.run(apt.command("-o", "APT::Update::Error-Mode=any", "update"))
            return
        except StepFailed as error:
            failure = error
    assert failure is not None
    raise failure


def _keyrings(context: Context, apt: PrivateApt, mirror: Source) -> Iterator[str | None]:
    """Keyrings to try: the mirror's own, the installed one, and that of the newest keyring package.

    The last is fetched by the machine's own apt, that is over a suite whose signature the machine already trusts.
    """
    yield mirror.signed_by
    if mirror.signed_by != f"/{_KEYRING}" and Path(f"/{_KEYRING}").exists():
        yield f"/{_KEYRING}"
    context.console.note("the keyrings here do not verify it; fetching Debian's current keyring package")
    advice = "Install a current debian-archive-keyring (apt-get install debian-archive-keyring), then run this again."
    context.run(Command(["apt-get", "download", "debian-archive-keyring"], advice, cwd=apt.downloads, timeout_s=120))
    package = max(apt.downloads.glob("debian-archive-keyring_*.deb"))
    context.run(Command(["dpkg-deb", "-x", str(package), str(apt.folder / "keyring")], advice))
    yield str(apt.folder / "keyring" / _KEYRING)


def _downloaded(folder: Path) -> SourcePackage:
    found = [(path, path.name[len(PACKAGE) + 1 : -len(".dsc")]) for path in folder.glob(f"{PACKAGE}_*.dsc")]
    if len(found) != 1:
        raise StepFailed(f"{folder} holds {len(found)} source packages where one is expected", ADVICE)
    version = found[0][1]
    upstream = version.rsplit("-", 1)[0]
    tarball = next(folder.glob(f"{PACKAGE}_{upstream}.orig.tar.*z"))
    return SourcePackage(version, tarball, next(folder.glob(f"{PACKAGE}_{version}.debian.tar.*z")))


def unpack(package: SourcePackage, folder: Path, context: Context) -> Path:
    """Upstream's sources with Debian's fixes, in a new folder under `folder`; returns that folder.

    Of the patches only the fixes (`*.patch`) are taken; the rest (`*.diff`) adapts paths to a Debian system.
    """
    source = folder / "source"
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir(parents=True)
    advice = f"Install tar and xz (apt-get install tar xz-utils). {ADVICE}"
    context.run(Command(["tar", "-xf", str(package.tarball), "--strip-components=1", "-C", str(source)], advice))
    context.run(Command(["tar", "-xf", str(package.packaging), "-C", str(folder)], advice))
    if shutil.which("patch") is None:
        context.console.note("`patch` is missing: building without Debian's security fixes")
        return source
    skipped = [name for name in fixes(folder / "debian" / "patches" / "series") if not _apply(folder, source, name)]
    if skipped:
        context.console.note(f"fixes that do not apply, left out: {', '.join(skipped)}")
    return source


def fixes(series: Path) -> list[str]:
    """Names of the fixes in a patch series, in its order."""
    lines = [line.split("#", 1)[0].strip() for line in series.read_text(encoding="utf-8").splitlines()]
    return [line.split()[0] for line in lines if line and line.split()[0].endswith(".patch")]


def _apply(folder: Path, source: Path, name: str) -> bool:
    """Apply one patch whole, or not at all."""
    patch = ["patch", "-p1", "-N", "-s", "-d", str(source), "-i", str(folder / "debian" / "patches" / name)]
    for flags in (["--dry-run"], []):
        if subprocess.run([*patch, *flags], capture_output=True, check=False).returncode != 0:
            return False
    return True
