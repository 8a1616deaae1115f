"""Loading a transformers causal LM from a folder."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers

from engine.lora.modules import ActiveStep, adapt
from engine.lora.sites import Sites, find_sites
from engine.model.attention import NAME, Kernel, PagedAttention, register
from engine.model.blocked import MOST_VALUE_DIM
from engine.model.cache import LayerShape
from engine.model.cpu import fuse_norms, speed_up, use_kernels
from engine.model.errors import ModelError
from engine.model.files import read_ahead, weight_files
from engine.model.lean import LeanModel, lean
from engine.model.overrides import config_of
from engine.model.packed import KINDS, Arena
from engine.native.library import Kernels

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def read_config(folder: str, overrides: Mapping[str, Any] | None = None) -> Any:
    """The model's transformers config, its text part where it has several.

    ModelError if the folder holds none or it is not a decoder-only model.
    """
    path = Path(folder)
    if path.is_file():
        raise ModelError(f"{folder}: a file, not a model folder (python -m engine.convert.gguf makes one of a GGUF file)")
    if not path.is_dir():
        raise ModelError(f"{folder}: no such folder")
    if not (path / "config.json").is_file():
        raise ModelError(f"{folder}: config.json is missing")
    try:
        config = config_of(folder, overrides or {})
    except Exception as error:  # whatever such a file makes transformers raise
        changed = " with --hf-overrides" if overrides else ""
        raise ModelError(f"{folder}/config.json{changed}: {error}") from error
    if getattr(config, "is_encoder_decoder", False):
        raise ModelError(f"{folder}: {config.model_type} is an encoder-decoder model, only decoder-only ones are served")
    return config.get_text_config(decoder=True)


def max_positions(config: Any) -> int | None:
    """Longest sequence the model is made for, None if it does not say."""
    for name in ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length"):
        value = getattr(config, name, None)
        if isinstance(value, int) and value > 0:
            rope = getattr(config, "rope_parameters", None) or {}
            # Other kinds of scaling are counted already, or depend on the batch (dynamic).
            return int(value * rope["factor"]) if rope.get("rope_type") == "linear" and "factor" in rope else value
    return None


def rotates(config: Any) -> bool:
    """True if positions are angles, of which there are as many as one likes."""
    return bool(getattr(config, "rope_parameters", None))


def choose_dtype(wanted: str, config: Any, device: torch.device) -> torch.dtype:
    """`wanted`; auto is the checkpoint's own, but on CPUs float32 in place of float16, which they do not compute with."""
    if wanted != "auto":
        return DTYPES[wanted]
    stored = getattr(config, "dtype", None)
    if not isinstance(stored, torch.dtype) or (device.type == "cpu" and stored == torch.float16):
        return torch.float32
    return stored


class Loaded(NamedTuple):
    """A model ready for paged attention: its attention still needs a cache of `shapes`.

    With `kernels` that is a BlockedCache, and activations are float32 whatever the weights are. `lean` is the whole model in
    its fast form, where there is one. `sites` are where adapters can be, in the whole model; `adapted` tells its modules of a
    step, but for a lean one.
    """

    model: Any
    attention: PagedAttention
    shapes: list[LayerShape]
    parameters: int
    kernels: Kernels | None = None
    lean: LeanModel | None = None
    sites: Sites | None = None
    adapted: ActiveStep | None = None


def load(
    folder: str,
    dtype: torch.dtype,
    device: torch.device,
    packing_bytes: int = 0,
    kernels: Kernels | None = None,
    split: Callable[[Any], None] | None = None,
    say: Callable[[str], None] | None = None,
    memory_bytes: int = 0,
    overrides: Mapping[str, Any] | None = None,
    adapters: bool = False,
) -> Loaded:
    """Load the weights and attach paged attention; ModelError says what is wrong with the folder or the model.

    On a CPU weights are laid out for `kernels`, or without them, up to `packing_bytes`, a second time for torch.
    `split` changes the model before it gets to its device. `adapters`: rows of a step may have some. With `say` the files are
    read once before, with progress, if `memory_bytes` hold them. `overrides` are values in place of
    config.json's.
    """
    register()
    config = {"config": config_of(folder, overrides)} if overrides else {}
    files = weight_files(Path(folder))
    if say is not None:
        read_ahead(files, say, memory_bytes)
    try:
        loaded: Any = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, attn_implementation=NAME, local_files_only=True, output_loading_info=True, **config
        )
        model, info = loaded
    except Exception as error:  # Whatever a broken file makes the libraries raise, the folder is at fault.
        raise ModelError(f"{folder}: cannot load the weights: {type(error).__name__}: {error}") from error
    for problem in ("missing_keys", "mismatched_keys"):
        if info.get(problem):
            names = sorted(map(str, info[problem]))
            raise ModelError(f"{folder}: {len(names)} weights are missing or misshapen in the files, first {names[0]}")
    sites = find_sites(model) if adapters else None
    if split is not None:
        split(model)
    model.train(False).requires_grad_(False).to(device)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    attention = PagedAttention()
    attention.attach(model)
    shapes = probe(model, attention, device)
    if device.type != "cpu":
        attention.kernel = _gpu_kernel(say)
        return Loaded(model, attention, shapes, parameters, sites=sites, adapted=_adapted(model, sites))
    if kernels is None or dtype not in KINDS or max(shape.value_dim for shape in shapes) > MOST_VALUE_DIM:
        speed_up(model, packing_bytes)
        return Loaded(model, attention, shapes, parameters, sites=sites, adapted=_adapted(model, sites))
    arena = Arena()
    fast = lean(model, kernels, arena)
    if fast is None:
        use_kernels(model, kernels, arena)
        fuse_norms(model)
    adapted = _adapted(model, sites) if fast is None else None
    return Loaded(model, attention, shapes, parameters, kernels, fast, sites, adapted)


def _adapted(model: Any, sites: Sites | None) -> ActiveStep | None:
    return None if sites is None else adapt(model, sites)


def _gpu_kernel(say: Callable[[str], None] | None) -> Kernel | None:
    """Triton's attention; None, and a line that says so, where there is no Triton."""
    try:
        from engine.model.triton_attention import attend  # noqa: PLC0415 - builds of torch for CPUs come without Triton
    except ImportError as error:
        if say is not None:
            say(f"attention by torch's operations, slower: {error}")
        return None
    return attend


def probe(model: Any, attention: PagedAttention, device: torch.device) -> list[LayerShape]:
    """Run one token to learn each layer's heads; ModelError if a layer does not attend through the interface."""
    token = torch.zeros((1, 1), dtype=torch.long, device=device)
    try:
        with torch.inference_mode():
            model(input_ids=token, position_ids=token, use_cache=False)
    except AttributeError as error:
        raise ModelError(f"{type(model).__name__} cannot be served: {error}") from error
    layers = model.config.get_text_config(decoder=True).num_hidden_layers
    if sorted(attention.shapes) != list(range(layers)):
        found = len(attention.shapes)
        raise ModelError(f"{type(model).__name__} cannot be served: {found} of its {layers} layers use plain attention")
    return [attention.shapes[layer] for layer in range(layers)]


def takes(function: Callable[..., Any], parameter: str) -> bool:
    """True if `function` has a parameter of that name."""
    return parameter in inspect.signature(function).parameters
