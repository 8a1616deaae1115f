// Log-linear histogram of nanoseconds: 128 buckets for each power of two, so that a reported value is within 0.4% of the true one.
#ifndef LOAD_HISTOGRAM_H
#define LOAD_HISTOGRAM_H

#include <stdint.h>
#include <string.h>

enum {
    HISTOGRAM_BITS = 7,
    HISTOGRAM_TOP = 43, // values from 2^44 ns (5 hours) on are counted in the last bucket
    HISTOGRAM_BUCKETS = (HISTOGRAM_TOP - HISTOGRAM_BITS + 2) << HISTOGRAM_BITS,
};

// One writer. All zero is empty.
typedef struct {
    uint64_t count;
    uint64_t max;
    double sum;
    uint64_t buckets[HISTOGRAM_BUCKETS];
} histogram;

static inline unsigned histogram_bucket(uint64_t value)
{
    if (value < 1u << HISTOGRAM_BITS)
        return (unsigned)value;
    unsigned top = 63u - (unsigned)__builtin_clzll(value);
    if (top > HISTOGRAM_TOP)
        return HISTOGRAM_BUCKETS - 1;
    return ((top - HISTOGRAM_BITS + 1) << HISTOGRAM_BITS) + (unsigned)(value >> (top - HISTOGRAM_BITS)) - (1u << HISTOGRAM_BITS);
}

// The middle of a bucket.
static inline double histogram_value(unsigned bucket)
{
    if (bucket < 1u << HISTOGRAM_BITS)
        return bucket;
    unsigned shift = (bucket >> HISTOGRAM_BITS) - 1;
    uint64_t low = (uint64_t)((bucket & ((1u << HISTOGRAM_BITS) - 1)) + (1u << HISTOGRAM_BITS)) << shift;
    return (double)low + (double)(((uint64_t)1 << shift) - 1) / 2;
}

static inline void histogram_add(histogram *h, uint64_t value)
{
    h->count++;
    h->sum += (double)value;
    if (value > h->max)
        h->max = value;
    h->buckets[histogram_bucket(value)]++;
}

static inline void histogram_merge(histogram *into, const histogram *from)
{
    into->count += from->count;
    into->sum += from->sum;
    if (from->max > into->max)
        into->max = from->max;
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
        into->buckets[i] += from->buckets[i];
}

// The smallest value that `share` (0 to 1) of the values do not exceed; 0 for an empty histogram, never above the maximum.
static inline double histogram_quantile(const histogram *h, double share)
{
    uint64_t seen = 0, wanted = (uint64_t)(share * (double)h->count + 0.999999);
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        seen += h->buckets[i];
        if (seen >= wanted && seen > 0) {
            double value = histogram_value(i);
            return value < (double)h->max ? value : (double)h->max;
        }
    }
    return (double)h->max;
}

#endif
