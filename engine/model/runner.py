"""One step on the model: plan in, sampled tokens out."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import torch

from engine.config import LogprobsMode
from engine.executor.plan import PENDING, Logprobs, StepPlan, StepResult, TokenMasks
from engine.executor.processes import OUTPUT_RANK
from engine.lora.modules import ActiveStep
from engine.lora.store import AdapterStore
from engine.model.attention import PagedAttention
from engine.model.batch import FlatBatch, flatten
from engine.model.blocked import BlockedCache
from engine.model.graphs import DecodeGraphs, Recorder
from engine.model.lean import LeanModel
from engine.model.loader import takes
from engine.model.split import Splitter
from engine.sampling.logprobs import gather_logprobs
from engine.sampling.sampler import sample
from engine.sampling.state import SequenceState
from engine.worker.group import TensorGroup

NO_TOKEN = -1


class Sequences(NamedTuple):
    """What a runner knows of live requests, by request id: sampling states, prompt logprobs collected so far."""

    states: dict[str, SequenceState]
    prompt_parts: dict[str, list[Logprobs]]


class Sampling(NamedTuple):
    """One sequence that gets tokens: `places` of the logits behind its newest token and each of its `drafts`."""

    request_id: str
    state: SequenceState
    places: list[int]
    drafts: list[int]


class ModelRunner:
    """Runs a loaded model over the paged cache. Owned by the worker's thread."""

    def __init__(
        self,
        model: Any,
        attention: PagedAttention,
        device: torch.device,
        sequences: Sequences | None = None,
        lean: LeanModel | None = None,
        splitter: Splitter | None = None,
        mode: LogprobsMode = "raw_logprobs",
        adapters: AdapterStore | None = None,
        adapted: ActiveStep | None = None,
    ) -> None:
        """`attention.cache` is set. `sequences` come from an earlier runner of the same model.

        `lean`, if there is one, runs in place of `model`. `splitter` is what has split it, if it is a part of one.
        `mode` is what logprobs show; of prompts, whether logprobs or logits, always the model's own.
        `adapters` are those of steps' spans; a model that is not lean hears of them through `adapted`.
        """
        assert attention.cache is not None
        self._model = model
        self._attention = attention
        self._block_size = attention.cache.block_size
        self._device = device
        self._splitter = splitter
        self._mode: LogprobsMode = mode
        self._states, self._prompt_parts = sequences or Sequences({}, {})
        self._lean = lean
        self._adapters = adapters
        self._adapted = adapted
        self._by_adapter = attention.kernel is not None or isinstance(attention.cache, BlockedCache)
        self._graphs: DecodeGraphs | None = None
        self._picks_rows = takes(model.forward, "logits_to_keep")

    def hand_over(self) -> Sequences:
        """What the next runner has to know."""
        return Sequences(self._states, self._prompt_parts)

    @torch.inference_mode()
    def execute(self, plan: StepPlan) -> StepResult:
        """Compute a step's tokens and sample where the plan says so."""
        for request_id in plan.gone:
            self._states.pop(request_id, None)
            self._prompt_parts.pop(request_id, None)
        for new in plan.new:
            self._states[new.request_id] = SequenceState(new.params, new.tokens, new.seed)
        result = StepResult()
        if not plan.steps:
            return result
        for step in plan.steps:
            if step.tokens[-1] == PENDING:
                step.tokens[-1] = self._states[step.request_id].output[-1]
        batch = flatten(plan, self._block_size, self._device, self._by_adapter)
        rows, prompts = self._wanted_rows(batch)
        logits = self._forward(batch, rows)
        if self._splitter is not None:
            logits = self._splitter.all_logits(logits)
        place = {row: index for index, row in enumerate(rows)}
        sampling = [
            Sampling(
                step.request_id, self._states[step.request_id], [place[row] for row in range(last - step.drafts, last + 1)],
                step.tokens[len(step.tokens) - step.drafts :],
            )
            for step, last in zip(batch.order, batch.last_rows, strict=True) if step.samples
        ]  # fmt: skip
        for request_id, first, count in prompts:
            self._note_prompt(request_id, logits, [place[row] for row in range(first, first + count)])
        if sampling:
            if self._samples:
                self._sample(logits, sampling, plan.masks, result)
            if self._splitter is not None:
                self._share_tokens(self._splitter.group, sampling, result)
            self._release_prompts([one.request_id for one in sampling], result)
        return result

    def _sample(self, logits: torch.Tensor, sampling: list[Sampling], masks: TokenMasks | None, result: StepResult) -> None:
        """The next token of each, and where it is the one that was drafted, the one behind it.

        Each token is drawn from the model's own distribution, after those before it, whatever was drafted: a draft decides only
        how many are drawn in one step. That is rejection sampling (Leviathan et al., 2023) for guesses without probabilities.
        """
        self._sample_at(0, logits, sampling, masks, result)
        going, at = [one for one in sampling if one.drafts and one.drafts[0] == result.tokens[one.request_id]], 1
        while going:
            found = StepResult()
            self._sample_at(at, logits, going, None, found)
            for request_id, token in found.tokens.items():
                result.further.setdefault(request_id, []).append(token)
            for request_id, rows in found.logprobs.items():
                pairs = zip(result.logprobs[request_id], rows, strict=True)
                result.logprobs[request_id] = Logprobs(*(_join(pair) for pair in pairs))
            going = [one for one in going if at < len(one.drafts) and one.drafts[at] == found.tokens[one.request_id]]
            at += 1

    def _sample_at(
        self, at: int, logits: torch.Tensor, sampling: list[Sampling], masks: TokenMasks | None, result: StepResult
    ) -> None:
        picked = [one.places[at] for one in sampling]
        chosen = logits if picked == list(range(len(logits))) else logits[picked]
        sample(chosen, [one.request_id for one in sampling], [one.state for one in sampling], result, masks, self._mode)

    @property
    def _samples(self) -> bool:
        return self._splitter is None or self._splitter.group.rank == OUTPUT_RANK

    def _share_tokens(self, group: TensorGroup, sampling: list[Sampling], result: StepResult) -> None:
        """All ranks go on with the tokens of the one that samples: none could differ by a rounding."""
        own = []
        for one in sampling:
            further = result.further.get(one.request_id, [])
            own += [result.tokens.get(one.request_id, 0), *further, *[NO_TOKEN] * (len(one.drafts) - len(further))]
        tokens = iter(group.share(own))
        if self._samples:
            return
        for one in sampling:
            found = [token for token in itertools.islice(tokens, 1 + len(one.drafts)) if token != NO_TOKEN]
            for token in found:
                one.state.append(token)
            result.tokens[one.request_id], *result.further[one.request_id] = found

    @torch.inference_mode()
    def record(self, sizes: list[int], table_width: int, recorder: Recorder) -> None:
        """Record decode steps of these numbers of sequences; needs attention by a kernel."""
        assert self._attention.kernel is not None
        self._graphs = DecodeGraphs(self._logits, sizes, table_width, self._block_size, self._device, recorder)

    def _logits(self, batch: FlatBatch, **more: torch.Tensor) -> torch.Tensor:
        """Logits of all rows, or as `more` tells the model."""
        self._attention.batch = batch
        output = self._model(
            input_ids=batch.tokens[None], position_ids=batch.positions[None], use_cache=False, return_dict=True, **more
        )
        logits: torch.Tensor = output.logits[0]
        return logits

    def _forward(self, batch: FlatBatch, rows: list[int]) -> torch.Tensor:
        """Logits [rows, vocab]."""
        if self._adapters is not None and self._adapted is not None:
            self._adapters.tell(self._adapted, batch.spans, len(batch.tokens))
        recorded = None if self._graphs is None or batch.spans else self._graphs.run(batch)
        if recorded is not None:
            return recorded if rows == batch.last_rows else recorded[rows or [0]]
        keep = torch.tensor(rows or [len(batch.tokens) - 1], dtype=torch.long, device=self._device)
        if self._lean is not None:
            return self._lean(batch, keep, self._adapters.for_kernels(batch.spans) if self._adapters and batch.spans else ())
        return self._logits(batch, logits_to_keep=keep) if self._picks_rows else self._logits(batch)[keep]

    def _wanted_rows(self, batch: FlatBatch) -> tuple[list[int], list[tuple[str, int, int]]]:
        """Rows whose logits are needed, and (request, first row, rows) of wanted prompt logprobs.

        Prompt logprobs of a token come from the row before it, and only until the first output token: a sequence that
        is computed again after a preemption has sent them already.
        """
        rows: set[int] = set()
        prompts = []
        for step, last in zip(batch.order, batch.last_rows, strict=True):
            state = self._states[step.request_id]
            if step.samples:
                rows.update(range(last - step.drafts, last + 1))
            if state.params.prompt_logprobs is not None and not state.output:
                first = last + 1 - len(step.tokens)
                count = min(step.start + len(step.tokens), len(state.prompt) - 1) - step.start
                if step.start == 0:
                    self._prompt_parts[step.request_id] = []
                if count > 0:
                    prompts.append((step.request_id, first, count))
                    rows.update(range(first, first + count))
        return sorted(rows), prompts

    def _note_prompt(self, request_id: str, logits: torch.Tensor, places: list[int]) -> None:
        state, parts = self._states[request_id], self._prompt_parts[request_id]
        done = sum(len(part.ranks) for part in parts)
        targets = torch.tensor(state.prompt[1 + done : 1 + done + len(places)], device=self._device)
        count = state.params.prompt_logprobs
        assert count is not None
        parts.append(gather_logprobs(logits[places], targets, count, as_logits=self._mode.endswith("logits")))

    def _release_prompts(self, ids: list[str], result: StepResult) -> None:
        """Hand out the collected prompt logprobs of those that have just got their first token."""
        for request_id in ids:
            parts = self._prompt_parts.pop(request_id, None)
            if parts:
                columns = zip(*parts, strict=True)
                result.prompt_logprobs[request_id] = Logprobs(*(_join(column) for column in columns))


@torch.inference_mode()
def largest_step(model: Any, device: torch.device, tokens: int, samples: int) -> None:
    """Compute `tokens` tokens and logits of `samples` of them, as the largest step does, before the model has a cache."""
    ids = torch.zeros(1, tokens, dtype=torch.long, device=device)
    more = {"logits_to_keep": samples} if takes(model.forward, "logits_to_keep") else {}
    output = model(input_ids=ids, position_ids=ids, use_cache=False, return_dict=True, **more)
    # The sampler works on float32.
    torch.softmax(output.logits[0, -samples:].float(), dim=-1)


def _join(arrays: tuple[Any, ...]) -> Any:
    return torch.cat([torch.from_numpy(array) for array in arrays]).numpy()
