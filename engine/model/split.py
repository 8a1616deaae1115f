"""Splitting a transformers model over the ranks of an engine, after the plan its family comes with (`tp_plan`).

Layers that a plan calls `colwise` keep a part of their outputs, `rowwise` ones a part of their inputs: what they give is
then summed over all ranks. Attention is split between heads, each key/value head with its query heads. Parts need not be
of one size: 9 heads on 3 key/value heads become 6 and 3 on two ranks. A rank beyond the number of
key/value heads shares one. Everything that no plan mentions is whole on every rank.
"""

from __future__ import annotations

import fnmatch
import itertools
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from engine.model.errors import ModelError
from engine.model.lean import LeanModel
from engine.worker.group import TensorGroup

WHOLE = ("embedding_rowwise", "replicated_with_grad_allreduce", "replicated")
"""Styles of modules that stay whole here."""
_QUERY, _KEY_VALUE, _FUSED = ("q_proj",), ("k_proj", "v_proj"), ("query_key_value",)


class Part(NamedTuple):
    """Rows or columns first..end of a weight."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Heads:
    """Query and key/value heads by rank."""

    query: list[Part]
    key_value: list[Part]


def split_evenly(count: int, ranks: int) -> list[Part]:
    """`count` things on all ranks: the first ones get one more if it does not come out even."""
    share, more = divmod(count, ranks)
    bounds = [rank * share + min(rank, more) for rank in range(ranks + 1)]
    return [Part(first, end) for first, end in itertools.pairwise(bounds)]


def split_heads(query: int, key_value: int, ranks: int) -> Heads:
    """Heads by rank; every query head is with its key/value head. ValueError if a rank would have none."""
    if ranks > query:
        raise ValueError(f"there are {query} attention heads")
    group = query // key_value
    if ranks <= key_value:
        parts = split_evenly(key_value, ranks)
        return Heads([Part(part.first * group, part.end * group) for part in parts], parts)
    owners = split_evenly(ranks, key_value)
    heads = Heads([], [])
    for head, owner in enumerate(owners):
        shares = split_evenly(group, owner.end - owner.first)
        if shares[-1].first == shares[-1].end:
            raise ValueError(f"there are {group} attention heads to a key/value head, too few for {len(shares)} of the ranks")
        heads.query.extend(Part(head * group + share.first, head * group + share.end) for share in shares)
        heads.key_value.extend(Part(head, head + 1) for _ in shares)
    return heads


class GatheredLinear(torch.nn.Module):
    """A linear layer of which each rank computes a part, put together on all of them."""

    def __init__(self, local: torch.nn.Linear, widths: list[int], group: TensorGroup) -> None:
        super().__init__()
        self.local = local
        self._widths = widths
        self._group = group

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`x` [..., in_features], the whole of it."""
        return self._group.gather(self.local(x), self._widths)


class SummedLinear(torch.nn.Module):
    """A layer whose outputs are summed over all ranks; with `part` it takes that part of whole inputs."""

    def __init__(self, local: torch.nn.Module, part: Part | None, group: TensorGroup) -> None:
        super().__init__()
        self.local = local
        self._part = part
        self._group = group

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`x` [..., this rank's features], or all of them if there is a part to take."""
        if self._part is not None:
            x = x[..., self._part.first : self._part.end]
        summed: torch.Tensor = self.local(x)
        self._group.reduce(summed)
        return summed


class Splitter:
    """Splits one model for one rank: `split` before weights move to their device, `join` when layers have their final form.

    `parts` are the outputs and inputs that this rank has of layers whose other inputs or outputs it does not see, by path.

    In between the model gives parts of sums and of logits, from layers of their original types.
    """

    def __init__(self, group: TensorGroup) -> None:
        self.group = group
        self._summed: list[tuple[torch.nn.Module, str]] = []
        self.parts: dict[str, tuple[Part | None, Part | None]] = {}
        self._logit_widths: list[int] | None = None

    def split(self, model: Any) -> None:
        """Keep this rank's part of the weights. ModelError if the model cannot be split."""
        ranks, config = self.group.size, model.config.get_text_config(decoder=True)
        plan: dict[str, str] = model.tp_plan or {}
        if not any(style.startswith("colwise") for name, style in plan.items() if name != "lm_head"):
            raise ModelError(f"--tensor-parallel-size {ranks}: {type(model).__name__} has no plan for splitting it")
        for name in ("intermediate_size", "vocab_size"):
            if getattr(config, name, ranks) < ranks:
                raise ModelError(f"--tensor-parallel-size {ranks}: {name} is {getattr(config, name)}")
        query = config.num_attention_heads
        try:
            heads = split_heads(query, getattr(config, "num_key_value_heads", None) or query, ranks)
        except ValueError as error:
            raise ModelError(f"--tensor-parallel-size {ranks}: {error}") from error
        for path, module in list(model.named_modules()):
            style = next((style for pattern, style in plan.items() if fnmatch.fnmatchcase(path, pattern)), None)
            if style is None or style in WHOLE:
                continue
            parent_path, _, name = path.rpartition(".")
            if type(module) is not torch.nn.Linear:
                raise ModelError(f"--tensor-parallel-size {ranks}: {path} cannot be split ({style})")
            self._split_linear(model.get_submodule(parent_path), parent_path, name, module, style, heads)

    def join(self, lean: LeanModel | None) -> None:
        """Have the layers that give parts of sums give the sums; `lean` is the model's fast form, if it has one."""
        if lean is not None:
            lean.reduce = self.group.reduce
        else:
            for parent, name in self._summed:
                setattr(parent, name, SummedLinear(getattr(parent, name), None, self.group))
        self._summed.clear()

    def all_logits(self, logits: torch.Tensor) -> torch.Tensor:
        """All logits [rows, vocab], given those that the model gives on this rank."""
        return logits if self._logit_widths is None else self.group.gather(logits, self._logit_widths)

    def _split_linear(
        self, parent: torch.nn.Module, parent_path: str, name: str, linear: torch.nn.Linear, style: str, heads: Heads
    ) -> None:
        rank, ranks, attention = self.group.rank, self.group.size, "att" in parent_path.rpartition(".")[2]
        if style == "colwise":
            parts = _scaled(linear.out_features, name, heads) if attention else split_evenly(linear.out_features, ranks)
            setattr(parent, name, _columns(linear, parts[rank]))
            self.parts[f"{parent_path}.{name}"] = (parts[rank], None)
        elif style == "colwise_gather_output":
            parts = split_evenly(linear.out_features, ranks)
            widths = [part.end - part.first for part in parts]
            local = _columns(linear, parts[rank])
            if name == "lm_head":
                # Put together once, by whoever wants the logits: models may do more with them, number by number.
                self._logit_widths = widths
                setattr(parent, name, local)
            else:
                setattr(parent, name, GatheredLinear(local, widths, self.group))
        elif style == "rowwise":
            parts = _scaled(linear.in_features, "q_proj", heads) if attention else split_evenly(linear.in_features, ranks)
            setattr(parent, name, _rows(linear, parts[rank], keep_bias=rank == 0))
            self._summed.append((parent, name))
            self.parts[f"{parent_path}.{name}"] = (None, parts[rank])
        elif style == "rowwise_split_input":
            part = split_evenly(linear.in_features, ranks)[rank]
            setattr(parent, name, SummedLinear(_rows(linear, part, keep_bias=rank == 0), part, self.group))
        else:
            raise ModelError(f"--tensor-parallel-size {ranks}: {parent_path}.{name} cannot be split ({style})")


def _scaled(features: int, name: str, heads: Heads) -> list[Part]:
    """Features by rank of a projection of attention."""
    if name not in (*_QUERY, *_KEY_VALUE, *_FUSED):
        raise ModelError(f"--tensor-parallel-size {len(heads.query)}: attention layer {name} cannot be split")
    parts = heads.key_value if name in _KEY_VALUE else heads.query
    count = max(part.end for part in parts)
    if features % count:
        raise ModelError(f"--tensor-parallel-size {len(parts)}: {name} has {features} features for {count} heads")
    width = features // count
    return [Part(part.first * width, part.end * width) for part in parts]


def _columns(linear: torch.nn.Linear, part: Part) -> torch.nn.Linear:
    """The layer's outputs first..end."""
    bias = _bias(linear)
    part_of_bias = None if bias is None else bias[part.first : part.end].clone()
    return _linear(linear.weight.data[part.first : part.end].clone(), part_of_bias)


def _rows(linear: torch.nn.Linear, part: Part, keep_bias: bool) -> torch.nn.Linear:
    """The layer on its inputs first..end; its bias counts once."""
    return _linear(linear.weight.data[:, part.first : part.end].clone(), _bias(linear) if keep_bias else None)


def _bias(linear: torch.nn.Linear) -> torch.Tensor | None:
    bias: torch.nn.Parameter | None = linear.bias
    return None if bias is None else bias.data


def _linear(weight: torch.Tensor, bias: torch.Tensor | None) -> torch.nn.Linear:
    local = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    local.weight = torch.nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        local.bias = torch.nn.Parameter(bias, requires_grad=False)
    return local
