"""Fixtures that several folders use: import them in a conftest."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.mock import MockEngine
from tests.support.paths import SMOLLM2, TOKENIZERS
from tests.support.server import Server
from tests.support.tokens import Pieces

StartServer = Callable[..., Server]


@pytest.fixture(scope="session")
def pieces() -> Pieces:
    """Ids of the served model's tokenizer."""
    return Pieces(SMOLLM2)


@pytest.fixture(scope="session")
def llama_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder with a SentencePiece tokenizer with byte fallback; no weights."""
    folder = tmp_path_factory.mktemp("llama")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).symlink_to(TOKENIZERS / "llama2" / name)
    config = {"model_type": "llama", "vocab_size": 32000, "max_position_embeddings": 4096, "eos_token_id": 2}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture
def start(tmp_path: Path) -> Iterator[StartServer]:
    """Starts servers of this test alone: `start(*flags, mock_flags=(), **options of Server)`; all are stopped at the end."""
    with contextlib.ExitStack() as stack:

        def begin(*flags: str, mock_flags: tuple[str, ...] = (), script: Any = None, **options: Any) -> Server:
            folder = tmp_path / f"server-{len(list(tmp_path.iterdir()))}"
            folder.mkdir()
            options.setdefault("mock", MockEngine(folder, *mock_flags, script=script))
            return stack.enter_context(Server(folder, *flags, **options))

        yield begin
