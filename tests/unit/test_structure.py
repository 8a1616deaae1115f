"""The tree is the architecture: what the documents name exists, and imports go one way."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LEVELS = {  # a module imports from its own package and from lower levels
    "cli": 6,
    "server": 5,
    "openai": 4,
    "metrics": 3,
    "render": 3,
    "streams": 3,
    "engine_client": 2,
    "_speedups": 1,
    "config": 0,
    "errors": 0,
    "cores": -1,
}


def modules(package: str) -> list[Path]:
    return sorted(p for p in (ROOT / package).rglob("*.py*") if p.suffix in (".py", ".pyx"))


def imported(path: Path) -> set[str]:
    """Dotted names a source file imports (cimports included)."""
    text = path.read_text()
    if path.suffix == ".pyx":
        return set(re.findall(r"^\s*from ([\w.]+) c?import", text, re.M)) | set(re.findall(r"^\s*c?import ([\w.]+)", text, re.M))
    names = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.add(node.module or "")
        elif isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
    return names


@pytest.mark.parametrize("path", modules("fastfront"), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_down(path: Path) -> None:
    parts = path.relative_to(ROOT / "fastfront").with_suffix("").parts
    own = parts[0]
    if own == "__init__":
        return
    for name in imported(path):
        top, _, rest = name.partition(".")
        assert top != "engine", f"{path.name} imports {name}: frontend and engine share nothing but the wire"
        if top != "fastfront" or not rest:
            continue
        other = rest.split(".")[0]
        assert other in LEVELS, f"{path.name} imports {name}, which has no level"
        assert LEVELS[other] < LEVELS[own] or other == own, f"{path.name} ({own}) imports {name}"


@pytest.mark.parametrize("path", modules("engine"), ids=lambda p: str(p.relative_to(ROOT)))
def test_engine_does_not_know_the_frontend(path: Path) -> None:
    assert not [name for name in imported(path) if name.split(".")[0] == "fastfront"]


def documented() -> list[str]:
    text = (ROOT / "docs/structures.md").read_text()
    return sorted(set(re.findall(r"`((?:fastfront|bench)\.[\w.]+)`", text)))


@pytest.mark.parametrize("name", documented())
def test_what_the_document_names_exists(name: str) -> None:
    parts = name.split(".")
    for n in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:n]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[n:]:
            assert hasattr(found, attribute), f"docs/structures.md names {name}, which does not exist"
            found = getattr(found, attribute)
        return
    pytest.fail(f"docs/structures.md names {name}, which does not exist")


def test_every_package_is_documented() -> None:
    text = (ROOT / "docs/structures.md").read_text()
    missing = [name for name in LEVELS if f"`fastfront.{name}`" not in text]
    assert not missing
