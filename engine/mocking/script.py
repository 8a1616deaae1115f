"""Scripted behaviour of the mock engine: which rule a request follows and what each step of it does."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from engine.protocol import EngineCoreRequest, FinishReason


class ScriptError(Exception):
    """The script says something that the mock does not know; the message names the key."""


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """What one request does in one engine step; see the docstring of `engine.mock` for the meaning of the fields."""

    tokens: tuple[int, ...] = ()
    finish: int | None = None
    stop_reason: int | str | None = None
    error: dict[str, Any] | None = None
    logprobs: tuple[Any, ...] | None = None
    wait_steps: int = 0
    delay_ms: float = 0.0
    gate: str | None = None
    stall_ms: float = 0.0
    raw: tuple[bytes, ...] | None = None
    as_id: str | None = None
    die: str | None = None
    exit_code: int = 1


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """Steps of one request and what follows them."""

    steps: tuple[Step, ...]
    then: str = "silence"
    obey: bool = True


THEN = ("silence", "loop", "random", "echo", "stop", "length")
DEATHS = ("exit", "dead", "kill", "hang")
CONDITIONS = ("order", "name", "child", "prompt", "prompt_has", "prompt_len", "client")
_STEP_KEYS = {field.name for field in dataclasses.fields(Step)}
_RULE_KEYS = {"when", "steps", "tokens", "finish", "stop_reason", "error", "then", "obey"}


class Script:
    """All rules of a script. The first rule whose conditions all hold is taken."""

    def __init__(self, data: dict[str, Any]) -> None:
        """Raise ScriptError for unknown keys."""
        _known(data, {"rules", "default", "ready", "utilities"}, "script")
        self.ready: dict[str, Any] = data.get("ready", {})
        self.utilities: dict[str, Any] = data.get("utilities", {})
        self._rules: list[tuple[dict[str, Any], Rule]] = []
        for entry in data.get("rules", []):
            when = entry.get("when", {})
            _known(when, set(CONDITIONS), "when")
            self._rules.append((when, parse_rule(entry)))
        self._default = parse_rule(data["default"]) if "default" in data else None
        # Who asks for the child index pays for it: the families of all requests are kept.
        self._counts_children = any("child" in when for when, _ in self._rules)
        self._families: dict[tuple[str, float], int] = {}

    @classmethod
    def load(cls, path: str) -> Script:
        """Read a JSON file (NaN and Infinity are allowed)."""
        with open(path, encoding="utf-8") as file:
            return cls(json.load(file))

    def rule_for(self, request: EngineCoreRequest, order: int) -> Rule | None:
        """The rule of the `order`-th ADD (from 0), None: the mock's token mode decides."""
        inline = None
        extra = request.sampling_params.extra_args if request.sampling_params else None
        if extra is not None:
            inline = extra.get("script")
        if isinstance(inline, str) and inline.lstrip().startswith("{"):
            inline = json.loads(inline)
        if isinstance(inline, dict):
            return parse_rule(inline)
        if not self._rules:
            return self._default
        child = self._child(request) if self._counts_children else 0
        prompt = request.prompt_token_ids or []
        for when, rule in self._rules:
            facts = {
                "order": order,
                "name": inline,
                "child": child,
                "prompt": prompt,
                "prompt_len": len(prompt),
                "client": request.client_index,
            }
            if all(_holds(key, value, facts, prompt) for key, value in when.items()):
                return rule
        return self._default

    def _child(self, request: EngineCoreRequest) -> int:
        """Index of this ADD among those of one parent: same external id and arrival time, else the `i_` prefix."""
        if request.external_req_id is not None:
            family = (request.external_req_id, request.arrival_time)
            index = self._families.get(family, 0)
            self._families[family] = index + 1
            return index
        prefix = request.request_id.split("_", 1)[0]
        return int(prefix) if prefix.isdigit() and "_" in request.request_id else 0


def parse_rule(data: dict[str, Any]) -> Rule:
    """Build a rule from its JSON form; `tokens` is short for one step per token."""
    _known(data, _RULE_KEYS, "rule")
    steps = [_parse_step(step) for step in data.get("steps", [[token] for token in data.get("tokens", [])])]
    if "finish" in data:
        last = steps.pop() if steps else Step()
        steps.append(
            dataclasses.replace(
                last,
                finish=_finish(data["finish"]),
                stop_reason=data.get("stop_reason"),
                error=data.get("error"),
            )
        )
    then = data.get("then", "silence")
    if then not in THEN:
        raise ScriptError(f"then: {then!r} is none of {THEN}")
    if then == "loop" and not steps:
        raise ScriptError("then: loop needs steps")
    return Rule(tuple(steps), then, data.get("obey", True))


def _parse_step(data: Any) -> Step:
    if isinstance(data, int):
        return Step(tokens=(data,))
    if isinstance(data, list):
        return Step(tokens=tuple(data))
    _known(data, _STEP_KEYS, "step")
    values = dict(data)
    values["tokens"] = tuple(values.get("tokens", ()))
    if values.get("logprobs") is not None:
        values["logprobs"] = tuple(values["logprobs"])
        if len(values["logprobs"]) != len(values["tokens"]):
            raise ScriptError("logprobs: one entry per token is needed")
    if values.get("finish") is not None:
        values["finish"] = _finish(values["finish"])
    if values.get("raw") is not None:
        frames = values["raw"] if isinstance(values["raw"], list) else [values["raw"]]
        values["raw"] = tuple(bytes.fromhex(frame) for frame in frames)
    if not isinstance(values.get("gate"), str | None):
        raise ScriptError(f"gate: {values['gate']!r} is no name")
    if values.get("die") not in (None, *DEATHS):
        raise ScriptError(f"die: {values['die']!r} is none of {DEATHS}")
    return Step(**values)


def _finish(value: int | str) -> int:
    if isinstance(value, int):
        return value
    try:
        return int(FinishReason[value.upper()])
    except KeyError:
        raise ScriptError(f"finish: {value!r} is none of {[reason.name.lower() for reason in FinishReason]}") from None


def _holds(key: str, value: Any, facts: dict[str, Any], prompt: list[int]) -> bool:
    if key == "prompt_has":
        length = len(value)
        return any(prompt[i : i + length] == value for i in range(len(prompt) - length + 1))
    return bool(facts[key] == value)


def _known(data: dict[str, Any], keys: set[str], what: str) -> None:
    unknown = set(data) - keys
    if unknown:
        raise ScriptError(f"{what}: unknown keys {sorted(unknown)}; known: {sorted(keys)}")
