"""The ranks that share a model, and what they tell each other: gloo between CPUs, NCCL between GPUs."""

from __future__ import annotations

from datetime import timedelta

import torch
import torch.distributed as dist

from engine.executor.processes import OUTPUT_RANK

TIMEOUT_S = 3600.0
"""How long a rank waits for the others. Loading may differ by minutes; that one has died the engine core notices at once."""


class TensorGroup:
    """One rank's end. Every method is called by all ranks in the same order, by the worker's thread."""

    def __init__(self, rank: int, size: int, rendezvous: int, device: torch.device) -> None:
        """Wait for the others; `rendezvous` is a descriptor of an empty file that all ranks have inherited.

        They meet there, so that no port has to be found and nothing is left in the file system.
        """
        self.rank = rank
        self.size = size
        self._device = device
        store = dist.FileStore(f"/proc/self/fd/{rendezvous}", size)  # type: ignore[attr-defined]
        if device.type == "cuda":
            torch.cuda.set_device(device)
        dist.init_process_group(
            "nccl" if device.type == "cuda" else "gloo",
            store=store,
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=TIMEOUT_S),
        )

    def reduce(self, x: torch.Tensor) -> None:
        """Turn `x`, the same shape everywhere, into the sum over all ranks."""
        dist.all_reduce(x)

    def gather(self, x: torch.Tensor, widths: list[int]) -> torch.Tensor:
        """What the ranks have, side by side along the last dimension; `widths` are their parts' by rank."""
        longest = max(widths)
        if x.shape[-1] < longest:
            x = torch.nn.functional.pad(x, (0, longest - x.shape[-1]))
        x = x.contiguous()
        parts = [torch.empty_like(x) for _ in widths]
        dist.all_gather(parts, x)
        return torch.cat([part[..., :width] for part, width in zip(parts, widths, strict=True)], dim=-1)

    def least(self, value: int) -> int:
        """The smallest value of any rank."""
        box = torch.tensor([value], dtype=torch.long, device=self._device)
        dist.all_reduce(box, op=dist.ReduceOp.MIN)
        return int(box.item())

    def share(self, values: list[int]) -> list[int]:
        """The output rank's values; the others give as many of any kind."""
        box = torch.tensor(values, dtype=torch.long, device=self._device)
        dist.broadcast(box, OUTPUT_RANK)
        shared: list[int] = box.tolist()
        return shared
