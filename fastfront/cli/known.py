"""Flags of `vllm serve` without a counterpart here: refused with what to do instead, or dropped where nothing is lost."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from fastfront.cli.engine_only import NO_LORA_SETTING, REFUSED, TUNING


class Known(NamedTuple):
    """Why a flag is not there. `switch`: it takes no value; `neutral`: values that ask for nothing; `dropped`: a warning does."""

    why: str
    switch: bool = False
    neutral: tuple[str, ...] = ()
    dropped: bool = False


class UnsupportedFlagError(Exception):
    """The text names the flag and says why, or what to use instead."""


class Sifted(NamedTuple):
    """`kept`: the command line of flags that exist. `for_vllm`: words for vLLM's engines. `remarks`: of what has no effect."""

    kept: list[str]
    for_vllm: list[str]
    remarks: list[str]


def sift(words: Sequence[str], declared: Collection[str], vllm: bool = False) -> Sifted:
    """The command line by whom it is for; `vllm`: engines are vLLM's.

    `declared` are the flags that exist; all others that vLLM has raise UnsupportedFlagError.
    """
    kept: list[str] = []
    for_vllm: list[str] = []
    remarks: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--engine-args":         # its value may look like a flag
            kept += [word, *rest[:1]]
            del rest[:1]
            continue
        level = word.startswith("-O") and word[2:3] not in ("", "=", ".")  # vLLM's -O3
        flag, equals, value = ("-O", "=", word[2:]) if level else word.partition("=")
        found = None if flag in declared else _known(flag)
        if found is None:
            kept.append(word)
            continue
        name, known = found
        passed = vllm and _is_vllms(name.removeprefix("--"))
        if flag.startswith("--no-"):
            for_vllm += [word] * passed
            continue
        values = [value] if equals else []
        while not (equals or known.switch) and rest and not rest[0].startswith("-"):
            if values and not rest[0].isdecimal():  # only numbers come in lists: this may be MODEL
                break
            values.append(rest.pop(0))
        if passed:
            for_vllm += [word] if equals else [word, *values]
        elif known.dropped:
            remarks.append(f"{name} has no effect: {known.why}")
        elif not values or any(item.lower() not in known.neutral for item in values):
            raise UnsupportedFlagError(f"{name} is not supported: {known.why}")
    return Sifted(kept, for_vllm, remarks)


def _is_vllms(bare: str) -> bool:
    """Whether it is a setting of vLLM's engine that nothing here need know."""
    return bare in _VLLMS or bare.startswith(("eplb-", "moe-", "lora-"))


def _known(flag: str) -> tuple[str, Known] | None:
    name = flag.partition(".")[0]
    name = _SHORT.get(name, name)
    if name.startswith("--no-"):
        name = "--" + name[len("--no-") :]
    bare = name.removeprefix("--")
    for table in (_DROPPED, _REFUSED):
        if bare in table and name.startswith("--"):
            return name, table[bare]
    for prefix, why in _PREFIXES.items():
        if name.startswith(prefix):
            return name, Known(why)
    return None


_SHORT = {
    "-pp": "--pipeline-parallel-size", "-q": "--quantization", "-O": "--compilation-config", "-cc": "--compilation-config",
    "-ep": "--enable-expert-parallel", "-dcp": "--decode-context-parallel-size", "-n": "--nnodes", "-r": "--node-rank",
    "-dpb": "--data-parallel-backend",
    "-asc": "--api-server-count", "-pcp": "--prefill-context-parallel-size", "-dpm": "--data-parallel-multi-port-external-lb",
    "-dc": "--diffusion-config", "-ac": "--attention-config",
}  # fmt: skip


def _drop(why: str, switch: bool = False) -> Known:
    return Known(why, switch, dropped=True)


_ENGINE_TUNING = "the engine chooses that itself"
_TEXT = "only text is served"
_ONE_DEVICE = "engines are split by --tensor-parallel-size, on one machine; --data-parallel-size starts several"

_SETTINGS = (
    "trust-remote-code enforce-eager enable-chunked-prefill disable-cascade-attn cudagraph-capture-sizes "
    "max-cudagraph-capture-size compilation-config long-prefill-token-threshold attention-backend optimization-level "
    "performance-mode disable-custom-all-reduce disable-hybrid-kv-cache-manager safetensors-load-strategy "
    "max-parallel-loading-workers pt-load-map-location language-model-only use-tqdm-on-load pipeline-parallel-size "
    "decode-context-parallel-size prefill-context-parallel-size enable-expert-parallel distributed-executor-backend "
    "limit-mm-per-prompt skip-mm-profiling model-loader-extra-config scheduler-cls disable-sliding-window logits-processors "
    "load-format quantization kv-cache-dtype cpu-offload-gb model-impl kv-transfer-config kv-events-config profiler-config "
    "additional-config worker-cls worker-extension-cls"
)
_VLLMS = frozenset(_SETTINGS.split()).union(*(group.flags() for group in (*REFUSED, TUNING)))
_DROPPED: Mapping[str, Known] = {
    "trust-remote-code": _drop("no code of a model is run", switch=True),
    "api-server-count": _drop("one process serves with all cores; see --request-threads and --lanes"),
    "workers": _drop("TLS is done by the threads of --request-threads and --lanes"),
    "enable-offline-docs": _drop("/docs loads nothing from elsewhere", switch=True),
    "h11-max-incomplete-event-size": _drop("h11 is not used"),
    "h11-max-header-count": _drop("h11 is not used"),
    "enable-server-load-tracking": _drop("/load always counts", switch=True),
    "log-error-stack": _drop("unexpected errors are always logged with their stack", switch=True),
    "aggregate-engine-logging": _drop("the line of statistics is one for all engines", switch=True),
    "renderer-num-workers": _drop("see --request-threads"),
    "enforce-eager": _drop(_ENGINE_TUNING, switch=True),
    "enable-chunked-prefill": _drop(_ENGINE_TUNING, switch=True),
    "disable-cascade-attn": _drop(_ENGINE_TUNING, switch=True),
    "cudagraph-capture-sizes": _drop(_ENGINE_TUNING),
    "max-cudagraph-capture-size": _drop(_ENGINE_TUNING),
    "compilation-config": _drop(_ENGINE_TUNING),
    "max-seq-len-to-capture": _drop(_ENGINE_TUNING),
    "max-num-partial-prefills": _drop(_ENGINE_TUNING),
    "max-long-partial-prefills": _drop(_ENGINE_TUNING),
    "long-prefill-token-threshold": _drop(_ENGINE_TUNING),
    "num-lookahead-slots": _drop(_ENGINE_TUNING),
    "attention-backend": _drop(_ENGINE_TUNING),
    "optimization-level": _drop(_ENGINE_TUNING),
    "performance-mode": _drop(_ENGINE_TUNING),
    "disable-custom-all-reduce": _drop(_ENGINE_TUNING, switch=True),
    "disable-hybrid-kv-cache-manager": _drop(_ENGINE_TUNING, switch=True),
    "disable-frontend-multiprocessing": _drop("one process serves", switch=True),
    "disable-log-requests": _drop("requests are only logged with --enable-log-requests", switch=True),
    "safetensors-load-strategy": _drop(_ENGINE_TUNING),
    "max-parallel-loading-workers": _drop(_ENGINE_TUNING),
    "pt-load-map-location": _drop(_ENGINE_TUNING),
    "language-model-only": _drop(_TEXT, switch=True),
    "swap-space": _drop("nothing is swapped"),
    "use-tqdm-on-load": _drop("nothing is drawn", switch=True),
    **{name: _drop(TUNING.why, switch) for name, switch in TUNING.flags().items()},
}

_REFUSED: Mapping[str, Known] = {
    "grpc": Known("only HTTP is served", switch=True),
    "grpc-port": Known("only HTTP is served"),
    "data-parallel-supervisor-port": Known("one process serves for all engines; ask its /health"),
    "data-parallel-backend": Known("ray places no engines; start those of each machine there", neutral=("mp",)),
    "data-parallel-multi-port-external-lb": Known("start a frontend for each rank, with --data-parallel-rank", switch=True),
    "pipeline-parallel-size": Known(_ONE_DEVICE, neutral=("1",)),
    "decode-context-parallel-size": Known(_ONE_DEVICE, neutral=("1",)),
    "prefill-context-parallel-size": Known(_ONE_DEVICE, neutral=("1",)),
    "nnodes": Known(_ONE_DEVICE, neutral=("1",)),
    "node-rank": Known(_ONE_DEVICE, neutral=("0",)),
    "master-addr": Known(_ONE_DEVICE),
    "master-port": Known(_ONE_DEVICE),
    "enable-expert-parallel": Known(_ONE_DEVICE, switch=True),
    "distributed-executor-backend": Known(_ONE_DEVICE, neutral=("uni", "mp")),
    "tool-server": Known("tools are run by clients"),
    "trust-request-mm-kwargs": Known(_TEXT, switch=True),
    "limit-mm-per-prompt": Known(_TEXT),
    "media-io-kwargs": Known(_TEXT),
    "allowed-local-media-path": Known(_TEXT),
    "allowed-media-domains": Known(_TEXT),
    "interleave-mm-strings": Known(_TEXT, switch=True),
    "skip-mm-profiling": Known(_TEXT, switch=True),
    "enable-tokenizer-info-endpoint": Known("read the model's folder", switch=True),
    "tokens-only": Known("prompts may be token ids on /v1/completions", switch=True),
    "enable-scale-out": Known("preprocessing and generation are not separate", switch=True),
    "code-revision": Known("no code of a model is run"),
    "hf-config-path": Known("config.json in the model's folder is read"),
    "config-format": Known("config.json in the model's folder is read", neutral=("auto", "hf")),
    "download-dir": Known("set the environment variable HF_HOME"),
    "ignore-patterns": Known("only the small files that the frontend reads are fetched"),
    "model-loader-extra-config": Known("safetensors are read"),
    "anthropic-disabled-thinking-effort": Known("the template's variable enable_thinking switches thinking off"),
    "guided-decoding-backend": Known("use --structured-outputs-config.backend", neutral=("auto",)),
    "scheduler-cls": Known("no code of users is run in the engine"),
    "disable-sliding-window": Known("the model's own attention is used", switch=True),
    "calculate-kv-scales": Known("the cache has the weights' type", switch=True),
    "skip-tokenizer-init": Known("answers are text", switch=True),
    "enable-prompt-embeds": Known("prompts are text or token ids", switch=True),
    "logits-processors": Known("no code of users is run in the engine"),
    "io-processor-plugin": Known("no code of users is run"),
    "load-format": Known("safetensors are read; for GGUF see `python -m engine.convert`", neutral=("auto", "safetensors")),
    "quantization": Known("weights are used as they are"),
    "kv-cache-dtype": Known("the cache has the weights' type", neutral=("auto",)),
    "cpu-offload-gb": Known("weights stay on one device", neutral=("0",)),
    "model-impl": Known("the engine has its own", neutral=("auto",)),
    "task": Known("text is generated", neutral=("auto", "generate")),
    "runner": Known("text is generated", neutral=("auto", "generate")),
    "convert": Known("text is generated", neutral=("auto", "none")),
    "default-mm-loras": Known(_TEXT),
    "kv-transfer-config": Known("an engine keeps its cache to itself"),
    "ec-transfer-config": Known(_TEXT),
    "kv-events-config": Known("an engine keeps its cache to itself"),
    "profiler-config": Known("use a profiler of the system, such as perf or py-spy"),
    "enable-fault-tolerance": Known("see --engine-restarts", switch=True),
    "additional-config": Known("there is no platform that reads it"),
    "worker-cls": Known("no code of users is run in the engine"),
    "worker-extension-cls": Known("no code of users is run in the engine"),
    **{name: Known(group.why, switch) for group in REFUSED for name, switch in group.flags().items()},
}
_PREFIXES: Mapping[str, str] = {
    "--dp-supervisor-probe-": "one process serves for all engines; ask its /health",
    "--cohere-": "there is no Cohere API",
    "--mm-": _TEXT,
    "--video-": _TEXT,
    "--lora-": NO_LORA_SETTING,
    "--eplb-": _ONE_DEVICE,
    "--moe-": _ENGINE_TUNING,
}
