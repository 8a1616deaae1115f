"""Importing everything the frontend has and needs leaves the GIL off."""

import json
import os
import pkgutil
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

import fastfront

ROOT = Path(__file__).resolve().parents[2]
PROBE = Path(__file__).with_name("gil_probe.py")
EXTENSION = re.compile(r"(?P<module>.+?)\.(?:cpython-\w+-[\w-]+|abi3)?\.?so")

pytestmark = pytest.mark.skipif(
    not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this interpreter has no GIL to leave off"
)


def probe(names: list[str], path: Path | None = None) -> tuple[dict[str, str], dict[str, str]]:
    """(offenders, failed imports) of the modules, every one of them found, in processes of their own."""
    # PYTHON_GIL=0 would keep the GIL off whatever a module says, and so hide every offender.
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHON_GIL", "PYTHONPATH")}
    env["PYTHONPATH"] = os.pathsep.join(str(folder) for folder in (path, ROOT) if folder is not None)
    offenders: dict[str, str] = {}
    failed: dict[str, str] = {}
    while True:
        left = [name for name in names if name not in offenders]
        done = subprocess.run([sys.executable, str(PROBE), *left], env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout.splitlines()[-1])
        failed.update(found["failed"])
        if not found["offenders"]:
            return offenders, failed
        offenders.update(found["offenders"])


def required_distributions() -> Iterator[metadata.Distribution]:
    """Everything that requirements/frontend.txt installs, with what that needs in turn."""
    lines = (ROOT / "requirements" / "frontend.txt").read_text().splitlines()
    pending = [line.split("==")[0] for line in lines if "==" in line and not line.startswith("#")]
    seen: set[str] = set()
    while pending:
        name = re.sub(r"[-_.]+", "-", pending.pop()).lower()
        if name in seen:
            continue
        seen.add(name)
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            # Needed on other platforms or for extras only.
            continue
        yield distribution
        pending += [match[0] for need in distribution.requires or () if (match := re.match(r"[\w.-]+", need))]


def extension_modules(distribution: metadata.Distribution) -> Iterator[str]:
    """The compiled modules that a distribution installed, also those that nothing imports by default."""
    for file in distribution.files or ():
        match = EXTENSION.fullmatch(str(file))
        if match is not None and ".libs/" not in str(file):
            yield match["module"].replace("/", ".")


def own_modules() -> list[str]:
    """Every module of fastfront."""
    found = pkgutil.walk_packages(fastfront.__path__, "fastfront.")
    return ["fastfront", *(module.name for module in found if not module.name.endswith("__main__"))]


def test_own_modules_leave_the_gil_off() -> None:
    assert probe(own_modules()) == ({}, {})


def test_compiled_modules_of_all_dependencies_leave_the_gil_off() -> None:
    names = sorted(name for distribution in required_distributions() for name in extension_modules(distribution))
    # The search itself must work: these are known to have compiled parts.
    assert {"pydantic_core._pydantic_core", "tokenizers.tokenizers"} <= set(names)
    assert probe(names) == ({}, {})


def test_an_offender_is_named(tmp_path: Path) -> None:
    """A module without the free-threading slot is found, among others, by name."""
    source = tmp_path / "offender.c"
    source.write_text(
        "#include <Python.h>\n"
        'static struct PyModuleDef def = {PyModuleDef_HEAD_INIT, "offender", 0, 0, 0, 0, 0, 0, 0};\n'
        "PyMODINIT_FUNC PyInit_offender(void) { return PyModule_Create(&def); }\n"
    )
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    include = sysconfig.get_path("include")
    target = str(tmp_path / f"offender{suffix}")
    subprocess.run(["cc", "-shared", "-fPIC", f"-I{include}", str(source), "-o", target], check=True)
    offenders, failed = probe(["json", "offender", "decimal"], tmp_path)
    assert failed == {}
    assert list(offenders) == ["offender"]
    assert "'offender'" in offenders["offender"]
