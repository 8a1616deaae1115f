from collections.abc import Mapping, Sequence
from typing import TypedDict

Counts = tuple[list[float], list[int], float]

class EngineCounts(TypedDict):
    tokens: int
    prompt_tokens: int
    computed_tokens: int
    cached_tokens: int
    external_tokens: int
    preemptions: int
    requests: list[int]
    messages: int
    at: float
    running: int
    waiting: int
    deferred: int
    kv_usage: float
    queries: int
    hits: int
    external_queries: int
    external_hits: int
    host_hits: int
    p2p_hits: int
    disk_hits: int
    drafts: int
    draft_tokens: int
    accepted_tokens: int
    flops: float
    read_bytes: float
    write_bytes: float
    accepted_at: list[int]

class Counters:
    n_engines: int
    total_tokens: int
    total_prompt_tokens: int
    def __init__(self, engines: int, buckets: Mapping[str, Sequence[float]] | None = None) -> None: ...
    def read(self, engine: int) -> EngineCounts: ...
    def histograms(self, engine: int) -> dict[str, Counts]: ...
    def lane_histograms(self) -> dict[str, Counts]: ...
