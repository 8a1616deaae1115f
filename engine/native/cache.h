/* The paged KV cache of one layer as the kernels lay it out, and what a step does with it. */
#ifndef FASTFRONT_CACHE_H
#define FASTFRONT_CACHE_H

#include <stdint.h>

/* Keys are [blocks, heads, key_dim, block_size], so that sixteen tokens' scores are sums of whole vectors; values are
   [blocks, heads, block_size, value_dim]. Behind the last block of either lie at least 15 readable numbers. */
struct cache {
    void *keys;
    void *values;
    int32_t heads;
    int32_t key_dim;
    int32_t value_dim;
    int32_t block_size;
    int32_t kind; /* enum storage */
};

/* New tokens of one sequence: rows first..first + count of the flat batch, at positions start... Its block numbers begin
   at `table` in the step's tables. */
struct piece {
    int32_t first;
    int32_t count;
    int32_t start;
    int32_t table;
};

struct scoring {
    float scale;
    float softcap;  /* 0: none */
    int32_t window; /* a token sees itself and window - 1 before it; 0: all */
};

/* Write keys and values of `rows` tokens, [rows, heads, dim] with the given distances between rows and heads, to `slots`
   (block * block_size + offset). */
void cache_store(const struct cache *cache, const int64_t *slots, int64_t rows, const float *keys, int64_t key_row,
                 int64_t key_head, const float *values, int64_t value_row, int64_t value_head);

/* Attention of the pieces' tokens to all tokens of their sequence up to themselves, which are in the cache. `query` is
   [rows, query_heads, key_dim] with the given distances; `out` is [rows, query_heads, value_dim], dense. */
void attend(const struct cache *cache, const struct piece *pieces, int32_t num_pieces, const int32_t *tables,
            const float *query, int64_t query_row, int64_t query_head, int32_t query_heads, const struct scoring *scoring,
            float *out);

#endif
