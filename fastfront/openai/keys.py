"""Which routes need an API key."""

from __future__ import annotations

from fastfront.config import KeyScope

_OPEN = frozenset({"/health", "/ping", "/version", "/metrics"})
_VLLM = ("/v1", "/v2", "/inference", "/cohere")


def needs_key(path: str, scope: KeyScope) -> bool:
    """Whether a route (without --root-path) needs one of the server's keys.

    "all": whatever runs or reveals the model; "vllm": only what vLLM guards.
    """
    return path not in _OPEN if scope == "all" else path.startswith(_VLLM)
