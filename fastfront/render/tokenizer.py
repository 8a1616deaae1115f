"""The tokenizer of a model folder, for encoding prompts and decoding echoes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from fastfront._speedups.vocabulary import Vocabulary
from fastfront.errors import SetupError
from fastfront.render.model_info import read_json


class TextTokenizer:
    """A `tokenizers.Tokenizer` with what the model's tokenizer_config.json adds to it. Safe to share between threads.

    `special_tokens` are the names a chat template may use (`bos_token`, ...) with their text. What is put around a text
    is what tokenizer.json says (`prefix_ids`, `suffix_ids`; `wraps` if nothing else is done to a text): the configuration's
    add_bos_token and add_eos_token are for tokenizers without one.
    """

    def __init__(self, tokenizer: Tokenizer, config: Mapping[str, Any], path: Path) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self.path = path
        self.config = config
        self.special_tokens = _special_tokens(config)
        self.bos_token_id = _token_id(tokenizer, self.special_tokens.get("bos_token"))
        self.eos_token_id = _token_id(tokenizer, self.special_tokens.get("eos_token"))
        self.max_token_id = tokenizer.get_vocab_size(with_added_tokens=True) - 1
        added = tokenizer.get_added_tokens_decoder()
        if added:
            self.max_token_id = max(self.max_token_id, max(added))
        self._tokenizer = tokenizer
        self._encode = tokenizer.encode
        self.prefix_ids, self.suffix_ids, self.wraps = self._specials()

    @property
    def raw(self) -> Tokenizer:
        """The tokenizer itself; nobody may change it."""
        return self._tokenizer

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        """Token ids of the text, with the tokens the tokenizer puts around a text if asked for."""
        ids: list[int] = self._encode(text, None, False, add_special_tokens).ids
        return ids

    def decode(self, ids: list[int], skip_special_tokens: bool = False) -> str:
        """The text of the ids; ids without a token give nothing."""
        return self._tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)

    def tokens(self, ids: list[int]) -> list[str]:
        """The vocabulary's own spelling of each id, "" for an id without a token."""
        return [self._tokenizer.id_to_token(i) or "" for i in ids]

    def vocabulary(self) -> Vocabulary:
        """The bytes of all tokens, for native decoding. Raises SetupError naming tokenizer.json."""
        try:
            return Vocabulary.from_tokenizer(self._tokenizer)
        except ValueError as error:
            raise SetupError(f"{self.path}: {error}") from error

    def special_ids(self) -> frozenset[int]:
        """Ids of the tokens that tokenizer.json calls special."""
        return frozenset(i for i, token in self._tokenizer.get_added_tokens_decoder().items() if token.special)

    @cached_property
    def max_chars_per_token(self) -> int:
        """Length of the longest token: no text of more than this many characters per token can be short enough."""
        return max((len(token) for token in self._tokenizer.get_vocab(with_added_tokens=True)), default=1)

    def _specials(self) -> tuple[list[int], list[int], bool]:
        """The ids put before and behind a text, and whether that is all that is done to it."""
        inner = self.encode("a", False)
        outer = self.encode("a", True)
        for start in range(len(outer) - len(inner) + 1):
            if outer[start : start + len(inner)] == inner:
                head, tail = outer[:start], outer[start + len(inner) :]
                text = "b, c d"
                return head, tail, self.encode(text, True) == [*head, *self.encode(text, False), *tail]
        return [], [], False


def load_tokenizer(folder: Path) -> TextTokenizer:
    """The tokenizer of a folder with tokenizer.json. Raises SetupError naming the file at fault."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise SetupError(f"{folder} has no tokenizer.json: only tokenizers in that format can be served")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises plain Exception
        raise SetupError(f"cannot read {path}: {error}") from error
    config = read_json(folder / "tokenizer_config.json")
    return TextTokenizer(tokenizer, {**read_json(folder / "special_tokens_map.json"), **config}, path)


def component_state(component: Any) -> dict[str, Any]:
    """What tokenizer.json says of a normalizer or pre-tokenizer; empty for None."""
    return {} if component is None else json.loads(component.__getstate__())


def _special_tokens(config: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in config.items():
        text = value.get("content") if isinstance(value, dict) else value
        if name.endswith("_token") and isinstance(text, str):
            found[name] = text
    extra = config.get("additional_special_tokens")
    if isinstance(extra, list):
        found["additional_special_tokens"] = [
            item.get("content") if isinstance(item, dict) else item for item in extra
        ]
    return found


def _token_id(tokenizer: Tokenizer, token: str | None) -> int | None:
    return None if token is None else tokenizer.token_to_id(token)
