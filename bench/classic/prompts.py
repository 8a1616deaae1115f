"""Chat messages to token ids: the model folder's own template and tokenizer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer


class Prompts:
    """One process's tokenizer and template."""

    def __init__(self, model: Path) -> None:
        self.tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
        config = json.loads((model / "tokenizer_config.json").read_text(encoding="utf-8"))
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        self._template = environment.from_string(config["chat_template"])
        self._names = {name: config.get(name) for name in ("bos_token", "eos_token")}
        self.eos = self.tokenizer.token_to_id(str(config.get("eos_token")))

    def chat(self, messages: list[dict[str, Any]]) -> list[int]:
        """Ids of a conversation that the model is to go on with."""
        text = self._template.render(messages=messages, add_generation_prompt=True, **self._names)
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def token(self, token_id: int) -> str:
        """The text of one token by itself."""
        return str(self.tokenizer.decode([token_id], skip_special_tokens=False))
