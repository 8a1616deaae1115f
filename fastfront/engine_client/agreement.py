"""Whether engines serve the model that their frontend has: those elsewhere were started with a model of their own.

The wire's ready payload does not name the model. This project's engines add `model_facts`; vLLM's are asked to describe theirs.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import setproctitle

from fastfront.engine_client.handshake import EngineInfo
from fastfront.engine_client.utility import Sender, Utilities
from fastfront.errors import EngineDeadError, EngineError

FACTS = ("model_type", "vocab_size", "hidden_size", "num_hidden_layers")  # of config.json, as it lies in the folder
COMPARED = ("max_model_len", "dtype", "vllm_version")  # what engines of one server usually have in common
INSPECT: tuple[str, list[Any]] = ("collective_rpc", ["get_model_inspection", None, [], {}])
INSPECT_TIMEOUT_S = 60.0
_VOCABULARY = re.compile(r"org_vocab_size=(\d+)")
log = logging.getLogger("fastfront.engines")


@dataclass(frozen=True, slots=True)
class Model:
    """The frontend's: `name` for messages, its facts, and the longest sequence, 0 if any length may be right."""

    name: str
    facts: Mapping[str, Any]
    longest: int = 0


def facts_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """What is compared of a config.json."""
    text = config.get("text_config")
    merged = {**config, **text} if isinstance(text, dict) else config
    found = {name: merged.get(name) for name in FACTS[1:]}
    found["model_type"] = config.get("model_type")
    return {name: found[name] for name in FACTS if found[name] is not None}


def require_same_model(model: Model, engine: EngineInfo) -> None:
    """Raises EngineError naming both sides if an engine says that it serves another model. Those that say nothing may."""
    told = engine.limits.get("model_facts")
    if not isinstance(told, dict):
        return
    wrong = [name for name in FACTS if name in told and name in model.facts and told[name] != model.facts[name]]
    if wrong:
        theirs, ours = (", ".join(f"{name} {facts[name]!r}" for name in wrong) for facts in (told, model.facts))
        raise EngineError(
            f"engine {engine.index} serves another model: {told.get('model')} on {told.get('host')} has {theirs},"
            f" {model.name} here has {ours}"
        )


def doubts(model: Model, engines: Sequence[EngineInfo]) -> list[str]:
    """What is unusual, of engines against the model and against the first of them, in words for the log."""
    found = []
    for engine in engines:
        if 0 < model.longest < engine.max_model_len:
            found.append(
                f"engine {engine.index} takes sequences of {engine.max_model_len} tokens, {model.name} here only {model.longest}:"
                " do both have the same model?"
            )
    for engine in engines[1:]:
        first = engines[0]
        differing = [name for name in COMPARED if first.limits.get(name) != engine.limits.get(name)]
        if differing:
            left, right = (", ".join(f"{name} {one.limits.get(name)}" for name in differing) for one in (first, engine))
            found.append(f"engines {first.index} and {engine.index} differ: {left} against {right}")
    return found


def doubt_of_description(model: Model, engine: int, description: object) -> str | None:
    """What is wrong with the model that a vLLM engine describes: none of its embeddings has the vocabulary's size."""
    sizes = {int(size) for size in _VOCABULARY.findall(description)} if isinstance(description, str) else set()
    ours = model.facts.get("vocab_size")
    if not sizes or ours is None or ours in sizes:
        return None
    theirs = " and ".join(str(size) for size in sorted(sizes))
    return f"engine {engine} serves another model: its vocabulary has {theirs} tokens, that of {model.name} here {ours}"


class Inspector:
    """Asks vLLM's engines elsewhere what their model is like. Any thread; a question waits on a thread of its own."""

    def __init__(self, model: Model, utilities: Utilities, lane: Sender) -> None:
        self._model = model
        self._utilities = utilities
        self._lane = lane

    def inspect(self, engine: int) -> None:
        """An error of the log will tell if it has another model. Engines that cannot say are believed."""
        threading.Thread(target=self._inspect, args=(engine,), name="engine-inspector", daemon=True).start()

    def _inspect(self, engine: int) -> None:
        setproctitle.setthreadtitle("engine-inspector")
        method, args = INSPECT
        try:
            (found,) = self._utilities.call(self._lane, method, args, INSPECT_TIMEOUT_S, engine)
        except (EngineError, EngineDeadError) as error:
            log.debug("engine %d does not describe its model: %s", engine, error)
            return
        doubt = doubt_of_description(self._model, engine, found[0] if isinstance(found, list) and found else None)
        if doubt is not None:
            log.error("%s", doubt)
