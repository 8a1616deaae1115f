/* Attention over the paged cache with a running softmax (Milakov and Gimelshein, 2018; as in FlashAttention). */
#include "cache.h"

#include <stdlib.h>

#include "pool.h"
#include "vector.h"

/* A tile is some (token, query head) pairs of one sequence that share a key/value head, against CHUNK keys at a time. */
enum { CHUNK = 128, MOST_DIM = 512 };

struct attention {
    const struct cache *cache;
    const struct piece *pieces;
    const int32_t *tables;
    const float *query;
    int64_t query_row, query_head;
    int32_t query_heads;
    const struct scoring *scoring;
    float *out;
    int32_t (*tiles)[3]; /* piece, key/value head, first of the piece's pairs */
};

/* scores[r][0..] = query r times the sixteen keys from `offset` of a block. */
ALWAYS void dot_keys(const float *const *query, float (*scores)[CHUNK + LANES], int at, const void *keys, size_t base,
                     int offset, int dim, int block_size, const int count, const int kind)
{
    lanes sums[TILE];
    for (int r = 0; r < count; r++)
        sums[r] = spread(0.0f);
    for (int d = 0; d < dim; d++) {
        lanes key = load_stored(keys, base + (size_t)d * block_size + offset, kind);
#pragma GCC unroll 16
        for (int r = 0; r < count; r++)
            sums[r] += query[r][d] * key;
    }
    for (int r = 0; r < count; r++)
        store(scores[r] + at, sums[r]);
}

/* output r += scores r times `length` values of a block, for sixteen or thirty-two of their numbers from `d`. */
ALWAYS void add_values(float (*output)[MOST_DIM + LANES], float (*scores)[CHUNK + LANES], int at, const void *values,
                       size_t base, int length, int dim, int d, const int wide, const int count, const int kind)
{
    lanes left[TILE], right[TILE];
    for (int r = 0; r < count; r++) {
        left[r] = load(output[r] + d);
        right[r] = wide ? load(output[r] + d + LANES) : spread(0.0f);
    }
    for (int key = 0; key < length; key++) {
        lanes a = load_stored(values, base + (size_t)key * dim + d, kind);
        lanes b = wide ? load_stored(values, base + (size_t)key * dim + d + LANES, kind) : a;
#pragma GCC unroll 16
        for (int r = 0; r < count; r++) {
            lanes share = spread(scores[r][at + key]);
            left[r] += share * a;
            if (wide)
                right[r] += share * b;
        }
    }
    for (int r = 0; r < count; r++) {
        store(output[r] + d, left[r]);
        if (wide)
            store(output[r] + d + LANES, right[r]);
    }
}

/* Scores of keys begin..begin + length become shares of the softmax so far; returns by what earlier output shrinks. */
static float soften(float *scores, int length, int position, int begin, const struct scoring *scoring, float *most,
                    float *sum)
{
    int end = position + 1 - begin; /* keys from here on come after the query */
    int hidden = scoring->window ? position + 1 - scoring->window - begin : 0;
    end = end < length ? end : length;
    hidden = hidden > 0 ? hidden : 0;
    if (hidden >= end) {
        memset(scores, 0, sizeof(float) * (size_t)length);
        return 1.0f;
    }
    const lanes never = spread(-__builtin_inff());
    const int_lanes places = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    lanes top = never;
    for (int j = 0; j < length; j += LANES) {
        lanes score = load(scores + j) * scoring->scale;
        if (scoring->softcap > 0.0f)
            score = hyperbolic_tangent(score / scoring->softcap) * scoring->softcap;
        int_lanes place = places + j;
        score = choose((place < end) & (place >= hidden), score, never);
        store(scores + j, score);
        top = larger(score, top);
    }
    float old = *most, now = largest(top);
    now = now > old ? now : old;
    lanes sums = spread(0.0f);
    for (int j = 0; j < length; j += LANES) {
        lanes share = exponential(load(scores + j) - now);
        store(scores + j, share);
        sums += share;
    }
    float shrink = *sum > 0.0f ? exponential(spread(old - now))[0] : 0.0f;
    *most = now;
    *sum = *sum * shrink + total(sums);
    return shrink;
}

ALWAYS void attend_tile(const struct attention *a, int index, const int count, const int kind)
{
    const struct cache *c = a->cache;
    const struct piece *piece = &a->pieces[a->tiles[index][0]];
    const int head = a->tiles[index][1], pair = a->tiles[index][2];
    const int group = a->query_heads / c->heads, size = c->block_size, dim = c->value_dim;
    const float *query[TILE];
    int positions[TILE], first_key = 1 << 30, last_key = 0;
    float most[TILE], sums[TILE];
    float scores[TILE][CHUNK + LANES] __attribute__((aligned(64)));
    float output[TILE][MOST_DIM + LANES] __attribute__((aligned(64)));
    for (int r = 0; r < count; r++) {
        int token = (pair + r) / group, query_head = head * group + (pair + r) % group;
        query[r] = a->query + (piece->first + token) * a->query_row + query_head * a->query_head;
        positions[r] = piece->start + token;
        int oldest = a->scoring->window ? positions[r] + 1 - a->scoring->window : 0;
        first_key = oldest < first_key ? oldest : first_key;
        last_key = positions[r];
        most[r] = -__builtin_inff();
        sums[r] = 0.0f;
        memset(output[r], 0, sizeof(float) * (size_t)dim);
    }
    first_key = first_key > 0 ? first_key : 0;
    const int32_t *table = a->tables + piece->table;
    const int per_chunk = size < CHUNK ? CHUNK / size : 1;
    const int last_block = last_key / size;
    for (int block = first_key / size, part = 0; block <= last_block;) {
        /* Either several whole blocks, or a part of one that is longer than a chunk. */
        int blocks = last_block + 1 - block < per_chunk ? last_block + 1 - block : per_chunk;
        int length = size - part < CHUNK ? size - part : CHUNK, begin = block * size + part;
        for (int b = 0; b < blocks; b++) {
            size_t base = ((size_t)table[block + b] * c->heads + head) * c->key_dim * size;
            for (int j = 0; j < length; j += LANES)
                dot_keys(query, scores, b * length + j, c->keys, base, part + j, c->key_dim, size, count, kind);
        }
        for (int r = 0; r < count; r++) {
            float shrink = soften(scores[r], blocks * length, positions[r], begin, a->scoring, &most[r], &sums[r]);
            if (shrink != 1.0f)
                for (int d = 0; d < dim; d += LANES)
                    store(output[r] + d, load(output[r] + d) * shrink);
        }
        for (int b = 0; b < blocks; b++) {
            size_t base = (((size_t)table[block + b] * c->heads + head) * size + part) * dim;
            int known = last_key + 1 - (begin + b * length);
            int keys = known < length ? known : length, d = 0;
            for (; d + LANES < dim; d += 2 * LANES)
                add_values(output, scores, b * length, c->values, base, keys, dim, d, 1, count, kind);
            if (d < dim)
                add_values(output, scores, b * length, c->values, base, keys, dim, d, 0, count, kind);
        }
        part = part + length < size && per_chunk == 1 ? part + length : 0;
        block += part ? 0 : blocks;
    }
    for (int r = 0; r < count; r++) {
        int token = (pair + r) / group, query_head = head * group + (pair + r) % group;
        float *out = a->out + ((int64_t)(piece->first + token) * a->query_heads + query_head) * dim;
        float scale = 1.0f / sums[r];
        for (int d = 0; d < dim; d++)
            out[d] = output[r][d] * scale;
    }
}

#define CASE(n)                                          \
    case n:                                              \
        if (a->cache->kind == BFLOAT16)                  \
            attend_tile(a, index, n, BFLOAT16);          \
        else                                             \
            attend_tile(a, index, n, FLOAT32);           \
        break;

static void one_tile(void *argument, int index)
{
    const struct attention *a = argument;
    const struct piece *piece = &a->pieces[a->tiles[index][0]];
    int pairs = piece->count * (a->query_heads / a->cache->heads), left = pairs - a->tiles[index][2];
    switch (left < TILE ? left : TILE) {
        EACH_TILE(CASE)
    }
}

void attend(const struct cache *cache, const struct piece *pieces, int32_t num_pieces, const int32_t *tables,
            const float *query, int64_t query_row, int64_t query_head, int32_t query_heads, const struct scoring *scoring,
            float *out)
{
    int group = query_heads / cache->heads, count = 0;
    for (int p = 0; p < num_pieces; p++)
        count += (pieces[p].count * group + TILE - 1) / TILE * cache->heads;
    int32_t (*tiles)[3] = malloc(sizeof *tiles * (size_t)(count ? count : 1));
    if (tiles == NULL)
        abort();
    int next = 0;
    for (int p = 0; p < num_pieces; p++)
        for (int head = 0; head < cache->heads; head++)
            for (int pair = 0; pair < pieces[p].count * group; pair += TILE, next++) {
                tiles[next][0] = p;
                tiles[next][1] = head;
                tiles[next][2] = pair;
            }
    struct attention a = {cache, pieces, tables, query, query_row, query_head, query_heads, scoring, out, tiles};
    pool_run(one_tile, &a, count);
    free(tiles);
}

static void store_one(const struct cache *c, int64_t slot, int head, const float *key, const float *value)
{
    int64_t block = slot / c->block_size, offset = slot % c->block_size;
    size_t keys = (size_t)(block * c->heads + head) * c->key_dim * c->block_size + offset;
    size_t values = (size_t)((block * c->heads + head) * c->block_size + offset) * c->value_dim;
    for (int d = 0; d < c->key_dim; d++)
        if (c->kind == BFLOAT16)
            ((uint16_t *)c->keys)[keys + (size_t)d * c->block_size] = narrow(key[d]);
        else
            ((float *)c->keys)[keys + (size_t)d * c->block_size] = key[d];
    for (int d = 0; d < c->value_dim; d++)
        if (c->kind == BFLOAT16)
            ((uint16_t *)c->values)[values + d] = narrow(value[d]);
        else
            ((float *)c->values)[values + d] = value[d];
}

void cache_store(const struct cache *cache, const int64_t *slots, int64_t rows, const float *keys, int64_t key_row,
                 int64_t key_head, const float *values, int64_t value_row, int64_t value_head)
{
    for (int64_t row = 0; row < rows; row++)
        for (int head = 0; head < cache->heads; head++)
            store_one(cache, slots[row], head, keys + row * key_row + head * key_head,
                      values + row * value_row + head * value_head);
}
