/* Products with a packed weight matrix. */
#ifndef FASTFRONT_GEMM_H
#define FASTFRONT_GEMM_H

#include <stdint.h>

enum { PANEL = 32 };

/* What happens to a product before it is stored. */
enum epilogue {
    STORE = 0,
    ADD = 1,        /* added to what is in `out` */
    GATED_SILU = 2, /* of each panel the first half is the gate: out = silu(gate) * up */
    GATED_TANH = 3, /* the same with the tanh form of GELU */
};

/* A weight [outputs, inputs], cut into panels of PANEL outputs that lie one after the other as [inputs, PANEL]; the last
   one is filled up with zeros. For gated epilogues panel p holds gates 16 p..16 p + 15, then the same rows of `up`. */
struct weight {
    const void *data;
    const float *bias; /* as many numbers as columns in all panels, or NULL */
    int32_t inputs;
    int32_t outputs; /* of the product before the epilogue */
    int32_t kind;    /* enum storage */
};

/* out [rows, ...] = x [rows, inputs] times the transposed weight. `out_stride` is the distance of its rows. */
void gemm(const struct weight *weight, const float *x, int64_t rows, int64_t x_stride, float *out, int64_t out_stride,
          int epilogue);

/* A gated epilogue of its own: `raw` [rows, panels * PANEL] is a product stored with all columns of its panels, `out` [rows, outputs]. */
void apply_gates(const float *raw, int64_t rows, float *out, int64_t outputs, int epilogue);

#endif
