"""Requests made from the OpenAPI document: none makes the server fail, all answers are as the document says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.mock import MockEngine
from tests.support.server import Server

CHECKS = "not_a_server_error,response_schema_conformance,status_code_conformance,content_type_conformance"
CASES = "5"  # random ones for each operation, besides those of the document's own limits


def test_schemathesis_finds_nothing(tmp_path: Path) -> None:
    mock = MockEngine(tmp_path, "--tokens", "echo")
    with Server(tmp_path, "--max-model-len", "512", mock=mock) as server:
        server.wait_ready()
        document = f"http://127.0.0.1:{server.port}/openapi.json"
        program = [str(Path(sys.executable).with_name("schemathesis")), "run", document, "--checks", CHECKS, "-n", CASES]
        options = ["--seed", "1", "--generation-deterministic", "--no-color"]
        found = subprocess.run([*program, *options], cwd=tmp_path, capture_output=True, text=True, timeout=200)
        if found.returncode:
            pytest.fail(found.stdout[-10_000:] + found.stderr[-2_000:])
        mock.wait_idle()
        assert "Traceback" not in server.log()
