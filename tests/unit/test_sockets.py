"""Sockets that a server binds before it listens."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from fastfront.server.http import bind_socket, remove_socket_file


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
