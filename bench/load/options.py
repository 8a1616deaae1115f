"""What a load is: who is asked, how often, and for what."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

MOST_STREAMS = 16384
_PROMPT_WORDS = 200_000
_SAME = frozenset({"model", "messages", "prompt", "n", "max_tokens", "stream"})


class LoadError(Exception):
    """The load cannot be made: a wrong option, no C compiler, or the generator ended without a result."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Load:
    """One run of the load generator. Exactly one of `requests` and `seconds` ends it.

    Closed loop (`mode="closed"`): `streams` clients, each with one request at a time. `ramp_s` spreads their starts.
    Open loop (`mode="open"`): requests are due at the times of a Poisson process of `rate` per second, whatever the server
    does, on at most `streams` connections. When all are busy a request waits; its clock runs since it was due.
    """

    port: int
    host: str = "127.0.0.1"
    path: str = "/v1/chat/completions"
    mode: Literal["closed", "open"] = "closed"
    streams: int = 64
    rate: float = 0.0
    requests: int = 0
    seconds: float = 0.0
    warmup_s: float = 0.0
    """Load before anything is counted."""
    ramp_s: float = 0.0
    drain_s: float = 30.0
    """With `seconds`: how long requests that run at the end are waited for; they count for latencies, not for throughput."""
    stream: bool = True
    max_tokens: int = 64
    prompt_tokens: int = 30
    """Words of a random prompt, about a token each; what a chat template adds comes on top."""
    distinct: int = 1024
    """How many different random prompts are made; they are sent in turn."""
    unique: bool = True
    """Random prompts of four words and more get other first words with every request, so that no cache finds them again."""
    prompts: Path | None = None
    """Instead of random prompts: JSON lines with `prompt` or `messages`."""
    bodies: Path | None = None
    """Instead of prompts: JSON lines, sent as they are; `stream`, `max_tokens` and n (in `extra`) must say what they ask for."""
    model: str | None = None
    extra: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """More fields of the body: stop, logprobs, n, temperature, ... A value of None takes a field away."""
    mix: Sequence[Mapping[str, Any]] = ()
    """Still more fields: those of one of these for each prompt in turn."""
    ignore_eos: bool = True
    return_token_ids: bool = False
    """Ask for token ids and count tokens by them; else every event with text is a token, put right by the usage at the end."""
    connections: Literal["keepalive", "new"] = "keepalive"
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    disconnect_share: float = 0.0
    """Share of requests whose client leaves at a random moment: before the first token, behind one of them, or, without
    `stream`, within a second."""
    slow_share: float = 0.0
    """Share of streams that read slowly (`slow_bytes_per_s`, 4 KiB of socket buffer). Their latencies are not counted."""
    slow_bytes_per_s: int = 2000
    timeout_s: float = 120.0
    connect_timeout_s: float = 10.0
    threads: int = 0
    """0: one, two for more than 512 streams if there are two cores."""
    seed: int = 0
    progress: bool | None = None
    """Progress bar on standard error; None: if that is a terminal."""

    def __post_init__(self) -> None:
        """Raises LoadError for values that make no sense, naming the field."""
        _check(self.mode in ("closed", "open"), "mode", "closed or open")
        _check(self.connections in ("keepalive", "new"), "connections", "keepalive or new")
        _check(0 < self.port < 65536, "port", "1 to 65535")
        _check(1 <= self.streams <= MOST_STREAMS, "streams", f"1 to {MOST_STREAMS}")
        _check((self.mode == "open") == (self.rate > 0), "rate", "above 0 in an open loop, and only there")
        _check((self.requests > 0) != (self.seconds > 0), "requests, seconds", "one of them above 0")
        _check(self.max_tokens >= 1, "max_tokens", "at least 1")
        _check(1 <= self.prompt_tokens <= _PROMPT_WORDS, "prompt_tokens", f"1 to {_PROMPT_WORDS}")
        _check(self.distinct >= 1, "distinct", "at least 1")
        _check(self.prompts is None or self.bodies is None, "prompts, bodies", "not both")
        for name in ("disconnect_share", "slow_share"):
            _check(0 <= getattr(self, name) <= 1, name, "0 to 1")
        _check(10 <= self.slow_bytes_per_s <= 655360, "slow_bytes_per_s", "10 to 655360")
        for name in ("warmup_s", "ramp_s", "drain_s", "seconds"):
            _check(0 <= getattr(self, name) <= 3600, name, "0 to 3600")
        for name in ("timeout_s", "connect_timeout_s"):
            _check(getattr(self, name) > 0, name, "above 0")
        _check(0 <= self.threads <= 64, "threads", "0 to 64")
        _check(self.seed >= 0, "seed", "0 or more")
        _check(1 <= self.choices <= 128, "extra.n", "1 to 128")
        _check(all(_SAME.isdisjoint(fields) for fields in self.mix), "mix", f"no {', '.join(sorted(_SAME))}: all have the same")
        _check(not self.mix or self.bodies is None, "mix, bodies", "not both")
        for text in (self.host, self.path, *self.headers, *self.headers.values()):
            _check(text.isprintable() and text.isascii(), "host, path, headers", "printable ASCII")

    @property
    def choices(self) -> int:
        """Choices of a request: its n."""
        n = self.extra.get("n")
        return n if isinstance(n, int) else 1


def _check(good: bool, field: str, allowed: str) -> None:
    if not good:
        raise LoadError(f"{field}: {allowed}")
