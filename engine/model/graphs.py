"""Recorded decode steps: launching a small model's operations one by one takes longer than the GPU needs to compute them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch

from engine.model.batch import FlatBatch, to_device
from engine.model.pieces import PieceTensors

Forward = Callable[[FlatBatch], torch.Tensor]


class Recorder(Protocol):
    """Records work on a device."""

    def record(self, work: Callable[[], torch.Tensor]) -> tuple[Callable[[], None], torch.Tensor]:
        """What `work` launches: something that launches it again on the same memory, and the memory of its result."""
        ...


class CudaRecorder:
    """CUDA graphs that share one pool of memory: recorded from large to small, the later ones use what the first have got."""

    def __init__(self) -> None:
        self._pool: object = None

    def record(self, work: Callable[[], torch.Tensor]) -> tuple[Callable[[], None], torch.Tensor]:
        """Runs `work` once before, on another stream, so that what is done only the first time is not recorded."""
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            work()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):  # type: ignore[arg-type]
            result = work()
        self._pool = graph.pool()
        return graph.replay, result


class DecodeGraphs:
    """The forward pass for steps in which every sequence has one new token, for some numbers of sequences.

    A step runs as the next larger one; its spare sequences have no tokens, and what they compute goes to the null block.
    """

    def __init__(
        self, forward: Forward, sizes: list[int], table_width: int, block_size: int, device: torch.device, recorder: Recorder
    ) -> None:
        """Record `forward`, logits [rows, vocab] of all rows, for each of `sizes`; tables have up to `table_width` blocks."""
        largest = max(sizes)
        self._flat = torch.zeros(3, largest, dtype=torch.long, device=device)
        self._pieces = torch.zeros(largest, 4, dtype=torch.int32, device=device)
        self._tables = torch.zeros(largest, table_width, dtype=torch.int32, device=device)
        self._device = device
        self._records: dict[int, tuple[Callable[[], None], torch.Tensor]] = {}
        for size in sorted(sizes, reverse=True):
            batch = self._batch(size, block_size)
            self._records[size] = recorder.record(lambda batch=batch: forward(batch))  # type: ignore[misc]
        self.sizes = sorted(sizes)

    def run(self, batch: FlatBatch) -> torch.Tensor | None:
        """Logits [rows, vocab], valid until the next call; None if this step is none of those that are recorded."""
        count = len(batch.order)
        size = next((size for size in self.sizes if size >= count), None)
        widest = self._tables.shape[1]
        if size is None or batch.last_rows != list(range(count)) or len(batch.tokens) != count:
            return None
        tables = np.zeros((size, widest), dtype=np.int32)
        batch.fill(tables[:count])
        pieces = np.zeros((size, 4), dtype=np.int32)
        pieces[:count] = batch.pieces
        self._tables[:size].copy_(to_device(tables, self._device))
        self._pieces[:size].copy_(to_device(pieces, self._device))
        self._flat[:, :count].copy_(batch.flat)
        # Slots of the null block for the spare ones.
        self._flat[:, count:size].zero_()
        replay, logits = self._records[size]
        replay()
        return logits[:count]

    def _batch(self, size: int, block_size: int) -> FlatBatch:
        tensors = PieceTensors(self._pieces[:size], self._tables[:size], 1)
        nothing = np.zeros((0, 4), dtype=np.int32)
        flat = self._flat[:, :size]
        return FlatBatch(flat, [], [], nothing, nothing, block_size, piece_tensors=tensors)


def graph_sizes(most: int) -> list[int]:
    """Numbers of sequences to record for: powers of two, then every 32, up to 256 or `most`."""
    sizes = [1, 2, 4, 8, 16, *range(32, 257, 32)]
    return sorted({min(size, most) for size in sizes})
