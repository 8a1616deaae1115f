"""Stamps tell whether a product is still made from its inputs."""

from pathlib import Path

from tools.setup.stamps import digest, is_current, record


def test_digest_depends_on_values_names_and_content(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("a")
    two.write_text("b")
    base = digest({"python": "x"}, [one, two])
    assert digest({"python": "x"}, [two, one]) == base
    assert digest({"python": "y"}, [one, two]) != base
    assert digest({"python": "x"}, [one]) != base
    two.write_text("c")
    assert digest({"python": "x"}, [one, two]) != base


def test_missing_file_differs_from_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    absent = digest({}, [path])
    path.write_text("")
    assert digest({}, [path]) != absent


def test_digest_keeps_file_borders_apart(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("ab")
    two.write_text("c")
    first = digest({}, [one, two])
    one.write_text("a")
    two.write_text("bc")
    assert digest({}, [one, two]) != first


def test_stamp_is_current_only_for_the_recorded_inputs(tmp_path: Path) -> None:
    stamp = tmp_path / "deep" / "stamp"
    assert not is_current(stamp, "x")
    record(stamp, "x")
    assert is_current(stamp, "x")
    assert not is_current(stamp, "y")
    record(stamp, "y")
    assert is_current(stamp, "y")
    assert [path.name for path in stamp.parent.iterdir()] == ["stamp"]
