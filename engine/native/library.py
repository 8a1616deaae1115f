"""The compiled kernels, loaded by ctypes. The headers beside the sources are the contract; structures here mirror them."""

from __future__ import annotations

import ctypes
import platform
from ctypes import c_char_p, c_float, c_int, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from pathlib import Path

FOLDER = Path(__file__).parent / "lib"
SPINS = 500
"""Rounds that an idle thread of the pool looks for work before it sleeps: some 30 us, longer than Python needs between calls."""
_LEVELS = {
    "x86-64-v4": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx2", "fma"},
    "x86-64-v3": {"avx2", "fma", "bmi1", "bmi2", "f16c", "movbe"},
}


class Weight(ctypes.Structure):
    """struct weight of gemm.h."""

    _fields_ = (
        ("data", c_void_p),
        ("bias", c_void_p),
        ("inputs", c_int32),
        ("outputs", c_int32),
        ("kind", c_int32),
    )


class Cache(ctypes.Structure):
    """struct cache of cache.h."""

    _fields_ = (
        ("keys", c_void_p),
        ("values", c_void_p),
        ("heads", c_int32),
        ("key_dim", c_int32),
        ("value_dim", c_int32),
        ("block_size", c_int32),
        ("kind", c_int32),
    )


class Scoring(ctypes.Structure):
    """struct scoring of cache.h."""

    _fields_ = (("scale", c_float), ("softcap", c_float), ("window", c_int32))


class Layer(ctypes.Structure):
    """struct layer of layers.h."""

    _fields_ = (
        ("qkv", Weight),
        ("attention_out", Weight),
        ("gate_up", Weight),
        ("down", Weight),
        ("cache", Cache),
        ("scoring", Scoring),
        ("attention_norm", c_void_p),
        ("query_norm", c_void_p),
        ("key_norm", c_void_p),
        ("attention_post_norm", c_void_p),
        ("mlp_norm", c_void_p),
        ("mlp_post_norm", c_void_p),
        ("eps", c_float),
        ("query_heads", c_int32),
        ("rotary_dim", c_int32),
        ("rotary_kind", c_int32),
        ("activation", c_int32),
        ("index", c_int32),
    )


class Step(ctypes.Structure):
    """struct step of layers.h."""

    _fields_ = (
        ("rows", c_int64),
        ("hidden", c_int64),
        ("x", c_void_p),
        ("cosines", c_void_p * 2),
        ("sines", c_void_p * 2),
        ("slots", c_void_p),
        ("pieces", c_void_p),
        ("tables", c_void_p),
        ("normed", c_void_p),
        ("qkv", c_void_p),
        ("seen", c_void_p),
        ("middle", c_void_p),
        ("spans", c_void_p),
        ("narrow", c_void_p),
        ("raw", c_void_p),
        ("num_spans", c_int32),
        ("num_pieces", c_int32),
        ("partial", c_int32),
    )


class Delta(ctypes.Structure):
    """struct delta of layers.h."""

    _fields_ = (("down", Weight), ("up", Weight))


class Span(ctypes.Structure):
    """struct span of layers.h."""

    _fields_ = (("first", c_int64), ("count", c_int64), ("deltas", c_void_p))


class RingWriterState(ctypes.Structure):
    """struct ring_writer of ring.h."""

    _fields_ = (
        ("base", c_void_p),
        ("capacity", c_uint64),
        ("written", c_uint64),
        ("room_until", c_uint64),
        ("limit", c_uint32),
        ("number", c_uint32),
        ("readers", c_int32),
    )


class RingReaderState(ctypes.Structure):
    """struct ring_reader of ring.h."""

    _fields_ = (
        ("base", c_void_p),
        ("capacity", c_uint64),
        ("read", c_uint64),
        ("start", c_uint64),
        ("spin_ns", c_int64),
        ("short_ns", c_int64),
        ("long_ns", c_int64),
        ("since_ns", c_int64),
        ("number", c_uint32),
        ("reader", c_int32),
        ("restraint", c_int32),
        ("caution", c_int32),
    )


class KernelsError(Exception):
    """The library is there but cannot be used; says why."""


class Kernels:
    """The functions of one library. Any thread may call them; they let go of the GIL."""

    def __init__(self, path: Path) -> None:
        """Load `path`; KernelsError if that fails or its structures are not those of this module."""
        try:
            library = ctypes.CDLL(str(path))
            sizes = (c_int32 * 9)()
            library.structure_sizes(sizes)
        except (OSError, AttributeError) as error:
            raise KernelsError(f"{path}: {error}") from error
        kinds = (Weight, Cache, Scoring, Layer, Step, RingWriterState, RingReaderState, Delta, Span)
        expected = [ctypes.sizeof(kind) for kind in kinds]
        if list(sizes) != expected:
            raise KernelsError(f"{path}: built from other sources (make ext builds it anew)")
        signatures: dict[str, tuple[type, ...]] = {
            "pool_configure": (c_int, c_int),
            "gemm": (c_void_p, c_void_p, c_int64, c_int64, c_void_p, c_int64, c_int),
            "cache_store": (c_void_p, c_void_p, c_int64, c_void_p, c_int64, c_int64, c_void_p, c_int64, c_int64),
            "attend": (c_void_p, c_void_p, c_int32, c_void_p, c_void_p, c_int64, c_int64, c_int32, c_void_p, c_void_p),
            "rms_norm": (c_void_p, c_int64, c_int64, c_void_p, c_float, c_void_p),
            "attention_half": (c_void_p, c_void_p),
            "mlp_half": (c_void_p, c_void_p),
            "add_partial": (c_void_p, c_void_p, c_float),
            "run_layers": (c_void_p, c_int32, c_void_p),
            "ring_send": (c_void_p, c_char_p, c_uint64),
            "ring_publish": (c_void_p,),
            "ring_next": (c_void_p, c_int64),
        }
        results: dict[str, type] = {"pool_configure": c_int, "ring_send": c_int32, "ring_next": c_int64}
        try:
            for name, arguments in signatures.items():
                function = getattr(library, name)
                function.argtypes = arguments
                function.restype = results.get(name)
        except AttributeError as error:
            raise KernelsError(f"{path}: built from other sources (make ext builds it anew): {error}") from error
        self.path = path
        self.gemm = library.gemm
        self.cache_store = library.cache_store
        self.attend = library.attend
        self.rms_norm = library.rms_norm
        self.attention_half = library.attention_half
        self.mlp_half = library.mlp_half
        self.add_partial = library.add_partial
        self.run_layers = library.run_layers
        self.ring_send = library.ring_send
        self.ring_publish = library.ring_publish
        self.ring_next = library.ring_next
        self._configure = library.pool_configure

    def use_threads(self, count: int) -> int:
        """Share work among `count` threads, the caller's included; how many there are."""
        used: int = self._configure(count, SPINS)
        return used


def load_kernels(folder: Path = FOLDER) -> Kernels | None:
    """The best library for this processor; None if there is none. KernelsError if it cannot be used."""
    path = folder / f"kernels-{level()}.so"
    return Kernels(path) if path.exists() else None


def kernels_or_none() -> Kernels | None:
    """As `load_kernels`, for those that do their work without them too and leave complaints to the worker."""
    try:
        return load_kernels()
    except KernelsError:
        return None


def level(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """What this processor can do, as set-up names libraries."""
    if platform.machine() != "x86_64":
        return "native"
    try:
        lines = cpuinfo.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return "x86-64"
    flags = next((set(line.partition(":")[2].split()) for line in lines if line.startswith("flags")), set())
    return next((name for name, needed in _LEVELS.items() if needed <= flags), "x86-64")
