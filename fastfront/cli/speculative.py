"""Flags of speculative decoding, brought together into one configuration as vLLM reads them."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping

METHODS = (
    "ngram", "ngram_gpu", "medusa", "mlp_speculator", "draft_model", "suffix", "custom_class", "eagle", "eagle3",
    "extract_hidden_states", "mtp", "dflash", "dspark",
)  # fmt: skip
_WITHOUT_MODEL = ("ngram", "ngram_gpu", "custom_class")     # nothing else tells how many tokens a draft has
_LOOKUP = ("prompt_lookup_min", "prompt_lookup_max")
_SINGLE = (("--spec-method", "method"), ("--spec-model", "model"), ("--spec-tokens", "num_speculative_tokens"))

Config = Mapping[str, object]


class SpeculationError(Exception):
    """The text names the flag and what is wrong with it."""


def speculative_config(args: Namespace) -> Config | None:
    """What --speculative-config and the flags for single keys of it say; None: no drafts. Raises SpeculationError."""
    whole: Config = args.speculative_config
    merged: dict[str, object] = {key.replace("-", "_"): value for key, value in whole.items()}
    for flag, key in _SINGLE:
        value = getattr(args, flag[2:].replace("-", "_"))
        if value is not None:
            if key in merged:
                raise SpeculationError(f"{flag} and --speculative-config['{key}'] are mutually exclusive")
            merged[key] = value
    if not merged:
        return None
    _check(merged)
    return merged


def _check(config: Config) -> None:
    method, model = config.get("method"), config.get("model")
    if method is not None and method not in METHODS and not (isinstance(method, str) and method.endswith("_mtp")):
        raise _wrong("method", method, f"none of {', '.join(METHODS)}")
    if model is not None and not isinstance(model, str):
        raise _wrong("model", model, "no text")
    for key in ("num_speculative_tokens", *_LOOKUP, "draft_tensor_parallel_size"):
        value = config.get(key)
        if value is not None and (type(value) is not int or value < 1):
            raise _wrong(key, value, "no whole number above zero")
    if config.get("tensor_parallel_size") is not None:
        raise _wrong("tensor_parallel_size", config["tensor_parallel_size"], "draft_tensor_parallel_size is meant")
    if method is None and model is None:
        raise SpeculationError("--speculative-config names neither a method nor a model")
    if is_lookup(config) or method in _WITHOUT_MODEL:
        if config.get("num_speculative_tokens") is None:
            raise SpeculationError("--speculative-config needs num_speculative_tokens (or --spec-tokens)")
        least, most = lookup_lengths(config)
        if least > most:
            raise _wrong("prompt_lookup_min", least, f"more than prompt_lookup_max={most}")


def _wrong(key: str, value: object, why: str) -> SpeculationError:
    return SpeculationError(f"--speculative-config: {key}={value!r}: {why}")


def is_lookup(config: Config) -> bool:
    """Whether drafts are looked up in what a request has so far."""
    return config.get("method") == "ngram" or (config.get("method") is None and config.get("model") in ("ngram", "[ngram]"))


def beyond_lookup(config: Config) -> str | None:
    """A key that says more than looking up needs, None if there is none."""
    if not is_lookup(config):
        return f"method={config['method']!r}" if config.get("method") is not None else f"model={config['model']!r}"
    known = ("method", "model", "num_speculative_tokens", *_LOOKUP)
    return next((key for key, value in config.items() if key not in known and value is not None), None)


def lookup_lengths(config: Config) -> tuple[int, int]:
    """The shortest and the longest run of tokens that is looked up: 5 and 5, or both the one that is given."""
    given = [value for key in _LOOKUP if isinstance(value := config.get(key), int)] or [5]
    return given[0], given[-1]
