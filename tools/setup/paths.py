"""Where everything lives: the clone and the cache."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Paths:
    """Folders of one clone (`root`) and of the cache shared by all clones; neither needs to exist."""

    root: Path
    cache: Path

    @property
    def venv(self) -> Path:
        """Frontend environment (free-threaded)."""
        return self.root / ".venv"

    @property
    def engine_venv(self) -> Path:
        """Engine environment (ordinary CPython)."""
        return self.root / ".venv-engine"

    @property
    def requirements(self) -> Path:
        return self.root / "requirements"

    @property
    def pythons(self) -> Path:
        """Interpreters built here, one folder per version and flavour."""
        return self.cache / "python"

    @property
    def wheels(self) -> Path:
        """Wheels built here because no index has them."""
        return self.cache / "wheels"

    @property
    def models(self) -> Path:
        return self.cache / "models"

    @property
    def tokenizers(self) -> Path:
        """Real tokenizers that the tests use."""
        return self.cache / "tokenizers"

    @property
    def peers(self) -> Path:
        """Other frontends, for benchmarks."""
        return self.cache / "peers"

    @property
    def build(self) -> Path:
        """Scratch space of builds, removed when a build has succeeded."""
        return self.cache / "build"

    @property
    def logs(self) -> Path:
        """One log per step: output of its last run."""
        return self.cache / "logs"


def find_paths(environ: Mapping[str, str]) -> Paths:
    """Paths of the clone that this file belongs to, with the cache where `FASTFRONT_CACHE` says."""
    cache = environ.get("FASTFRONT_CACHE") or "~/.cache/fastfront"
    return Paths(Path(__file__).resolve().parents[2], Path(os.path.abspath(os.path.expanduser(cache))))
