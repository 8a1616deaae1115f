"""Types of flag values. Each raises argparse.ArgumentTypeError with what is wrong; argparse names the flag."""

from __future__ import annotations

import json
from argparse import ArgumentTypeError
from collections.abc import Callable
from typing import Literal

from fastfront._speedups.histograms import FAMILIES, MOST_BOUNDS
from fastfront.config import LoraModule

UNITS = {"k": 1000, "m": 1000**2, "g": 1000**3, "K": 1024, "M": 1024**2, "G": 1024**3}


def whole(least: int, most: int | None = None) -> Callable[[str], int]:
    """An integer within bounds."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise ArgumentTypeError(f"{text!r} is not a whole number") from None
        if value < least or (most is not None and value > most):
            bounds = f"at least {least}" if most is None else f"between {least} and {most}"
            raise ArgumentTypeError(f"{value} is not {bounds}")
        return value

    return parse


def filled(text: str) -> str:
    """Anything but nothing: an empty key, from a variable that is not set, would let everybody in."""
    if not text.strip():
        raise ArgumentTypeError("it is empty")
    return text


def hub_token(text: str) -> str | Literal[True]:
    """A token, or `true` for the one that is stored."""
    return True if text.lower() == "true" else filled(text)


_OWN_PROMPTS = "prompts come from chat templates; give one with --chat-template"
_TOKENIZER_MODES = {
    "slow": "tokenizer.json is read, not transformers' slow tokenizers",
    "mistral": "mistral_common is not used; give a folder with tokenizer.json, or one with --tokenizer",
    **dict.fromkeys(("deepseek_v32", "deepseek_v4", "deepseek_v41", "inkling", "kimi_k3", "cohere"), _OWN_PROMPTS),
    **dict.fromkeys(("kimi_audio", "terratorch"), "only text is served"),
}


def tokenizer_mode(text: str) -> str:
    """`auto` or `hf`; vLLM's other modes are refused with what is done instead."""
    mode = text.lower()
    if mode in _TOKENIZER_MODES:
        raise ArgumentTypeError(f"{mode}: {_TOKENIZER_MODES[mode]}")
    if mode not in ("auto", "hf"):
        raise ArgumentTypeError(f"{text!r} is neither auto nor hf")
    return mode


def import_path(text: str) -> str:
    """The path of something in a module: `package.module.name`."""
    if "." not in text or not all(part.isidentifier() for part in text.split(".")):
        raise ArgumentTypeError(f"{text!r} is not of the form module.name")
    return text


def seconds(text: str) -> float:
    """A time that is not negative; `0` and `2.5` and `2.5s`."""
    return decimal(0.0)(text.removesuffix("s"))


def signed_seconds(text: str) -> float:
    """The same, and negative ones."""
    return decimal(float("-inf"))(text.removesuffix("s"))


def decimal(least: float, most: float | None = None) -> Callable[[str], float]:
    """A number within bounds."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise ArgumentTypeError(f"{text!r} is not a number") from None
        if not least <= value <= (most if most is not None else float("inf")) or value == float("inf"):
            raise ArgumentTypeError(f"{text} is out of range")
        return value

    return parse


def model_length(text: str) -> int | None:
    """A number of tokens, `8k` (8000), `8K` (8192) or `auto`."""
    if text in ("auto", "-1"):
        return None
    return tokens(text)


def tokens(text: str) -> int:
    """A number of tokens, `8k` (8000) or `8K` (8192)."""
    unit = UNITS.get(text[-1:], 0)
    try:
        value = int(float(text[:-1]) * unit) if unit else int(text)
    except (ValueError, OverflowError):
        raise ArgumentTypeError(f"{text!r} is not a number of tokens such as 4096, 8k or 8K") from None
    if value < 1:
        raise ArgumentTypeError(f"{value} is not at least 1")
    return value


def json_object(text: str) -> dict[str, object]:
    """A JSON object."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ArgumentTypeError(f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ArgumentTypeError("not a JSON object")
    return value


def lora_module(text: str) -> LoraModule:
    """`NAME=FOLDER`, or a JSON object with name, path and, if so, base_model_name and is_3d_lora_weight."""
    name, equals, path = text.partition("=")
    braces = text.lstrip().startswith("{")
    if not equals and not braces:
        raise ArgumentTypeError(f"{text!r} is neither NAME=FOLDER nor a JSON object")
    given: dict[str, object] = json_object(text) if braces else {"name": name, "path": path}
    kinds: dict[str, type] = {"name": str, "path": str, "base_model_name": str, "is_3d_lora_weight": bool}
    for key, value in given.items():
        if key not in kinds:
            raise ArgumentTypeError(f"{key!r} is none of {', '.join(kinds)}")
        if not isinstance(value, kinds[key]) and (value is not None or key != "base_model_name"):
            raise ArgumentTypeError(f"{key} cannot be {value!r}")
    for key in ("name", "path"):
        if not given.get(key):
            raise ArgumentTypeError(f"{text!r} has no {key}")
    return LoraModule(**given)  # type: ignore[arg-type]


def histogram_buckets(text: str) -> dict[str, list[float]]:
    """Bounds of histograms by family: `{"time_to_first_token": [0.01, 0.1]}`."""
    found: dict[str, list[float]] = {}
    for family, bounds in json_object(text).items():
        if family not in FAMILIES:
            raise ArgumentTypeError(f"{family!r} is none of {', '.join(FAMILIES)}")
        numbers = isinstance(bounds, list) and all(type(bound) in (int, float) and 0 < bound < 1e300 for bound in bounds)
        if not isinstance(bounds, list) or not numbers or not 0 < len(bounds) <= MOST_BOUNDS or bounds != sorted(set(bounds)):
            raise ArgumentTypeError(f"{family}: not a list of up to {MOST_BOUNDS} rising numbers above 0")
        found[family] = [float(bound) for bound in bounds]
    return found


def names(text: str) -> list[str]:
    """A JSON list of strings, or strings separated by commas."""
    if text.startswith("["):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ArgumentTypeError(f"not JSON: {error}") from None
        if not all(isinstance(item, str) for item in value):
            raise ArgumentTypeError("not a list of strings")
        return list(value)
    return [item for item in text.split(",") if item]
