"""The adapters that a worker holds."""

from __future__ import annotations

import torch

from engine.lora.files import read_adapter
from engine.lora.lean import LeanAdapter, LeanOutputs
from engine.lora.modules import ActiveSpan, ActiveStep
from engine.lora.sites import Pair, Pairs, Sites, share
from engine.model.batch import RowSpan


class AdapterStore:
    """Adapters by number. Owned by the worker's thread; the engine core decides what is loaded and what goes."""

    def __init__(
        self, sites: Sites, dtype: torch.dtype, device: torch.device, max_rank: int, outputs: LeanOutputs | None
    ) -> None:
        """`dtype` is that of activations, `outputs` a lean model's."""
        self._sites = sites
        self._dtype = dtype
        self._device = device
        self._max_rank = max_rank
        self._outputs = outputs
        self._pairs: dict[int, Pairs] = {}
        self._lean: dict[int, LeanAdapter] = {}

    def load(self, number: int, name: str, folder: str) -> None:
        """Read an adapter, in place of what has this number. AdapterError; nothing has changed then."""
        pairs = share(read_adapter(name, folder, self._sites, self._max_rank), self._sites)
        if self._outputs is not None:
            self._lean[number] = LeanAdapter(pairs, self._outputs)
        else:
            self._pairs[number] = self._moved(pairs, self._device)

    def drop(self, number: int) -> None:
        """Forget an adapter; without effect if it is not there."""
        self._pairs.pop(number, None)
        self._lean.pop(number, None)

    def move(self, device: torch.device) -> None:
        """Keep everything on `device` from now on."""
        self._device = device
        self._pairs = {number: self._moved(pairs, device) for number, pairs in self._pairs.items()}

    def _moved(self, pairs: Pairs, device: torch.device) -> Pairs:
        return {path: Pair(*(half.to(device, self._dtype).contiguous() for half in pair)) for path, pair in pairs.items()}

    def tell(self, step: ActiveStep, spans: list[RowSpan], rows: int) -> None:
        """The modules get to know whose rows a step has."""
        step.rows = rows
        step.spans = [ActiveSpan(first, end, self._pairs[number]) for number, first, end in spans]

    def for_kernels(self, spans: list[RowSpan]) -> list[tuple[RowSpan, LeanAdapter]]:
        """The same for a lean model."""
        return [(span, self._lean[span.adapter]) for span in spans]
