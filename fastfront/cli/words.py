"""The words of a command line before they are parsed: spelling, dotted flags, and those of a YAML file."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from fastfront.cli.values import UNITS
from fastfront.errors import SetupError

_FLAG = re.compile(r"--[\w.+-]+")
_DOTTED = re.compile(r"(--?[\w-]+)\.([\w.-]+\+?)")
_SIZE = re.compile(r"\d+(\.\d+)?[kmgKMG]")


def with_dashes(word: str) -> str:
    """A flag spelled with underscores, spelled with dashes; values and what follows a dot stay as they are."""
    name, equals, value = word.partition("=")
    if not _FLAG.fullmatch(name):
        return word
    flag, dot, key = name.partition(".")
    return flag.replace("_", "-") + dot + key + equals + value


def joined_dots(words: Sequence[str], declared: Collection[str]) -> list[str]:
    """`--flag.key value` of declared flags as `--flag {"key": value}`; several keys of one flag come together.

    As vLLM: `--flag.key+ a,b` adds to a list, and a number may have a unit (`8k`).
    """
    kept: list[str] = []
    objects: dict[str, dict[str, Any]] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        found = _DOTTED.fullmatch(name)
        if found is None or found[1] not in declared:
            kept.append(word)
            continue
        if not equals:
            value = rest.pop(0) if rest and not rest[0].startswith("--") else "true"
        inner = objects.setdefault(found[1], {})
        *path, last = found[2].removesuffix("+").split(".")
        for step in path:
            deeper = inner.get(step)
            inner[step] = inner = deeper if isinstance(deeper, dict) else {}
        if found[2].endswith("+"):
            items = inner.get(last)
            inner[last] = [*(items if isinstance(items, list) else []), *value.split(",")]
        else:
            inner[last] = _scalar(value)
    for flag, value_map in objects.items():
        kept += [flag, json.dumps(value_map)]
    return kept


def _scalar(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return int(float(text[:-1]) * UNITS[text[-1]]) if _SIZE.fullmatch(text) else text


def config_words(path: str, given: Collection[str], many: Collection[str], has_model: bool) -> list[str]:
    """The flags in a YAML file as words; those already given, and the model where there is one, are left out.

    Flags in `many` take several words, all others one: lists and maps go there as JSON.
    Raises SetupError for a file that is none.
    """
    words: list[str] = []
    for key, value in _read(path).items():
        flag = "--" + str(key).replace("_", "-")
        if flag in ("--model-tag", "--model"):
            if not has_model:
                words += ["--model", str(value)]
        elif flag not in given and value is not None:
            words += _words(flag, value, flag in many)
    return words


def unreadable(words: Sequence[str]) -> str | None:
    """The first word that is no text: not UTF-8, or with a NUL (a YAML file can have both). None if all are."""
    return next((word for word in words if not word.isprintable() and ("\0" in word or _broken(word))), None)


def _broken(word: str) -> bool:
    return any("\ud800" <= letter <= "\udfff" for letter in word)


def given_flags(words: Sequence[str]) -> set[str]:
    """The long flags among words, without their values; a switch counts in both its spellings."""
    flags = {word.partition("=")[0].partition(".")[0] for word in words if word.startswith("--")}
    return flags | {"--" + flag[5:] if flag.startswith("--no-") else "--no-" + flag[2:] for flag in flags}


def _words(flag: str, value: Any, many: bool) -> list[str]:
    if value is True:
        return [flag]
    if value is False:
        return ["--no-" + flag[2:]]
    if isinstance(value, list) and many:
        return [flag, *(json.dumps(item) if isinstance(item, Mapping) else str(item) for item in value)]
    if isinstance(value, (list, Mapping)):
        return [f"{flag}={json.dumps(value)}"]
    return [f"{flag}={value}"]


def _read(path: str) -> Mapping[Any, Any]:
    import yaml  # noqa: PLC0415 - rarely needed

    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise SetupError(f"--config {path}: {error.strerror}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise SetupError(f"--config {path}: not YAML: {' '.join(str(error).split())}") from error
    if content is None:
        return {}
    if not isinstance(content, Mapping):
        raise SetupError(f"--config {path}: not a map of flags to values")
    return content
