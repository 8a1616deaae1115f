"""Where a model's chat template comes from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastfront.errors import SetupError


def find_chat_templates(folder: Path, tokenizer_config: Mapping[str, Any]) -> dict[str, str]:
    """The folder's templates by name ("default", "tool_use", ...): files first, then tokenizer_config.json.

    Empty if the model has none: then chat requests are refused unless `--chat-template` gives one.
    """
    found: dict[str, str] = {}
    stored = tokenizer_config.get("chat_template")
    if isinstance(stored, str):
        found["default"] = stored
    elif isinstance(stored, dict):
        found.update({str(name): text for name, text in stored.items() if isinstance(text, str)})
    elif isinstance(stored, list):
        pairs = [(item.get("name"), item.get("template")) for item in stored if isinstance(item, dict)]
        found.update({name: text for name, text in pairs if isinstance(name, str) and isinstance(text, str)})
    try:
        if (path := folder / "chat_template.json").is_file():
            text = json.loads(path.read_text(encoding="utf-8")).get("chat_template")
            if isinstance(text, str):
                found["default"] = text
        if (path := folder / "chat_template.jinja").is_file():
            found["default"] = path.read_text(encoding="utf-8")
        for path in sorted((folder / "additional_chat_templates").glob("*.jinja")):
            found[path.stem] = path.read_text(encoding="utf-8")
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        raise SetupError(f"cannot read the chat template {path}: {error}") from error
    return found


def read_chat_template(value: str) -> str:
    """The text `--chat-template` means: a file's, or itself when it is a template. Raises SetupError."""
    path = Path(value)
    try:
        if path.is_file():
            return path.read_text(encoding="utf-8")
    except OSError:  # a literal template can be too long for a file name
        pass
    if any(mark in value for mark in "{}\n"):
        return value.encode("utf-8").decode("unicode_escape") if "\\n" in value and "\n" not in value else value
    raise SetupError(f"--chat-template {value}: no such file, and not a template either")
