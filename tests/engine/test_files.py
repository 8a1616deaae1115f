"""Weight files that are missing, truncated or something else are refused by name; reading shows how far it is."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from engine.model.errors import ModelError
from engine.model.files import INDEX, read_ahead, weight_files
from engine.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two files and their index."""
    for number in (1, 2):
        save_file({f"weight{number}": torch.ones(100, 10)}, tmp_path / f"model-{number}.safetensors")
    names = {f"weight{number}": f"model-{number}.safetensors" for number in (1, 2)}
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": names}), encoding="utf-8")
    return tmp_path


def test_the_index_says_which_files(folder: Path) -> None:
    (folder / "other.safetensors").write_bytes(b"not looked at")
    assert [path.name for path in weight_files(folder)] == ["model-1.safetensors", "model-2.safetensors"]


def test_a_file_of_the_index_that_is_missing(folder: Path) -> None:
    (folder / "model-2.safetensors").unlink()
    with pytest.raises(ModelError, match=r"1 of 2 weight files are missing, first model-2\.safetensors"):
        weight_files(folder)


@pytest.mark.parametrize("text", ["", "[]", '{"weight_map": 5}', "{}"])
def test_an_index_that_is_none(folder: Path, text: str) -> None:
    (folder / INDEX).write_text(text, encoding="utf-8")
    with pytest.raises(ModelError, match=r"model\.safetensors\.index\.json: no index of weights"):
        weight_files(folder)


def test_files_cut_off_anywhere(folder: Path) -> None:
    path = folder / "model-2.safetensors"
    whole = path.read_bytes()
    for length in [*range(120), len(whole) // 2, len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(ModelError, match=r"model-2\.safetensors: (no safetensors file|truncated)"):
            weight_files(folder)
    path.write_bytes(whole[:-1])
    with pytest.raises(ModelError, match=rf"truncated, {len(whole) - 1} of {len(whole)} bytes"):
        weight_files(folder)


@pytest.mark.parametrize("header", [b"{} ", b"[1]", b'{"w": {}}', b'{"w": {"data_offsets": "x"}}', b"\xff\xff"])
def test_headers_that_mean_nothing(tmp_path: Path, header: bytes) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    if header == b"{} ":
        assert weight_files(tmp_path) == [path]
        return
    with pytest.raises(ModelError, match="its header cannot be understood"):
        weight_files(tmp_path)


def test_a_folder_in_place_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").mkdir()
    with pytest.raises(ModelError, match=r"model\.safetensors: cannot be read: Is a directory"):
        weight_files(tmp_path)


def test_reading_ends_with_a_line(folder: Path) -> None:
    said: list[str] = []
    files = weight_files(folder)
    read_ahead(files, said.append, 1 << 20)
    assert len(said) == 1
    assert said[0].startswith("weights: 100 %, 0.0 of 0.0 MB")
    said.clear()
    read_ahead(files, said.append, 100)
    assert said == ["weights: 0.0 GB in 2 files, read as needed"]


def test_plain_lines_come_now_and_then() -> None:
    said: list[str] = []
    now = 0.0
    progress = Progress("weights", 40_000_000, said.append, io.StringIO(), lambda: now)
    for _ in range(8):
        now += 1.5
        progress.add(5_000_000)
    progress.finish()
    assert said == [
        "weights: 50 %, 20.0 of 40.0 MB, 3 MB/s, 6.0 s",
        "weights: 100 %, 40.0 of 40.0 MB, 3 MB/s, 12.0 s",
        "weights: 100 %, 40.0 of 40.0 MB, 3 MB/s, 12.0 s",
    ]


def test_a_bar_on_a_terminal() -> None:
    said: list[str] = []
    terminal, now = Terminal(), 0.0
    progress = Progress("weights", 1000, said.append, terminal, lambda: now)
    now = 1.0
    progress.add(500)
    assert terminal.getvalue() == "\r\x1b[Kweights [############............] 50 %, 0.0 of 0.0 MB, 0 MB/s, 1.0 s"
    progress.finish()
    assert terminal.getvalue().endswith("\r\x1b[K")
    assert len(said) == 1
