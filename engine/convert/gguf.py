"""`python -m engine.convert.gguf SRC OUT`: a GGUF file as a Hugging Face folder."""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gguf import GGUFReader
from safetensors.numpy import save_file

from engine.convert.metadata import UnsupportedGGUF, generation_config, model_config
from engine.convert.tensors import Array, convert_tensors
from engine.convert.tokenizer import tokenizer_config, tokenizer_json

Progress = Callable[[int, int], None]


def convert(source: Path, out: Path, progress: Progress) -> None:
    """Write config, weights, tokenizer and generation config of `source` into the existing folder `out`.

    `progress(done, total)` is called after each tensor. Nothing is written when the file holds something that is
    not understood (`UnsupportedGGUF`).
    """
    reader = GGUFReader(source)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    names = {tensor.name for tensor in reader.tensors}
    config = model_config(fields, tied="output.weight" not in names)
    documents: dict[str, dict[str, Any]] = {
        "tokenizer.json": tokenizer_json(fields),
        "tokenizer_config.json": tokenizer_config(fields),
        "generation_config.json": generation_config(fields),
        "config.json": config,
    }
    weights: dict[str, Array] = {}
    for name, array in convert_tensors(reader.tensors, config):
        weights[name] = array
        progress(len(weights), len(names))
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    for file_name, document in documents.items():
        (out / file_name).write_text(json.dumps(document, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def _report(done: int, total: int) -> None:
    if done == total or done % 16 == 0:
        print(f"{done}/{total} tensors", flush=True)


def main(argv: list[str] | None = None) -> int:
    """Exit status 0 when the folder is complete, 1 with a message on stderr when the file cannot be converted."""
    parser = argparse.ArgumentParser(prog="python -m engine.convert.gguf", description=__doc__)
    parser.add_argument("source", type=Path, help="GGUF file")
    parser.add_argument("out", type=Path, help="folder to fill, created if missing")
    options = parser.parse_args(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        convert(options.source, options.out, _report)
    except UnsupportedGGUF as error:
        print(f"{options.source}: cannot be converted: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
