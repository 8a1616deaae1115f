# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False
"""Counting observations. Bounds as vLLM's metrics have them."""
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
cdef double STEP[13]
STEP[:] = [1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384]

NAMES = (                       # by HistogramName
    "vllm:time_to_first_token_seconds",
    "vllm:inter_token_latency_seconds",
    "vllm:request_time_per_output_token_seconds",
    "vllm:e2e_request_latency_seconds",
    "vllm:request_prompt_tokens",
    "vllm:request_generation_tokens",
    "vllm:request_params_max_tokens",
    "vllm:request_params_n",
    "vllm:iteration_tokens_total",
)


cdef void set_bounds(Histogram *h, const double *bounds, int n) noexcept nogil:
    memset(h, 0, sizeof(Histogram))
    h.bounds = bounds
    h.n_bounds = n


cdef void histograms_init(Histogram *all) noexcept nogil:
    set_bounds(&all[<int>HIST_TTFT], TTFT, 22)
    set_bounds(&all[<int>HIST_ITL], BETWEEN, 19)
    set_bounds(&all[<int>HIST_TPOT], BETWEEN, 19)
    set_bounds(&all[<int>HIST_E2E], LATENCY, 21)
    set_bounds(&all[<int>HIST_PROMPT], TOKENS, 22)
    set_bounds(&all[<int>HIST_GENERATION], TOKENS, 22)
    set_bounds(&all[<int>HIST_MAX_TOKENS], TOKENS, 22)
    set_bounds(&all[<int>HIST_N], PER_PROMPT, 5)
    set_bounds(&all[<int>HIST_STEP], STEP, 13)


cdef void observe(Histogram *h, double value) noexcept nogil:
    cdef int k = 0
    while k < h.n_bounds and value > h.bounds[k]:
        k += 1
    h.counts[k] += 1
    h.sum += value


cdef dict histograms_read(const Histogram *all):
    cdef int i, k
    cdef dict out = {}
    for i in range(HISTOGRAMS):
        out[NAMES[i]] = (
            [all[i].bounds[k] for k in range(all[i].n_bounds)],
            [all[i].counts[k] for k in range(all[i].n_bounds + 1)],
            all[i].sum,
        )
    return out
