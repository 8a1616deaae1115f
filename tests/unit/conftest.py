from __future__ import annotations

from pathlib import Path

import pytest

from fastfront.cli.model import cache_folder
from fastfront.openai.serving import Serving, build_serving
from tests.unit.support import config_of, make_folder


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="session")
def serving(tiny_folder: Path) -> Serving:
    return build_serving(config_of(tiny_folder))


@pytest.fixture(scope="session")
def smollm2_folder() -> Path:
    return _made(cache_folder() / "models" / "smollm2")


@pytest.fixture(scope="session")
def tokenizer_folders() -> Path:
    return _made(cache_folder() / "tokenizers")


def _made(folder: Path) -> Path:
    if not folder.is_dir():
        pytest.fail(f"{folder} does not exist: `make setup` makes it")
    return folder
