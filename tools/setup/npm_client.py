"""OpenAI's client for Node.js, for the tests: an npm package without dependencies."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

from tools.setup.npm_tokenizers import ensure_npm, integrity_of
from tools.setup.plan import Context
from tools.setup.run import Command, StepFailed

VERSION = "7.59.0"
# sha512 of the package's tarball, as npm states integrity.
INTEGRITY = "wPYKJkLPFEdNJ2tThSg4jE1Ptsv4X3u8g8LIvu0Qz/UIhsKeCzl73rl48PtQsDVrJL/ku0liXOsbyd2TsRsPJw=="


def client_folder(cache: Path) -> Path:
    """Where the package lies: `node_modules` is its parent."""
    return cache / "node" / VERSION / "node_modules" / "openai"


def client_ready(context: Context) -> bool:
    """Whether the cache has it. A folder appears only when it is complete."""
    return (client_folder(context.paths.cache) / "package.json").exists()


def make_client(context: Context) -> None:
    """Fetch the package with npm, check the tarball and unpack it."""
    ensure_npm(context)
    scratch = context.paths.build / "npm-client"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    package = f"openai@{VERSION}"
    advice = "Check that npm reaches its registry (`npm ping`), then run this again."
    context.run(Command(["npm", "pack", package, "--pack-destination", str(scratch)], advice, cwd=scratch, timeout_s=600))
    tarball = scratch / f"openai-{VERSION}.tgz"
    found = integrity_of(tarball)
    if found != INTEGRITY:
        raise StepFailed(f"{package}: sha512 {found}, expected {INTEGRITY}", "Do not use it; report this.")
    unpack(tarball, scratch)
    target = client_folder(context.paths.cache)
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    (scratch / "package").rename(target)
    shutil.rmtree(scratch, ignore_errors=True)


def unpack(tarball: Path, folder: Path) -> None:
    """Write the plain files of a package below `folder`; nothing else is in one."""
    with tarfile.open(tarball) as archive:
        for member in archive:
            source = archive.extractfile(member) if member.isfile() else None
            if source is None or member.name.startswith("/") or ".." in Path(member.name).parts:
                continue
            target = folder / member.name
            target.parent.mkdir(parents=True, exist_ok=True)
            with source, target.open("wb") as out:
                shutil.copyfileobj(source, out)
