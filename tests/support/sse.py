"""Reading streamed answers, strictly."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NoReturn

Chunk = dict[str, Any]


def _no_constant(name: str) -> NoReturn:
    raise AssertionError(f"{name} is not JSON")


def strict_json(text: str | bytes) -> Any:
    """JSON without NaN and Infinity."""
    return json.loads(text, parse_constant=_no_constant)


def frames(body: bytes) -> list[str]:
    """The data of every event. Fails for anything else than `data: ...` lines, each followed by one empty line."""
    text = body.decode("utf-8")
    if not text:
        return []
    assert text.endswith("\n\n"), f"cut off: {text[-200:]!r}"
    found = []
    for frame in text[:-2].split("\n\n"):
        assert frame.startswith("data: "), frame
        assert "\n" not in frame, frame
        found.append(frame[6:])
    return found


def chunks(body: bytes) -> list[Chunk]:
    """The chunks of a whole stream; it must end with one [DONE]."""
    found = frames(body)
    assert found[-1] == "[DONE]", found[-3:]
    assert found.count("[DONE]") == 1
    return [strict_json(frame) for frame in found[:-1]]


def deltas(found: Iterable[Chunk], index: int = 0) -> list[str]:
    """What each chunk adds to one choice's text, of either kind of stream; role chunks are left out."""
    out = []
    for chunk in found:
        for choice in chunk.get("choices", ()):
            if choice["index"] != index:
                continue
            if "text" in choice:
                out.append(choice["text"])
            elif "role" not in choice["delta"]:
                out.append(choice["delta"].get("content") or "")
    return out


def joined(found: Iterable[Chunk], index: int = 0) -> str:
    """One choice's text."""
    return "".join(deltas(found, index))


def finishes(found: Iterable[Chunk], index: int = 0) -> list[tuple[str, Any]]:
    """(finish_reason, stop_reason) of every chunk of the choice that has a reason."""
    return [
        (choice["finish_reason"], choice["stop_reason"])
        for chunk in found
        for choice in chunk["choices"]
        if choice["index"] == index and choice["finish_reason"] is not None
    ]
