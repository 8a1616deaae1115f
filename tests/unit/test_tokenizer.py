from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers.processors import TemplateProcessing

from fastfront.errors import SetupError
from fastfront.render.tokenizer import load_tokenizer
from tests.unit.support import SPECIALS, make_folder, write


def test_ids_and_text(tiny_folder: Path) -> None:
    tokenizer = load_tokenizer(tiny_folder)
    ids = tokenizer.encode("<|im_start|>né", False)
    assert ids[0] == 1
    assert len(ids) == 4
    assert tokenizer.decode(ids) == "<|im_start|>né"
    assert tokenizer.decode(ids, skip_special_tokens=True) == "né"
    assert tokenizer.decode([10**6]) == ""
    assert tokenizer.tokens(ids) == ["<|im_start|>", "n", "Ã", "©"]
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (1, 2)
    assert tokenizer.max_token_id == 255 + len(SPECIALS)
    assert tokenizer.max_chars_per_token == len("<|endoftext|>")


def test_tokens_around_a_text_are_those_of_the_tokenizer_file(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, add_bos_token=False, add_eos_token=True)
    tokenizer = load_tokenizer(folder)
    assert (tokenizer.prefix_ids, tokenizer.suffix_ids) == ([], [])
    pieces = [("<|im_start|>", 1), ("<|im_end|>", 2)]
    tokenizer.raw.post_processor = TemplateProcessing(single="<|im_start|> $A <|im_end|>", special_tokens=pieces)
    tokenizer.raw.save(str(folder / "tokenizer.json"))
    tokenizer = load_tokenizer(folder)
    inner = tokenizer.encode("ab", False)
    assert len(inner) == 2
    assert tokenizer.encode("ab", True) == [1, *inner, 2]
    assert (tokenizer.prefix_ids, tokenizer.suffix_ids) == ([1], [2])


def test_special_tokens_by_name_for_templates(tmp_path: Path) -> None:
    folder = make_folder(
        tmp_path,
        eos_token={"content": "<|im_end|>", "lstrip": False},
        image_token="<img>",
        unk_token=None,
        additional_special_tokens=["<a>", {"content": "<b>"}],
        add_prefix_space=False,
    )
    assert load_tokenizer(folder).special_tokens == {
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "image_token": "<img>",
        "additional_special_tokens": ["<a>", "<b>"],
    }


def test_the_older_file_of_special_tokens_is_read_under_the_newer(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    write(folder / "tokenizer_config.json", eos_token="<|im_end|>")
    write(folder / "special_tokens_map.json", eos_token="<|endoftext|>", bos_token="<|im_start|>")
    tokenizer = load_tokenizer(folder)
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (1, 2)


def test_stored_truncation_and_padding_are_switched_off(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    content["truncation"] = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    content["padding"] = {"strategy": {"Fixed": 20}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0,
                          "pad_type_id": 0, "pad_token": "<|endoftext|>"}  # fmt: skip
    path.write_text(json.dumps(content))
    assert len(load_tokenizer(folder).encode("abcdefgh", False)) == 8


def test_unreadable_tokenizers_name_their_file(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"no tokenizer\.json"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(SetupError, match=r"tokenizer\.json"):
        load_tokenizer(tmp_path)
    folder = make_folder(tmp_path / "b")
    (folder / "tokenizer_config.json").write_text("[")
    with pytest.raises(SetupError, match=r"tokenizer_config\.json"):
        load_tokenizer(folder)


# Expected ids are what transformers gives for the same folders.
REAL = [
    ("qwen3", "Hello world", [9707, 1879], [9707, 1879]),
    ("llama3_1", "Hello world", [9906, 1917], [128000, 9906, 1917]),
    ("gemma3", "Hello world", [9259, 1902], [2, 9259, 1902]),
    ("llama2", "Hello world", [22557, 1526], [1, 22557, 1526]),
    ("deepseek_v3", "Hello world", [19923, 2058], [19923, 2058]),
    ("gptoss", "Hello world", [13225, 2375], [13225, 2375]),
]


@pytest.mark.parametrize(("name", "text", "bare", "around"), REAL)
def test_real_tokenizers(tokenizer_folders: Path, name: str, text: str, bare: list[int], around: list[int]) -> None:
    tokenizer = load_tokenizer(tokenizer_folders / name)
    assert tokenizer.encode(text, False) == bare
    assert tokenizer.encode(text, True) == around
    assert tokenizer.decode(bare) == text
    assert tokenizer.eos_token_id is not None
