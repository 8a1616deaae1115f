"""What a server needs before it listens: sockets, descriptors, a vocabulary."""

from __future__ import annotations

import json
import resource
import socket
from pathlib import Path

import pytest

from fastfront.errors import SetupError
from fastfront.render.tokenizer import load_tokenizer
from fastfront.server.http import bind_socket, remove_socket_file
from fastfront.server.listen import raise_open_files
from tests.unit.support import make_folder


def test_a_socket_file_that_was_left_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "a b.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    with bind_socket("", 0, str(path)) as ours:
        ours.listen()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
        remove_socket_file(ours)
    assert not path.exists()


@pytest.mark.parametrize("listens", [False, True])
def test_a_socket_file_in_use_is_not(tmp_path: Path, listens: bool) -> None:
    """Also while its server starts and refuses connections."""
    path = str(tmp_path / "http.sock")
    with bind_socket("", 0, path) as theirs:
        if listens:
            theirs.listen()
        with pytest.raises(OSError, match="in use"):
            bind_socket("", 0, path)
        assert Path(path).is_socket()


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_text("mine")
    with pytest.raises(OSError, match="in use"):
        bind_socket("", 0, str(path))
    assert path.read_text() == "mine"


def test_descriptors_have_to_do_for_lanes_and_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found before anything is opened: running out of them later would end in the middle of something."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (60, 60))
    raise_open_files(1, 1)
    for lanes, engines in ((8, 1), (1, 16)):
        with pytest.raises(SetupError, match=r"60 are allowed \(ulimit -n\)"):
            raise_open_files(lanes, engines)


def test_a_vocabulary_that_cannot_be_read_is_the_files_fault(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    content = json.loads((folder / "tokenizer.json").read_text())
    content["model"]["vocab"]["far"] = 1 << 31
    (folder / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(SetupError, match=r"tokenizer\.json: token id"):
        load_tokenizer(folder).vocabulary()
