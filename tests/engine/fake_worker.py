"""A stand-in for the model, and requests for it."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable

from engine.executor.plan import PENDING, SequenceStep, StepPlan
from engine.kv_cache.hashing import PrefixHashes
from engine.protocol import SamplingParams
from engine.scheduler.lookup import Drafting, Lookup
from engine.scheduler.request import Request
from engine.scheduler.scheduler import Scheduler


def make_request(
    name: str,
    prompt: list[int],
    max_tokens: int = 16,
    *,
    block_size: int | None = None,
    salt: str | None = None,
    priority: int = 0,
    skip_cached: bool = False,
    **params: object,
) -> Request:
    """A request; with a `block_size` it takes part in prefix caching."""
    prefix = None
    if block_size is not None:
        prefix = PrefixHashes(block_size, salt)
        prefix.extend(prompt)
    sampling = SamplingParams(max_tokens=max_tokens, **params)  # type: ignore[arg-type]
    return Request(name, 0, prompt, sampling, max_tokens, priority=priority, prefix=prefix, skip_cached=skip_cached)


def fake_token(tokens: list[int]) -> int:
    """A deterministic next token: what comes out must not depend on how the work was cut into steps."""
    return hash(tuple(tokens)) % 1000 + 10


def expected(prompt: list[int], count: int) -> list[int]:
    """The first `count` tokens that follow `prompt`."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(fake_token(tokens))
    return tokens[len(prompt) :]


class Oracle(Lookup):
    """Knows what comes, and spoils some of it."""

    def __init__(self, follow: Callable[[list[int], int], list[int]], random_: random.Random) -> None:
        super().__init__()
        self._follow = follow
        self._random = random_

    def propose(self, tokens: list[int], drafting: Drafting, count: int) -> list[int]:
        drafts = self._follow(tokens, count)[: self._random.randint(0, count)]
        if drafts and self._random.random() < 0.5:
            place = self._random.randrange(len(drafts))
            drafts[place] = 4 if drafts[place] == 3 else 3
        return drafts


class FakeWorker:
    """Checks what a real worker relies on, and samples `fake_token` of what it finds in the cache.

    A slot holds a token and the world it was computed in: the salt and all tokens before it.
    """

    def __init__(self, block_size: int, salts: dict[str, str | None] | None = None) -> None:
        self.block_size = block_size
        self.salts = salts if salts is not None else {}
        self.cache: dict[tuple[int, int], tuple[int, int]] = {}
        self.known: dict[str, list[int]] = {}
        self.further: dict[str, list[int]] = {}

    def execute(self, plan: StepPlan) -> dict[str, int]:
        """Tokens by request id; those behind them, where drafts were right, are in `further`."""
        self.further = {}
        for name in plan.gone:
            self.known.pop(name, None)
        for new in plan.new:
            assert new.request_id not in self.known
            self.known[new.request_id] = list(new.tokens)
        readers: dict[int, int] = {}
        for step in plan.steps:
            assert len(set(step.blocks)) == len(step.blocks)
            assert 0 not in step.blocks, "the null block in a table"
            # What comes after is none of this step's business: tables grow while it is under way.
            for block in step.blocks[: -(-(step.start + len(step.tokens)) // self.block_size)]:
                readers[block] = readers.get(block, 0) + 1
        for step in plan.steps:
            known = self.known[step.request_id]
            assert PENDING not in step.tokens[:-1]
            guessed = known + step.tokens[len(step.tokens) - step.drafts :]
            # Whether pending or not: the newest token is the one sampled last.
            tokens = [known[-1] if token == PENDING else token for token in step.tokens]
            for place, token in enumerate(tokens, step.start):
                assert token == guessed[place]
                block = step.blocks[place // self.block_size]
                assert readers[block] == 1, "written to a block in two tables"
                self.cache[block, place % self.block_size] = (token, self._world(step.request_id, guessed[:place]))
        sampled = {}
        for step in plan.steps:
            known, context = self.known[step.request_id], []
            for place in range(step.start + len(step.tokens) - step.drafts):
                token, world = self.cache[step.blocks[place // self.block_size], place % self.block_size]
                assert world == self._world(step.request_id, known[:place]), "KV of another beginning"
                context.append(token)
            assert step.samples == (len(context) == len(known))
            if step.samples:
                assert context == known
                known.append(fake_token(context))
                sampled[step.request_id] = known[-1]
                self.further[step.request_id] = self._verify(step, known)
            else:
                assert not step.drafts
        return sampled

    def _verify(self, step: SequenceStep, known: list[int]) -> list[int]:
        """The tokens behind drafts that are right."""
        found: list[int] = []
        for draft in step.tokens[len(step.tokens) - step.drafts :]:
            place = len(known) - 1
            if draft != known[place]:
                break
            entry = self.cache[step.blocks[place // self.block_size], place % self.block_size]
            assert entry == (draft, self._world(step.request_id, known[:place]))
            known.append(fake_token(known))
            found.append(known[-1])
        return found

    def _world(self, name: str, before: list[int]) -> int:
        return hash((self.salts.get(name), *before))


def run(scheduler: Scheduler, worker: FakeWorker, depth: int = 1) -> list[list[str]]:
    """Step until all is done, with up to `depth` steps under way; request ids by step."""
    history = []
    flights: deque[StepPlan] = deque()
    while scheduler.has_work or flights:
        plan = scheduler.schedule() if len(flights) < depth else StepPlan()
        if plan.steps:
            history.append([step.request_id for step in plan.steps])
            flights.append(plan)
        else:
            oldest = flights.popleft()
            tokens = worker.execute(oldest)
            scheduler.update(oldest, tokens, worker.further)
    return history
