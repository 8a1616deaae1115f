"""`python -m engine.convert.gguf SRC OUT`: a GGUF file as a Hugging Face folder. With --cached instead of OUT that is a folder in
the cache, made when the file is new or has changed; its path is the last line of the output.
"""

import argparse
import fcntl
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gguf import GGUFReader, ReaderTensor
from safetensors.numpy import save_file

from engine.convert.metadata import UnsupportedGGUF, generation_config, model_config
from engine.convert.tensors import Array, convert_tensors
from engine.convert.tokenizer import tokenizer_config, tokenizer_json
from engine.progress import Progress

Say = Callable[[str], None]
FORMAT = 1
"""Raise it when conversion changes what it writes: cached folders of before are then made anew."""
_MAGIC = b"GGUF"


def convert(source: Path, out: Path, say: Say) -> None:
    """Write config, weights, tokenizer and generation config of `source` into the existing folder `out`.

    `say` gets progress, counted in bytes of the file. Nothing is written when the file is not whole or holds
    something that is not understood (`UnsupportedGGUF`).
    """
    reader = _open(source)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    tensors = list(reader.tensors)
    config = model_config(fields, tied="output.weight" not in {tensor.name for tensor in tensors})
    documents: dict[str, dict[str, Any]] = {
        "tokenizer.json": tokenizer_json(fields),
        "tokenizer_config.json": tokenizer_config(fields),
        "generation_config.json": generation_config(fields),
        "config.json": config,
    }
    weights = _weights(tensors, config, say)
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    for file_name, document in documents.items():
        (out / file_name).write_text(json.dumps(document, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def _open(source: Path) -> GGUFReader:
    with source.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise UnsupportedGGUF("it is no GGUF file")
    try:
        return GGUFReader(source)
    except Exception as error:  # Whatever a cut off file makes the reader raise.
        raise UnsupportedGGUF(f"it is broken or truncated ({type(error).__name__}: {error})") from error


def _weights(tensors: Sequence[ReaderTensor], config: dict[str, Any], say: Say) -> dict[str, Array]:
    progress = Progress("converting", sum(int(tensor.n_bytes) for tensor in tensors), say, sys.stderr)
    weights: dict[str, Array] = {}
    for tensor, (name, array) in zip(tensors, convert_tensors(tensors, config), strict=True):
        weights[name] = array
        progress.add(int(tensor.n_bytes))
    progress.finish()
    return weights


def cached_folder(source: Path, cache: Path, say: Say) -> Path:
    """The folder in `cache` that `source` was or is now converted into; UnsupportedGGUF and OSError as `convert`.

    The folder appears whole or not at all, and is made once, however many processes ask for it.
    """
    found = source.resolve()
    state = found.stat()
    name = hashlib.sha256(f"{FORMAT} {found} {state.st_size} {state.st_mtime_ns}".encode()).hexdigest()[:16]
    folder = cache / f"{found.stem}-{name}"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            scratch = cache / f".{folder.name}.new"
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir()
            try:
                convert(found, scratch, say)
                scratch.rename(folder)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
    return folder


def cache_folder() -> Path:
    """Where converted files are kept: below $FASTFRONT_CACHE, else below ~/.cache/fastfront."""
    return Path(os.environ.get("FASTFRONT_CACHE") or Path.home() / ".cache" / "fastfront") / "gguf"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(argv: list[str] | None = None) -> int:
    """Exit status 0 when the folder is complete, 1 with a message on stderr when the file cannot be converted."""
    parser = argparse.ArgumentParser(
        prog="python -m engine.convert.gguf", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path, help="GGUF file")
    parser.add_argument("out", type=Path, nargs="?", help="folder to fill, created if missing")
    parser.add_argument("--cached", action="store_true", help="in place of OUT: a folder in the cache")
    options = parser.parse_args(argv)
    if (options.out is None) != options.cached:
        parser.error("either OUT or --cached")
    try:
        if options.cached:
            print(cached_folder(options.source, cache_folder(), _say), flush=True)
        else:
            options.out.mkdir(parents=True, exist_ok=True)
            convert(options.source, options.out, _say)
    except UnsupportedGGUF as error:
        print(f"{options.source}: cannot be converted: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"{error.filename or options.source}: {error.strerror or error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
