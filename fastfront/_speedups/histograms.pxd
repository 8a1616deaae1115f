"""Histograms counted without Python: one writer (a lane), read by whoever asks for metrics.

A reader may see a sum that is one observation ahead of the counts; nothing worse, every field is one machine word.
"""
from libc.stdint cimport uint64_t


cdef enum:
    MAX_BOUNDS = 32


cdef enum HistogramName:
    HIST_TTFT                   # seconds from arrival to the first token
    HIST_ITL                    # seconds between the outputs of a choice
    HIST_TPOT                   # seconds per token after the first, per choice
    HIST_E2E                    # seconds from arrival to the end
    HIST_PROMPT                 # prompt tokens per choice
    HIST_GENERATION             # generated tokens per choice
    HIST_MAX_TOKENS             # max_tokens asked for, per choice
    HIST_N                      # choices per prompt
    HIST_STEP                   # prompt and generated tokens per engine message
    HISTOGRAMS


cdef struct Histogram:
    uint64_t counts[33]         # per bucket, the last one above all bounds
    double sum
    const double *bounds
    int n_bounds


cdef void histograms_init(Histogram *all) noexcept nogil
cdef void observe(Histogram *h, double value) noexcept nogil
cdef dict histograms_read(const Histogram *all)         # name -> (bounds, counts per bucket, sum)
