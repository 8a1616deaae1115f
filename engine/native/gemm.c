#include "gemm.h"

#include "pool.h"
#include "vector.h"

enum { TASKS_PER_THREAD = 4, AHEAD = 2048 };

struct product {
    const struct weight *weight;
    const float *x;
    float *out;
    int64_t rows, x_stride, out_stride;
    int epilogue, panels, panels_per_task;
};

ALWAYS lanes activate(lanes gate, int epilogue)
{
    if (epilogue == GATED_SILU)
        return gate / (1.0f + exponential(-gate));
    lanes inner = gate * 0.7978845608f * (1.0f + 0.044715f * gate * gate);
    return 0.5f * gate * (1.0f + hyperbolic_tangent(inner));
}

static __attribute__((noinline)) void put_some(float *out, const float *values, int width, int adds)
{
    for (int i = 0; i < width; i++)
        out[i] = adds ? out[i] + values[i] : values[i];
}

ALWAYS void put(float *out, lanes value, int width, int adds)
{
    if (width >= LANES) {
        store(out, adds ? value + load(out) : value);
        return;
    }
    float values[LANES];
    store(values, value);
    put_some(out, values, width, adds);
}

/* `count` rows times one panel. */
ALWAYS void tile(const struct product *p, int panel, int64_t row, const int count, const int kind)
{
    const struct weight *w = p->weight;
    const float *x = p->x + row * p->x_stride;
    const int64_t stride = p->x_stride;
    const int inputs = w->inputs;
    const char *data = (const char *)w->data + (size_t)panel * inputs * PANEL * size_of(kind);
    lanes left[TILE], right[TILE];
    for (int r = 0; r < count; r++)
        left[r] = right[r] = spread(0.0f);
    for (int k = 0; k < inputs; k++) {
        __builtin_prefetch(data + (size_t)k * PANEL * size_of(kind) + AHEAD);
        if (kind == FLOAT32)
            __builtin_prefetch(data + (size_t)k * PANEL * size_of(kind) + AHEAD + 64);
        lanes a, b;
        if (kind == FLOAT32) {
            a = load((const float *)data + (size_t)k * PANEL);
            b = load((const float *)data + (size_t)k * PANEL + LANES);
        } else {
            bit_lanes both = *(const loose_bit_lanes *)((const uint32_t *)data + (size_t)k * LANES);
            a = (lanes)(both << 16);
            b = (lanes)(both & 0xffff0000);
        }
#pragma GCC unroll 16
        for (int r = 0; r < count; r++) {
            lanes factor = spread(x[r * stride + k]);
            left[r] += factor * a;
            right[r] += factor * b;
        }
    }
    const int gated = p->epilogue >= GATED_SILU;
    const int first = panel * (gated ? LANES : PANEL);
    const int width = (gated ? w->outputs / 2 : w->outputs) - first;
    for (int r = 0; r < count; r++) {
        float *out = p->out + (row + r) * p->out_stride + first;
        if (w->bias) {
            left[r] += load(w->bias + panel * PANEL);
            right[r] += load(w->bias + panel * PANEL + LANES);
        }
        if (gated) {
            put(out, activate(left[r], p->epilogue) * right[r], width, 0);
            continue;
        }
        put(out, left[r], width, p->epilogue == ADD);
        if (width > LANES)
            put(out + LANES, right[r], width - LANES, p->epilogue == ADD);
    }
}

#define CASE(n)                           \
    case n:                               \
        tile(p, panel, row, n, kind);     \
        break;

ALWAYS void all_rows(const struct product *p, int panel, const int kind)
{
    for (int64_t row = 0; row < p->rows;) {
        int64_t left = p->rows - row;
        /* Two even tiles are better than a full one and a rest. */
        int count = left <= TILE ? (int)left : left < 2 * TILE ? (int)(left + 1) / 2 : TILE;
        switch (count) {
            EACH_TILE(CASE)
        }
        row += count;
    }
}

struct gating {
    const float *raw;
    float *out;
    int64_t outputs;
    int epilogue;
};

static void gate_row(void *argument, int row)
{
    const struct gating *g = argument;
    const int64_t panels = (g->outputs + LANES - 1) / LANES;
    const float *raw = g->raw + row * panels * PANEL;
    float *out = g->out + row * g->outputs;
    for (int64_t panel = 0; panel < panels; panel++)
        put(out + panel * LANES, activate(load(raw + panel * PANEL), g->epilogue) * load(raw + panel * PANEL + LANES),
            (int)(g->outputs - panel * LANES), 0);
}

void apply_gates(const float *raw, int64_t rows, float *out, int64_t outputs, int epilogue)
{
    struct gating g = {raw, out, outputs, epilogue};
    pool_run(gate_row, &g, (int)rows);
}

static void some_panels(void *argument, int index)
{
    const struct product *p = argument;
    int end = (index + 1) * p->panels_per_task;
    for (int panel = index * p->panels_per_task; panel < end && panel < p->panels; panel++)
        if (p->weight->kind == BFLOAT16)
            all_rows(p, panel, BFLOAT16);
        else
            all_rows(p, panel, FLOAT32);
}

void gemm(const struct weight *weight, const float *x, int64_t rows, int64_t x_stride, float *out, int64_t out_stride,
          int epilogue)
{
    int panels = (weight->outputs + PANEL - 1) / PANEL;
    int share = panels / (pool_threads() * TASKS_PER_THREAD);
    struct product p = {weight, x, out, rows, x_stride, out_stride, epilogue, panels, share > 0 ? share : 1};
    pool_run(some_panels, &p, (panels + p.panels_per_task - 1) / p.panels_per_task);
}
