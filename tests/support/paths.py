"""Where the tests find programs, models and tokenizers."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FASTFRONT = ROOT / ".venv" / "bin" / "fastfront"
ENGINE_PYTHON = ROOT / ".venv-engine" / "bin" / "python"
CACHE = Path(os.environ.get("FASTFRONT_CACHE") or Path.home() / ".cache" / "fastfront")
SMOLLM2 = CACHE / "models" / "smollm2"
TOKENIZERS = CACHE / "tokenizers"


def environment(**more: str) -> dict[str, str]:
    """This process's environment without what would change how a server behaves, plus `more`."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHON_GIL" and not k.startswith("VLLM_")}
    # Warnings of a server are its bugs.
    return env | {"PYTHONWARNINGS": "error", "PYTHONFAULTHANDLER": "1"} | more
