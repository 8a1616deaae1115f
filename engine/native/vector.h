/* Sixteen float lanes by the compiler's vector extensions: one register with AVX-512, two with AVX2. */
#ifndef FASTFRONT_VECTOR_H
#define FASTFRONT_VECTOR_H

#ifdef __AVX512F__
#include <immintrin.h>
#endif
#include <stdint.h>
#include <string.h>

#define ALWAYS static inline __attribute__((always_inline))

enum { LANES = 16 };
/* Most rows of a tile: their sums fill the registers. EACH_TILE makes a case for each number of rows, a constant in it. */
#ifdef __AVX512F__
enum { TILE = 12 };
#define EACH_TILE(CASE) \
    CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12)
#else
enum { TILE = 3 };
#define EACH_TILE(CASE) CASE(1) CASE(2) CASE(3)
#endif
/* How numbers are stored; the values are part of the interface. */
enum storage { FLOAT32 = 0, BFLOAT16 = 1 };

typedef float lanes __attribute__((vector_size(64)));
typedef int32_t int_lanes __attribute__((vector_size(64)));
typedef uint32_t bit_lanes __attribute__((vector_size(64)));
typedef uint16_t half_lanes __attribute__((vector_size(32)));
typedef uint32_t loose_bit_lanes __attribute__((vector_size(64), aligned(4), may_alias));
typedef float loose_lanes __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint16_t loose_half_lanes __attribute__((vector_size(32), aligned(2), may_alias));

ALWAYS lanes spread(float value)
{
    return value - (lanes){0};
}

ALWAYS lanes load(const float *from)
{
    return *(const loose_lanes *)from;
}

ALWAYS void store(float *to, lanes value)
{
    *(loose_lanes *)to = value;
}

ALWAYS float widen(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Nearest bfloat16, ties to even; NaN stays NaN. */
ALWAYS uint16_t narrow(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Sixteen numbers from place `index` of an array of `kind`. */
ALWAYS lanes load_stored(const void *array, size_t index, const int kind)
{
    if (kind == FLOAT32)
        return load((const float *)array + index);
#ifdef __AVX512F__
    return (lanes)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)((const uint16_t *)array + index))), 16);
#endif
    half_lanes half = *(const loose_half_lanes *)((const uint16_t *)array + index);
    return (lanes)(__builtin_convertvector(half, bit_lanes) << 16);
}

ALWAYS size_t size_of(const int kind)
{
    return kind == FLOAT32 ? 4 : 2;
}

ALWAYS lanes choose(int_lanes where, lanes yes, lanes no)
{
    return (lanes)(((int_lanes)yes & where) | ((int_lanes)no & ~where));
}

ALWAYS lanes larger(lanes a, lanes b)
{
    return choose(a > b, a, b);
}

ALWAYS float largest(lanes a)
{
    float most = a[0];
    for (int i = 1; i < LANES; i++)
        most = a[i] > most ? a[i] : most;
    return most;
}

ALWAYS float total(lanes a)
{
    float sums[LANES];
    memcpy(sums, &a, sizeof sums);
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++)
            sums[i] += sums[i + width];
    return sums[0];
}

/* e^x within 2 units in the last place (Cephes' expf); 0 below -87, and -inf gives 0. */
ALWAYS lanes exponential(lanes x)
{
    const lanes least = spread(-87.0f), most = spread(88.0f);
    int_lanes vanishes = x < least;
    x = choose(vanishes, least, x);
    x = choose(x > most, most, x);
    const lanes shifter = spread(12582912.0f); /* 1.5 * 2^23: adding it rounds to a whole number */
    lanes rounded = x * 1.44269504088896341f + shifter;
    int_lanes power = (int_lanes)rounded - (int_lanes)shifter;
    lanes whole = rounded - shifter;
    lanes rest = x - whole * 0.693359375f + whole * 2.12194440e-4f;
    lanes y = rest * 1.9875691500e-4f + 1.3981999507e-3f;
    y = y * rest + 8.3334519073e-3f;
    y = y * rest + 4.1665795894e-2f;
    y = y * rest + 1.6666665459e-1f;
    y = y * rest + 5.0000001201e-1f;
    y = y * rest * rest + rest + 1.0f;
    y = (lanes)((int_lanes)y + (power << 23));
    return choose(vanishes, spread(0.0f), y);
}

ALWAYS lanes hyperbolic_tangent(lanes x)
{
    lanes size = (lanes)((int_lanes)x & 0x7fffffff);
    lanes small = choose(size > spread(9.0f), spread(9.0f), size);
    lanes power = exponential(small * 2.0f);
    lanes value = 1.0f - 2.0f / (power + 1.0f);
    /* Near 0 the difference above cancels: x - x^3/3 + 2 x^5/15 is exact there. */
    lanes square = size * size;
    value = choose(size < spread(0.05f), size * (1.0f - square * (0.333333333f - square * 0.133333333f)), value);
    return (lanes)((int_lanes)value | ((int_lanes)x & (int32_t)0x80000000));
}

#endif
