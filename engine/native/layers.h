/* The halves of a decoder layer of Llama's family. */
#ifndef FASTFRONT_LAYERS_H
#define FASTFRONT_LAYERS_H

#include <stdint.h>

#include "cache.h"
#include "gemm.h"

/* What an adapter adds to a product: x times the transposed `down`, and that times the transposed `up`. Without `down.data`: nothing. */
struct delta {
    struct weight down;
    struct weight up;
};

/* The products of a layer that adapters change. `up` of GATE_UP has all columns of its panels as outputs. */
enum product_site { QKV, ATTENTION_OUT, GATE_UP, DOWN, SITES };

/* Rows first..first + count of a step, and an adapter's deltas for them: SITES for each layer. */
struct span {
    int64_t first;
    int64_t count;
    const struct delta *deltas;
};

/* One layer. Norms are RMS norms by their weights, NULL where the model has none; weights of queries, keys and values are one,
   in this order, and so are those of gate and up. */
struct layer {
    struct weight qkv;
    struct weight attention_out;
    struct weight gate_up;
    struct weight down;
    struct cache cache;
    struct scoring scoring;
    const float *attention_norm;
    const float *query_norm; /* of each head's key_dim numbers */
    const float *key_norm;
    const float *attention_post_norm; /* of what attention adds */
    const float *mlp_norm;
    const float *mlp_post_norm;
    float eps;
    int32_t query_heads;
    int32_t rotary_dim; /* the first numbers of each head are turned, i with i + rotary_dim / 2 */
    int32_t rotary_kind; /* which of the step's tables */
    int32_t activation;  /* enum epilogue, gated */
    int32_t index;       /* which layer it is */
};

/* One step. Scratch is dense: normed [rows, hidden], qkv [rows, (query heads + 2 heads) * key_dim], seen [rows, query
   heads * value_dim], middle [rows, inputs of `down`]; with spans also narrow [rows, most outputs of their `down`] and raw [rows, all
   columns of gate_up's panels]. */
struct step {
    int64_t rows;
    int64_t hidden;
    float *x; /* [rows, hidden], what goes from layer to layer */
    const float *cosines[2]; /* [rows, rotary_dim / 2] */
    const float *sines[2];
    const int64_t *slots;
    const struct piece *pieces;
    const int32_t *tables;
    float *normed;
    float *qkv;
    float *seen;
    float *middle;
    const struct span *spans;
    float *narrow;
    float *raw;
    int32_t num_spans; /* 0: no row has an adapter */
    int32_t num_pieces;
    int32_t partial; /* the result goes to `normed`, before its post norm, instead of being added to x: a sum over ranks follows */
};

void rms_norm(const float *x, int64_t rows, int64_t size, const float *weight, float eps, float *out);

/* Attention and MLP of one layer; value_dim equals key_dim. */
void attention_half(const struct layer *layer, const struct step *step);
void mlp_half(const struct layer *layer, const struct step *step);

/* After a partial half: its post norm, and the sum in `normed` added to x. */
void add_partial(const struct step *step, const float *post_norm, float eps);

/* All layers, nothing partial. */
void run_layers(const struct layer *layers, int32_t count, const struct step *step);

/* Sizes of weight, cache, scoring, layer, step, ring_writer, ring_reader, delta and span: callers compare them with their own. */
void structure_sizes(int32_t sizes[9]);

#endif
