#include "layers.h"

#include <math.h>

#include "pool.h"
#include "ring.h"
#include "vector.h"

enum { ROWS_PER_TASK = 8 };

struct rows_task {
    int64_t rows, share;
    const struct layer *layer;
    const struct step *step;
    const float *x, *weight;
    float *out;
    int64_t size;
    float eps;
    int adds;
};

static void run_rows(pool_task task, struct rows_task *t)
{
    int64_t share = t->rows / (4 * pool_threads());
    t->share = share > ROWS_PER_TASK ? share : ROWS_PER_TASK;
    pool_run(task, t, (int)((t->rows + t->share - 1) / t->share));
}

static void norm_row(const float *x, int64_t size, const float *weight, float eps, float *out, int adds)
{
    lanes squares = spread(0.0f);
    int64_t i = 0;
    for (; i + LANES <= size; i += LANES)
        squares += load(x + i) * load(x + i);
    float sum = total(squares);
    for (; i < size; i++)
        sum += x[i] * x[i];
    float scale = 1.0f / sqrtf(sum / (float)size + eps);
    for (i = 0; i < size; i++)
        out[i] = adds ? out[i] + x[i] * scale * weight[i] : x[i] * scale * weight[i];
}

static void norm_rows(void *argument, int index)
{
    const struct rows_task *t = argument;
    int64_t end = (index + 1) * t->share;
    for (int64_t row = index * t->share; row < end && row < t->rows; row++)
        norm_row(t->x + row * t->size, t->size, t->weight, t->eps, t->out + row * t->size, t->adds);
}

void rms_norm(const float *x, int64_t rows, int64_t size, const float *weight, float eps, float *out)
{
    struct rows_task task = {.rows = rows, .x = x, .weight = weight, .out = out, .size = size, .eps = eps};
    run_rows(norm_rows, &task);
}

void add_partial(const struct step *step, const float *post_norm, float eps)
{
    int64_t numbers = step->rows * step->hidden;
    if (post_norm == NULL) {
        for (int64_t i = 0; i < numbers; i++)
            step->x[i] += step->normed[i];
        return;
    }
    struct rows_task task = {.rows = step->rows, .x = step->normed, .weight = post_norm, .out = step->x,
                             .size = step->hidden, .eps = eps, .adds = 1};
    run_rows(norm_rows, &task);
}

static void turn(float *head, const float *cosines, const float *sines, int half)
{
    for (int i = 0; i < half; i++) {
        float a = head[i], b = head[i + half];
        head[i] = a * cosines[i] - b * sines[i];
        head[i + half] = b * cosines[i] + a * sines[i];
    }
}

/* Head norms and rotation in place; keys and values into the cache. */
static void turn_rows(void *argument, int index)
{
    const struct rows_task *t = argument;
    const struct layer *layer = t->layer;
    const struct step *step = t->step;
    const int dim = layer->cache.key_dim, heads = layer->cache.heads, half = layer->rotary_dim / 2;
    const int turned = layer->query_heads + heads;
    const int64_t width = (int64_t)(turned + heads) * dim;
    int64_t begin = index * t->share, end = begin + t->share < t->rows ? begin + t->share : t->rows;
    for (int64_t row = begin; row < end; row++) {
        const float *cosines = step->cosines[layer->rotary_kind] + row * half;
        const float *sines = step->sines[layer->rotary_kind] + row * half;
        for (int h = 0; h < turned; h++) {
            float *head = step->qkv + row * width + h * dim;
            const float *norm = h < layer->query_heads ? layer->query_norm : layer->key_norm;
            if (norm)
                norm_row(head, dim, norm, layer->eps, head, 0);
            turn(head, cosines, sines, half);
        }
    }
    const float *keys = step->qkv + begin * width + (int64_t)layer->query_heads * dim;
    cache_store(&layer->cache, step->slots + begin, end - begin, keys, width, dim, keys + (int64_t)heads * dim, width, dim);
}

/* `out` += what the spans' adapters make of `in` at one place of the layer. */
static void add_deltas(const struct layer *layer, const struct step *step, enum product_site site, const float *in, int64_t in_stride,
                       float *out, int64_t out_stride)
{
    for (int32_t i = 0; i < step->num_spans; i++) {
        const struct span *span = &step->spans[i];
        const struct delta *delta = &span->deltas[layer->index * SITES + site];
        if (delta->down.data == NULL)
            continue;
        int64_t rank = delta->down.outputs;
        gemm(&delta->down, in + span->first * in_stride, span->count, in_stride, step->narrow, rank, STORE);
        gemm(&delta->up, step->narrow, span->count, rank, out + span->first * out_stride, out_stride, ADD);
    }
}

static void finish(const struct layer *layer, const struct step *step, enum product_site site, const float *in,
                   const float *post_norm)
{
    const struct weight *weight = site == DOWN ? &layer->down : &layer->attention_out;
    const float eps = layer->eps;
    if (post_norm == NULL && !step->partial) {
        gemm(weight, in, step->rows, weight->inputs, step->x, step->hidden, ADD);
        add_deltas(layer, step, site, in, weight->inputs, step->x, step->hidden);
        return;
    }
    gemm(weight, in, step->rows, weight->inputs, step->normed, step->hidden, STORE);
    add_deltas(layer, step, site, in, weight->inputs, step->normed, step->hidden);
    if (!step->partial)
        add_partial(step, post_norm, eps);
}

void attention_half(const struct layer *layer, const struct step *step)
{
    const int dim = layer->cache.key_dim;
    const int64_t width = (int64_t)(layer->query_heads + 2 * layer->cache.heads) * dim;
    rms_norm(step->x, step->rows, step->hidden, layer->attention_norm, layer->eps, step->normed);
    gemm(&layer->qkv, step->normed, step->rows, step->hidden, step->qkv, width, STORE);
    add_deltas(layer, step, QKV, step->normed, step->hidden, step->qkv, width);
    struct rows_task task = {.rows = step->rows, .layer = layer, .step = step};
    run_rows(turn_rows, &task);
    attend(&layer->cache, step->pieces, step->num_pieces, step->tables, step->qkv, width, dim, layer->query_heads,
           &layer->scoring, step->seen);
    finish(layer, step, ATTENTION_OUT, step->seen, layer->attention_post_norm);
}

/* Gate and up with deltas: those come before the activation, so that the product is stored without it first. */
static void gate_with_deltas(const struct layer *layer, const struct step *step)
{
    struct weight all = layer->gate_up;
    all.outputs = (all.outputs + PANEL - 1) / PANEL * PANEL;
    gemm(&all, step->normed, step->rows, step->hidden, step->raw, all.outputs, STORE);
    add_deltas(layer, step, GATE_UP, step->normed, step->hidden, step->raw, all.outputs);
    apply_gates(step->raw, step->rows, step->middle, layer->down.inputs, layer->activation);
}

void mlp_half(const struct layer *layer, const struct step *step)
{
    rms_norm(step->x, step->rows, step->hidden, layer->mlp_norm, layer->eps, step->normed);
    if (step->num_spans > 0)
        gate_with_deltas(layer, step);
    else
        gemm(&layer->gate_up, step->normed, step->rows, step->hidden, step->middle, layer->down.inputs, layer->activation);
    finish(layer, step, DOWN, step->middle, layer->mlp_post_norm);
}

void run_layers(const struct layer *layers, int32_t count, const struct step *step)
{
    for (int32_t i = 0; i < count; i++) {
        attention_half(&layers[i], step);
        mlp_half(&layers[i], step);
    }
}

void structure_sizes(int32_t sizes[9])
{
    sizes[0] = sizeof(struct weight);
    sizes[1] = sizeof(struct cache);
    sizes[2] = sizeof(struct scoring);
    sizes[3] = sizeof(struct layer);
    sizes[4] = sizeof(struct step);
    sizes[5] = sizeof(struct ring_writer);
    sizes[6] = sizeof(struct ring_reader);
    sizes[7] = sizeof(struct delta);
    sizes[8] = sizeof(struct span);
}
