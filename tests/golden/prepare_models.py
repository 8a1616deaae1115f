#!/usr/bin/env python3
"""The model folders that servers.json names: SmolLM2's own, and the tokenizers of other models with its config.json.

    prepare_models.py --smollm2 DIR --tokenizers DIR --out DIR     # DIR/qwen3, DIR/llama3_1, DIR/deepseek_v3: tokenizers

Some parsers look for tokens that these tokenizers name otherwise: reserved tokens get those names in a copy.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

# Names that reserved tokens of Llama 3.1 get, and whether they count as special.
TOOLS = [
    ("[TOOL_CALLS]", True), ("[ARGS]", True), ("<|tool_calls_section_begin|>", True),
    ("<|tool_calls_section_end|>", True), ("<|tool_call_begin|>", True), ("<|python_tag|>", True),
    ("<|tool_call_end|>", True), ("<|tool_call_argument_begin|>", True), ("<think>", False), ("</think>", False),
    ("<tool_call>", False), ("</tool_call>", False), ("<arg_key>", False), ("</arg_key>", False),
    ("<arg_value>", False), ("</arg_value>", False),
]  # fmt: skip
# Folder to make -> (tokenizer it comes from, [(old name, new name, special)])
FOLDERS: dict[str, tuple[str, list[tuple[str, str, bool]]]] = {
    "tools": (
        "llama3_1",
        [(f"<|reserved_special_token_{i}|>", name, special) for i, (name, special) in enumerate(TOOLS)],
    ),
    "deepseek_v3": (
        "deepseek_v3",
        [("<｜place▁holder▁no▁798｜>", "<think>", False), ("<｜place▁holder▁no▁799｜>", "</think>", False)],
    ),
    "qwen3": ("qwen3", []),
}


def make_folder(out: Path, source: Path, smollm2: Path, renames: list[tuple[str, str, bool]]) -> None:
    """Copy a tokenizer under new names of some tokens, with SmolLM2's configuration beside it."""
    out.mkdir(parents=True, exist_ok=True)
    shutil.copy(smollm2 / "config.json", out)
    texts = {name: (source / name).read_text(encoding="utf-8") for name in ("tokenizer.json", "tokenizer_config.json")}
    for old, new, _ in renames:
        texts = {name: text.replace(json.dumps(old, ensure_ascii=False)[1:-1], new) for name, text in texts.items()}
    special = {new: is_special for _, new, is_special in renames}
    tokenizer = json.loads(texts["tokenizer.json"])
    config = json.loads(texts["tokenizer_config.json"])
    for token in (*tokenizer["added_tokens"], *config.get("added_tokens_decoder", {}).values()):
        token["special"] = special.get(token["content"], token["special"])
    config["tokenizer_class"] = "PreTrainedTokenizerFast"  # tokenizer.json is taken as it is
    (out / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False), encoding="utf-8")
    (out / "tokenizer_config.json").write_text(json.dumps(config, ensure_ascii=False), encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("smollm2", "tokenizers", "out"):
        parser.add_argument("--" + name, required=True, type=Path)
    args = parser.parse_args()
    for name, (source, renames) in FOLDERS.items():
        make_folder(args.out / name, args.tokenizers / source, args.smollm2, renames)
    link = args.out / "smollm2"
    if not link.exists():
        link.symlink_to(args.smollm2.resolve())
    return 0


if __name__ == "__main__":
    sys.exit(main())
