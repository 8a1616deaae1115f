"""Which model an engine has, for its frontend to compare: the wire's ready payload does not name it."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

FACTS = ("model_type", "vocab_size", "hidden_size", "num_hidden_layers")


def model_facts(folder: str) -> dict[str, Any]:
    """What config.json says of the model's shape, and where the model lies; frontends compare what both sides have."""
    content = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
    text = content.get("text_config")
    merged = {**content, **text} if isinstance(text, dict) else content
    found = {name: merged.get(name) for name in FACTS} | {"model_type": content.get("model_type")}
    told = {name: value for name, value in found.items() if value is not None}
    return {"model": folder, "host": socket.gethostname(), **told}
