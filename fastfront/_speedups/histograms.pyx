# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False
"""Counting observations. Bounds of vllm:* as vLLM's metrics have them."""
from libc.string cimport memset

cdef double TTFT[22]
TTFT[:] = [.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560]
cdef double BETWEEN[19]
BETWEEN[:] = [.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80]
cdef double LATENCY[21]
LATENCY[:] = [.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680]
cdef double TOKENS[22]
TOKENS[:] = [
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 2e6, 5e6, 1e7,
]
cdef double PER_PROMPT[5]
PER_PROMPT[:] = [1, 2, 5, 10, 20]
cdef double PREEMPTIONS[7]
PREEMPTIONS[:] = [1, 2, 3, 4, 5, 10, 20]
cdef double STEP[13]
STEP[:] = [1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384]
cdef double RESIDENCY[21]
RESIDENCY[:] = [.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800]
cdef double DELAY[16]
DELAY[:] = [.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5]
cdef double FEW[8]
FEW[:] = [1, 2, 3, 4, 6, 8, 16, 32]

ENGINE_NAMES = (                # by EngineHistogram
    "vllm:time_to_first_token_seconds",
    "vllm:inter_token_latency_seconds",
    "vllm:request_time_per_output_token_seconds",
    "vllm:e2e_request_latency_seconds",
    "vllm:request_queue_time_seconds",
    "vllm:request_prefill_time_seconds",
    "vllm:request_decode_time_seconds",
    "vllm:request_inference_time_seconds",
    "vllm:request_prompt_tokens",
    "vllm:request_prefill_kv_computed_tokens",
    "vllm:request_generation_tokens",
    "vllm:request_max_num_generation_tokens",
    "vllm:request_params_max_tokens",
    "vllm:request_params_n",
    "vllm:request_num_preemptions",
    "vllm:iteration_tokens_total",
    "vllm:kv_block_lifetime_seconds",
    "vllm:kv_block_idle_before_evict_seconds",
    "vllm:kv_block_reuse_gap_seconds",
)
FAMILIES = {                    # that get their bounds together
    "request_latency": ENGINE_NAMES[<int>HIST_E2E:<int>HIST_INFERENCE + 1],
    "time_to_first_token": (ENGINE_NAMES[<int>HIST_TTFT],),
    "inter_token_latency": (ENGINE_NAMES[<int>HIST_ITL], ENGINE_NAMES[<int>HIST_TPOT]),
    "iteration_tokens": (ENGINE_NAMES[<int>HIST_STEP],),
    "request_params_n": (ENGINE_NAMES[<int>HIST_N],),
    "request_num_preemptions": (ENGINE_NAMES[<int>HIST_PREEMPTIONS],),
    "request_tokens": ENGINE_NAMES[<int>HIST_PROMPT:<int>HIST_MAX_TOKENS + 1],
    "kv_cache_residency": ENGINE_NAMES[<int>HIST_KV_LIFETIME:<int>HIST_KV_REUSE + 1],
}
MOST_BOUNDS = MAX_BOUNDS
LANE_NAMES = (                  # by LaneHistogram
    "fastfront:output_lag_seconds",
    "fastfront:request_intake_seconds",
    "fastfront:lane_wait_seconds",
    "fastfront:event_tokens",
)


cdef void histogram_init(Histogram *h, const double *bounds, int n) noexcept nogil:
    memset(h, 0, sizeof(Histogram))
    h.bounds = bounds
    h.n_bounds = n


cdef void engine_histograms_init(Histogram *all) noexcept nogil:
    histogram_init(&all[<int>HIST_TTFT], TTFT, 22)
    histogram_init(&all[<int>HIST_ITL], BETWEEN, 19)
    histogram_init(&all[<int>HIST_TPOT], BETWEEN, 19)
    histogram_init(&all[<int>HIST_E2E], LATENCY, 21)
    histogram_init(&all[<int>HIST_QUEUE], LATENCY, 21)
    histogram_init(&all[<int>HIST_PREFILL], LATENCY, 21)
    histogram_init(&all[<int>HIST_DECODE], LATENCY, 21)
    histogram_init(&all[<int>HIST_INFERENCE], LATENCY, 21)
    histogram_init(&all[<int>HIST_PROMPT], TOKENS, 22)
    histogram_init(&all[<int>HIST_COMPUTED], TOKENS, 22)
    histogram_init(&all[<int>HIST_GENERATION], TOKENS, 22)
    histogram_init(&all[<int>HIST_MAX_GENERATION], TOKENS, 22)
    histogram_init(&all[<int>HIST_MAX_TOKENS], TOKENS, 22)
    histogram_init(&all[<int>HIST_N], PER_PROMPT, 5)
    histogram_init(&all[<int>HIST_PREEMPTIONS], PREEMPTIONS, 7)
    histogram_init(&all[<int>HIST_STEP], STEP, 13)
    histogram_init(&all[<int>HIST_KV_LIFETIME], RESIDENCY, 21)
    histogram_init(&all[<int>HIST_KV_IDLE], RESIDENCY, 21)
    histogram_init(&all[<int>HIST_KV_REUSE], RESIDENCY, 21)


cdef int engine_histograms_use(Histogram *all, str family, object bounds, double *own) except -1:
    cdef int i, n = 0
    cdef double bound
    names = FAMILIES[family]
    for value in bounds:
        bound = value
        if n == MAX_BOUNDS or not -1e300 < bound < 1e300 or (n and bound <= own[n - 1]):
            raise ValueError(f"{family}: not up to {MAX_BOUNDS} rising numbers")
        own[n] = bound
        n += 1
    if n == 0:
        raise ValueError(f"{family}: no bounds")
    for i in range(ENGINE_HISTOGRAMS):
        if ENGINE_NAMES[i] in names:
            histogram_init(&all[i], own, n)
    return 0


cdef void lane_histograms_init(Histogram *all) noexcept nogil:
    histogram_init(&all[<int>LANE_LAG], DELAY, 16)
    histogram_init(&all[<int>LANE_INTAKE], DELAY, 16)
    histogram_init(&all[<int>LANE_WAIT], DELAY, 16)
    histogram_init(&all[<int>LANE_EVENT_TOKENS], FEW, 8)


cdef tuple histogram_read(const Histogram *h):
    cdef int k
    return (
        [h.bounds[k] for k in range(h.n_bounds)],
        [h.counts[k] for k in range(h.n_bounds + 1)],
        h.sum,
    )


cdef dict engine_histograms_read(const Histogram *all):
    cdef int i
    return {ENGINE_NAMES[i]: histogram_read(&all[i]) for i in range(ENGINE_HISTOGRAMS)}


cdef dict lane_histograms_read(const Histogram *all):
    cdef int i
    return {LANE_NAMES[i]: histogram_read(&all[i]) for i in range(LANE_HISTOGRAMS)}
