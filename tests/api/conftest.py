"""Servers that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fixtures import llama_folder, pieces, start
from tests.support.mock import MockEngine
from tests.support.server import Server

__all__ = ["llama_folder", "pieces", "start"]

KEYS = ("first-key", "second-key")
BODY_LIMIT = 100_000


def serve(factory: pytest.TempPathFactory, name: str, *flags: str, **options: object) -> Iterator[Server]:
    """A server whose mock echoes prompts unless a request brings its script; its log must stay free of failures."""
    folder = factory.mktemp(name)
    mock = MockEngine(folder, "--tokens", "echo", "--stats")
    with Server(folder, *flags, mock=mock, **options) as server:  # type: ignore[arg-type]
        yield server.wait_ready()
        log = server.log()
    assert "Traceback" not in log, log
    assert "ERROR" not in log, log


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from serve(tmp_path_factory, "shared", "--max-model-len", "2048")


@pytest.fixture
def server(shared: Server) -> Iterator[Server]:
    """The server most tests talk to; every test must leave its engine idle."""
    yield shared
    assert shared.mock is not None
    shared.mock.wait_idle()
    shared.mock.use()


@pytest.fixture
def mock(server: Server) -> MockEngine:
    """The engine behind `server`."""
    assert server.mock is not None
    return server.mock


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with keys, several names, a path prefix, request id headers and a small body limit."""
    yield from serve(
        tmp_path_factory, "guarded", "--api-key", *KEYS, "--served-model-name", "first", "second", "--root-path", "/prefix",
        "--max-body-bytes", str(BODY_LIMIT), "--enable-request-id-headers",
    )  # fmt: skip


@pytest.fixture(scope="session")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that closes connections after one idle second."""
    yield from serve(tmp_path_factory, "hasty", "--keep-alive", "1")


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory, llama_folder: Path) -> Iterator[Server]:
    """A server of a SentencePiece model."""
    yield from serve(tmp_path_factory, "llama-server", model=llama_folder)
