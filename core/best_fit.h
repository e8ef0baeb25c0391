/* The scans of best fit: C, because only so can a loop be compiled twice, for processors with 256-bit vectors and for all
   others, with the choice made when it runs. Elsewhere they are compiled once. No branch in the loops: what rules a row out
   is a sign bit, so that they are vectorised.

   Every result is the same on every machine: single precision in a fixed order, with the fused multiply-adds that are written
   here and no others (-ffp-contract=off). Processors without that instruction (x86 before 2013) call the C library for it.
   What is compared are the bits of numbers that are not negative, which are in the order of the numbers themselves. */
#ifndef BEE_BEST_FIT_H
#define BEE_BEST_FIT_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__GNUC__)
#define BEE_INLINE static inline __attribute__((always_inline))
#else
#define BEE_INLINE static inline
#endif

/* Slots of a block: 1 KiB for each kind of resource. */
#define BEE_SLOTS 128
/* What is known of the ready rows of blocks, each a row of numbers by block: no vector of shares is shorter than this, and for
   each kind from BEE_LENGTH + 1 on BEE_BOUNDS more, that no share is above and no inverse is above or below. */
enum { BEE_LENGTH, BEE_BOUNDS = 3, BEE_MOST_FREE = 0, BEE_MOST_INVERSE, BEE_LEAST_INVERSE };
#define BEE_NEVER INT32_MAX

/* What a scan asks for. A column is BEE_SLOTS shares, then as many inverse totals. */
typedef struct {
    int form;                       /* 0 pack, 1 shape */
    int n_kinds, n_idle;            /* kinds that are scored, >= 2; others, whose free room only adds its square */
    int32_t kind[16], idle[16];
    float need[16];                 /* by scored kind, in its unit */
} BeeAsk;

BEE_INLINE int32_t bee_bits(float number) { int32_t bits; memcpy(&bits, &number, 4); return bits; }
BEE_INLINE float bee_number(int32_t bits) { float number; memcpy(&number, &bits, 4); return number; }
BEE_INLINE int32_t bee_most(int32_t a, int32_t b) { return a > b ? a : b; }
BEE_INLINE int32_t bee_least(int32_t a, int32_t b) { return a < b ? a : b; }

/* The keys of a block for `pack` over a few kinds, if they are to be written, and the least. The number of kinds is a constant where this is inlined, so that the inner
   loop disappears and all is kept in registers. A smaller key is better; BEE_NEVER: does not fit. */
BEE_INLINE int32_t bee_pack_few(const int kinds, const int write, const float *const *column, const float *need,
    const int32_t *restrict out, int32_t *restrict keys)
{
    int32_t least_key = BEE_NEVER;
    for (int slot = 0; slot < BEE_SLOTS; slot++) {
        float left = fmaf(-need[0], column[0][BEE_SLOTS + slot], column[0][slot]);
        float squares = left * left;
        int32_t most = bee_bits(left), least = most;
        for (int k = 1; k < kinds; k++) {
            left = fmaf(-need[k], column[k][BEE_SLOTS + slot], column[k][slot]);
            squares = fmaf(left, left, squares);
            most = bee_most(most, bee_bits(left));
            least = bee_least(least, bee_bits(left));
        }
        /* `least` has a sign when any of them has. */
        int32_t key = (bee_bits(squares + (bee_number(most) - bee_number(least))) | (least >> 31)) & BEE_NEVER;
        if (write)
            keys[slot] = key = key | out[slot];
        least_key = bee_least(least_key, key);
    }
    return least_key;
}

/* The same for any number of kinds, and for `shape`: one over the squared cosine of the angle between what is asked for and
   what is free, 1 when they are of one shape. Kind after kind, with what is known so far of each slot in the first-level
   cache. */
BEE_INLINE void bee_pack_keys(const BeeAsk *ask, const float *const *column, int32_t *keys)
{
    float squares[BEE_SLOTS];
    int32_t most[BEE_SLOTS], least[BEE_SLOTS];
    for (int slot = 0; slot < BEE_SLOTS; slot++) {
        float left = fmaf(-ask->need[0], column[0][BEE_SLOTS + slot], column[0][slot]);
        squares[slot] = left * left;
        most[slot] = least[slot] = bee_bits(left);
    }
    for (int k = 1; k < ask->n_kinds; k++) {
        const float need = -ask->need[k], *share = column[k], *inverse = column[k] + BEE_SLOTS;
        for (int slot = 0; slot < BEE_SLOTS; slot++) {
            float left = fmaf(need, inverse[slot], share[slot]);
            squares[slot] = fmaf(left, left, squares[slot]);
            most[slot] = bee_most(most[slot], bee_bits(left));
            least[slot] = bee_least(least[slot], bee_bits(left));
        }
    }
    for (int k = 0; k < ask->n_idle; k++) {
        const float *share = column[ask->n_kinds + k];
        for (int slot = 0; slot < BEE_SLOTS; slot++)
            squares[slot] = fmaf(share[slot], share[slot], squares[slot]);
    }
    for (int slot = 0; slot < BEE_SLOTS; slot++)
        keys[slot] = (bee_bits(squares[slot] + (bee_number(most[slot]) - bee_number(least[slot]))) | (least[slot] >> 31))
            & BEE_NEVER;
}

BEE_INLINE void bee_shape_keys(const BeeAsk *ask, const float *const *column, int32_t *keys)
{
    float both[BEE_SLOTS], asks[BEE_SLOTS], rooms[BEE_SLOTS];
    memset(both, 0, sizeof both);
    memset(asks, 0, sizeof asks);
    memset(rooms, 0, sizeof rooms);
    memset(keys, 0, sizeof both);
    for (int k = 0; k < ask->n_kinds; k++) {
        const float need = ask->need[k], *share = column[k], *inverse = column[k] + BEE_SLOTS;
        for (int slot = 0; slot < BEE_SLOTS; slot++) {
            float wanted = need * inverse[slot], room = share[slot];
            both[slot] = fmaf(wanted, room, both[slot]);
            asks[slot] = fmaf(wanted, wanted, asks[slot]);
            rooms[slot] = fmaf(room, room, rooms[slot]);
            keys[slot] |= bee_bits(room - wanted) >> 31;
        }
    }
    for (int slot = 0; slot < BEE_SLOTS; slot++)
        keys[slot] = (bee_bits((asks[slot] * rooms[slot]) / (both[slot] * both[slot])) | keys[slot]) & BEE_NEVER;
}

/* The keys of a block, if they are to be written, and the least of them. */
BEE_INLINE int32_t bee_block(const int write, const BeeAsk *ask, const float *block, const int32_t *out, int32_t *keys)
{
    const float *column[16];
    int32_t scratch[BEE_SLOTS], least = BEE_NEVER;
    for (int k = 0; k < ask->n_kinds; k++)
        column[k] = block + 2 * BEE_SLOTS * (size_t)ask->kind[k];
    for (int k = 0; k < ask->n_idle; k++)
        column[ask->n_kinds + k] = block + 2 * BEE_SLOTS * (size_t)ask->idle[k];
    if (ask->form == 0 && ask->n_idle == 0) {
        if (ask->n_kinds == 2)
            return bee_pack_few(2, write, column, ask->need, out, keys);
        if (ask->n_kinds == 3)
            return bee_pack_few(3, write, column, ask->need, out, keys);
        if (ask->n_kinds == 4)
            return bee_pack_few(4, write, column, ask->need, out, keys);
    }
    if (!write)
        keys = scratch;
    if (ask->form)
        bee_shape_keys(ask, column, keys);
    else
        bee_pack_keys(ask, column, keys);
    for (int slot = 0; slot < BEE_SLOTS; slot++) {
        if (write)
            keys[slot] |= out[slot];
        least = bee_least(least, keys[slot]);
    }
    return least;
}

/* Some number that no key of a block is below, BEE_NEVER when nothing in it fits; `stride` numbers lie between the rows of
   bounds. What is left is a vector, the shares less what is asked for, and no shorter than the one less the other. The
   factors are more than all roundings come to. */
BEE_INLINE void bee_bound_keys(const BeeAsk *ask, const float *bounds, size_t stride, int n_blocks, int32_t *keys)
{
    float squares[BEE_SLOTS];
    int32_t lacks[BEE_SLOTS];
    const int32_t none = ask->form ? 0 : BEE_NEVER;     /* of shapes nothing is known but what does not fit */
    for (int from = 0; from < n_blocks; from += BEE_SLOTS) {
        const int n = n_blocks - from < BEE_SLOTS ? n_blocks - from : BEE_SLOTS;
        memset(squares, 0, sizeof squares);
        memset(lacks, 0, sizeof lacks);
        for (int k = 0; k < ask->n_kinds; k++) {
            const float *of_kind = bounds + stride * (size_t)(BEE_LENGTH + 1 + BEE_BOUNDS * ask->kind[k]) + from;
            const float *free = of_kind + stride * BEE_MOST_FREE, *most = of_kind + stride * BEE_MOST_INVERSE;
            const float *least = of_kind + stride * BEE_LEAST_INVERSE, need = ask->need[k];
            for (int b = 0; b < n; b++) {
                float asked = need * most[b];
                squares[b] = fmaf(asked, asked, squares[b]);
                lacks[b] |= bee_bits(free[b] * 1.00001f - need * least[b]) >> 31;
            }
        }
        const float *length = bounds + stride * BEE_LENGTH + from;
        for (int b = 0; b < n; b++) {
            float left = length[b] * 0.99999f - sqrtf(squares[b]) * 1.00001f;
            left = left > 0 ? left : 0;
            keys[from + b] = ((bee_bits(left * left * 0.99999f) & none) | lacks[b]) & BEE_NEVER;
        }
    }
}

/* The least key of each block that may have the least of all, with known[b] = 1, and of the others what none of their keys is
   below; `stride` floats lie between the beginnings of blocks. */
BEE_INLINE void bee_leasts(const BeeAsk *ask, const float *columns, size_t stride, const float *bounds, size_t bound_stride,
    int n_blocks, int32_t *leasts, uint8_t *known)
{
    int32_t least = BEE_NEVER;
    bee_bound_keys(ask, bounds, bound_stride, n_blocks, leasts);
    for (int b = 0; b < n_blocks; b++) {
        known[b] = leasts[b] == BEE_NEVER;
        if (leasts[b] <= least && !known[b]) {
            leasts[b] = bee_block(0, ask, columns + stride * (size_t)b, NULL, NULL);
            least = bee_least(least, leasts[b]);
            known[b] = 1;
        }
    }
}

/* The index of the first of the least numbers; n > 0. */
BEE_INLINE int bee_first(const int32_t *numbers, int n)
{
    int32_t least = BEE_NEVER;
    int i;
    for (i = 0; i < n; i++)
        least = bee_least(least, numbers[i]);
    for (i = 0; i < n - 1 && numbers[i] != least; i++)
        ;
    return i;
}

#define BEE_FORMS(name, target) \
    target static void bee_leasts_##name(const BeeAsk *ask, const float *columns, size_t stride, const float *bounds, \
        size_t bound_stride, int n_blocks, int32_t *leasts, uint8_t *known) \
    { bee_leasts(ask, columns, stride, bounds, bound_stride, n_blocks, leasts, known); } \
    target static int32_t bee_keys_##name(const BeeAsk *ask, const float *block, const int32_t *out, int32_t *keys) \
    { return bee_block(1, ask, block, out, keys); } \
    target static int bee_first_##name(const int32_t *numbers, int n) { return bee_first(numbers, n); }

BEE_FORMS(any, )
#if defined(__x86_64__) && defined(__GNUC__)
BEE_FORMS(wide, __attribute__((target("avx2,fma"))))
#define BEE_CHOOSE(name) \
    (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? bee_##name##_wide : bee_##name##_any)
#else
#define BEE_CHOOSE(name) bee_##name##_any
#endif

/* See bee_leasts. */
static inline void bee_scan_all(const BeeAsk *ask, const float *columns, size_t stride, const float *bounds,
    size_t bound_stride, int n_blocks, int32_t *leasts, uint8_t *known)
{
    BEE_CHOOSE(leasts)(ask, columns, stride, bounds, bound_stride, n_blocks, leasts, known);
}

/* All keys of a block; `out` is BEE_NEVER where a slot is ruled out, else 0. Returns the least. */
static inline int32_t bee_scan_block(const BeeAsk *ask, const float *block, const int32_t *out, int32_t *keys)
{
    return BEE_CHOOSE(keys)(ask, block, out, keys);
}

static inline int bee_first_least(const int32_t *numbers, int n)
{
    return BEE_CHOOSE(first)(numbers, n);
}

#endif
