"""Every recorded request, answered by a server that was started as the recorded one was: the same answers.

tests/golden/decided.json and more_decided.json say where they differ on purpose, pending.json what is asked for and not there
yet. An entry that is no longer true fails too.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.golden.compare import HERE, ask, differences, fold, read_lines
from tests.golden.prepare_models import FOLDERS, make_folder
from tests.support.fixtures import StartServer
from tests.support.mock import MockEngine
from tests.support.paths import SMOLLM2, TOKENIZERS

SERVERS = json.loads((HERE / "servers.json").read_text(encoding="utf-8"))
REQUESTS = [item for name in ("requests", "more_requests") for item in read_lines(HERE / f"{name}.jsonl")]
ANSWERS = {item["id"]: item for name in ("answers", "more_answers") for item in read_lines(HERE / f"{name}.jsonl")}
DIFFERENT = {
    key: reason
    for name in ("decided", "more_decided", "pending")
    for key, reason in json.loads((HERE / f"{name}.json").read_text(encoding="utf-8")).items()
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders that servers.json names."""
    folder = tmp_path_factory.mktemp("golden-models")
    for name, (source, renames) in FOLDERS.items():
        make_folder(folder / name, TOKENIZERS / source, SMOLLM2, renames)
    return {"smollm2": SMOLLM2, **{name: folder / name for name in FOLDERS}}


def hard_differences(base: str, request: dict[str, Any]) -> list[Any]:
    """What differs but for the wording of errors."""
    found = differences(fold(ANSWERS[request["id"]]), fold(ask(base, request)))
    return [item for item in found if item[0] != ".wording"]


def test_every_request_has_a_server() -> None:
    assert {item["server"] for item in REQUESTS} == SERVERS.keys()
    assert DIFFERENT.keys() <= {item["id"] for item in REQUESTS}
    assert len({item["id"] for item in REQUESTS}) == len(REQUESTS) == len(ANSWERS)


@pytest.mark.parametrize("name", SERVERS)
def test_same_answers(name: str, models: dict[str, Path], start: StartServer, tmp_path: Path) -> None:
    flags = [str(HERE / flag) if flag.endswith(".jinja") else flag for flag in SERVERS[name]["flags"]]
    mock = MockEngine(tmp_path, "--tokens", "echo", "--step-ms", "0").quiet()
    server = start(*flags, "--served-model-name", "m", model=models[SERVERS[name]["model"]], mock=mock).wait_ready()
    requests = [item for item in REQUESTS if item["server"] == name]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda item: hard_differences(f"http://127.0.0.1:{server.port}", item), requests))
    different = {request["id"]: hard for request, hard in zip(requests, found, strict=True) if hard}
    expected = {request["id"] for request in requests if request["id"] in DIFFERENT}
    assert {key: value for key, value in different.items() if key not in expected} == {}
    assert different.keys() == expected, "no longer different"
    assert "Traceback" not in server.log()
