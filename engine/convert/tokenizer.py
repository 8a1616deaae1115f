"""The byte-level BPE tokenizer inside a GGUF file as tokenizer.json and tokenizer_config.json."""

from typing import Any

from engine.convert.metadata import Fields, UnsupportedGGUF, require

_CONTROL = 3
_USER_DEFINED = 4

_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
_DIGITS = {"type": "Digits", "individual_digits": True}

_PRE_TOKENIZERS: dict[str, dict[str, Any]] = {
    "smollm": {"type": "Sequence", "pretokenizers": [_DIGITS, _BYTE_LEVEL]},
    "gpt-2": _BYTE_LEVEL,
}


def tokenizer_json(fields: Fields) -> dict[str, Any]:
    """tokenizer.json in the format of the `tokenizers` library.

    The model and its pre-tokenizer must be among those known here; anything else raises `UnsupportedGGUF`, because
    a near guess would give texts that are wrong only sometimes.
    """
    model = require(fields, "tokenizer.ggml.model")
    if model != "gpt2":
        raise UnsupportedGGUF(f"tokenizer model {model!r} (only byte-level BPE, 'gpt2', is converted)")
    pre = require(fields, "tokenizer.ggml.pre")
    if pre not in _PRE_TOKENIZERS:
        raise UnsupportedGGUF(f"pre-tokenizer {pre!r} (known: {', '.join(sorted(_PRE_TOKENIZERS))})")
    tokens: list[str] = require(fields, "tokenizer.ggml.tokens")
    merges: list[str] = require(fields, "tokenizer.ggml.merges")
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added_tokens(fields),
        "normalizer": None,
        "pre_tokenizer": _PRE_TOKENIZERS[pre],
        "post_processor": None,
        "decoder": {**_BYTE_LEVEL, "add_prefix_space": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: index for index, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in merges],
        },
    }


def added_tokens(fields: Fields) -> list[dict[str, Any]]:
    """The tokens matched before any splitting: control tokens (special) and user-defined ones (not special)."""
    tokens: list[str] = require(fields, "tokenizer.ggml.tokens")
    kinds: list[int] = require(fields, "tokenizer.ggml.token_type")
    return [
        {
            "id": index,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": kind == _CONTROL,
        }
        for index, (token, kind) in enumerate(zip(tokens, kinds, strict=True))
        if kind in (_CONTROL, _USER_DEFINED)
    ]


def tokenizer_config(fields: Fields) -> dict[str, Any]:
    """tokenizer_config.json: special tokens by name, the length limit and the chat template where the file has one."""
    if fields.get("tokenizer.ggml.add_bos_token", False):
        raise UnsupportedGGUF("tokenizer.ggml.add_bos_token is set (a post-processor would be needed)")
    tokens: list[str] = require(fields, "tokenizer.ggml.tokens")
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": int(require(fields, "llama.context_length")),
        "clean_up_tokenization_spaces": False,
        "added_tokens_decoder": {
            str(token["id"]): {key: value for key, value in token.items() if key != "id"}
            for token in added_tokens(fields)
        },
    }
    for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        index = fields.get(f"tokenizer.ggml.{key}_token_id")
        if index is not None:
            config[f"{name}_token"] = tokens[int(index)]
    if "tokenizer.chat_template" in fields:
        config["chat_template"] = fields["tokenizer.chat_template"]
    return config
