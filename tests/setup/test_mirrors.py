"""The Debian mirror is read from the machine's own apt sources, in both of their formats."""

from pathlib import Path

import pytest

from tools.setup.mirrors import (
    Source,
    debian_mirror,
    machine_sources,
    parse_deb822,
    parse_one_line,
    source_stanza,
)

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"

DEB822 = f"""\
Types: deb
# http://snapshot.example/archive/debian/20250520T000000Z
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: {KEYRING}

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main
Signed-By: {KEYRING}
"""


def test_deb822_paragraphs_become_sources() -> None:
    assert list(parse_deb822(DEB822)) == [
        Source("http://mirror.example/debian", ("bookworm", "bookworm-updates"), ("main",), KEYRING),
        Source("http://mirror.example/debian-security", ("bookworm-security",), ("main",), KEYRING),
    ]


def test_deb822_disabled_paragraph_is_left_out() -> None:
    text = "Enabled: no\nTypes: deb\nURIs: http://mirror.example/debian\nSuites: trixie\nComponents: main\n"
    assert list(parse_deb822(text)) == []


def test_deb822_inline_key_is_not_a_keyring_path() -> None:
    text = (
        "Types: deb\nURIs: http://mirror.example/debian\nSuites: trixie\nComponents: main contrib\n"
        "Signed-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n mQINBF\n -----END PGP PUBLIC KEY BLOCK-----\n"
    )
    assert list(parse_deb822(text)) == [Source("http://mirror.example/debian", ("trixie",), ("main", "contrib"), None)]


def test_deb822_one_source_per_uri() -> None:
    text = "Types: deb\nURIs: http://one.example/debian\n http://two.example/debian\nSuites: sid\nComponents: main\n"
    assert [source.uri for source in parse_deb822(text)] == ["http://one.example/debian", "http://two.example/debian"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "deb http://m.example/debian bookworm main",
            Source("http://m.example/debian", ("bookworm",), ("main",), None),
        ),
        (
            f"deb [arch=amd64 signed-by={KEYRING}] https://m.example/debian/ trixie main contrib # ours",
            Source("https://m.example/debian/", ("trixie",), ("main", "contrib"), KEYRING),
        ),
        ("deb-src http://m.example/debian sid main", Source("http://m.example/debian", ("sid",), ("main",), None)),
        ("# deb http://m.example/debian bookworm main", None),
        ("", None),
        ("debug nonsense", None),
    ],
)
def test_one_line_format(line: str, expected: Source | None) -> None:
    assert list(parse_one_line(line)) == ([expected] if expected else [])


@pytest.mark.parametrize(
    ("source", "is_it"),
    [
        (Source("http://m.example/debian", ("bookworm",), ("main",), None), True),
        (Source("http://m.example/debian/", ("bookworm", "bookworm-updates"), ("main",), None), True),
        (Source("http://m.example/debian-security", ("bookworm-security",), ("main",), None), False),
        (Source("http://m.example/debian", ("bookworm-updates",), ("main",), None), False),
        (Source("http://m.example/debian", ("bookworm",), ("contrib",), None), False),
        (Source("http://archive.ubuntu.example/ubuntu", ("noble",), ("main",), None), False),
        (Source("https://packages.vendor.example/apt", ("stable",), ("main",), None), False),
    ],
)
def test_only_debians_main_archive_serves_as_mirror(source: Source, is_it: bool) -> None:
    assert (debian_mirror([source]) is source) == is_it


def test_machine_sources_reads_both_formats_and_skips_other_files(tmp_path: Path) -> None:
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list").write_text("deb http://list.example/debian bookworm main\n")
    (tmp_path / "sources.list.d" / "debian.sources").write_text(DEB822)
    (tmp_path / "sources.list.d" / "old.list.disabled").write_text("deb http://off.example/debian bookworm main\n")
    assert [source.uri for source in machine_sources(tmp_path)] == [
        "http://list.example/debian",
        "http://mirror.example/debian",
        "http://mirror.example/debian-security",
    ]


def test_machine_without_apt_has_no_sources(tmp_path: Path) -> None:
    assert machine_sources(tmp_path / "absent") == []


def test_stanza_asks_for_sources_of_the_suite_under_the_keyring() -> None:
    mirror = Source("http://m.example/debian", ("bookworm",), ("main",), None)
    fields = dict(line.split(": ") for line in source_stanza(mirror, "trixie", KEYRING).splitlines())
    assert fields == {
        "Types": "deb-src",
        "URIs": "http://m.example/debian",
        "Suites": "trixie",
        "Components": "main",
        "Signed-By": KEYRING,
    }


def test_stanza_without_keyring_leaves_the_check_to_apts_own_keys() -> None:
    mirror = Source("http://m.example/debian", ("bookworm",), ("main",), None)
    stanza = source_stanza(mirror, "trixie", None)
    assert "Signed-By" not in stanza
    assert "Trusted" not in stanza
