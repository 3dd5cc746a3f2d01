// Counters and mixers: a bit is predicted by the counters of several contexts, and two sets of weights, chosen by
// different surroundings, say together whom of them to trust.
//
// What they begin with is shipped: the state after other folders. A counter is two bytes of it, its logit in 1/16
// (plus 128) and how often it moved; a weight is one byte, in 1/128.

#include "bits.h"

#include <wasm_simd128.h>

enum {
    LANES = 8,         // inputs, and zeros up to whole vectors
    QUICKEST = 16384,  // what a counter moves first, of 2^15; SLOWEST is what it moves at last
    GRADED = 1024,
};

// A probability and how far it moves next time, both of 2^15.
typedef struct {
    i16 p, pace;
} Counter;

typedef struct {
    Counter *counters, *fresh;  // as they are, and as they were before the first bit
    i16 (*weights)[LANES], (*fresh_weights)[LANES];
    i32 count;
} Learner;

static u8 grades[GRADED];  // half octaves: 0 1 2 3 4-5 6-7 8-11 12-15 ..
static i32 fresh_model;  // the number of the model that the fresh ones are of; 0: none
static i16 paces[256];   // by how often a counter moved

INLINE i32 rounded(i32 a, i32 b) { return (a * b + (1 << 14)) >> 15; }
INLINE i32 slower(i32 pace) { return most(pace - rounded(pace, pace), SLOWEST); }

INLINE void learn(Counter *counter, i32 bit) {
    counter->p += rounded((bit ? CERTAIN : 0) - counter->p, counter->pace);
    counter->pace = slower(counter->pace);
}

static void prepare(void) {
    make_tables();
    paces[0] = QUICKEST;
    for (i32 n = 1; n < 256; n++) paces[n] = slower(paces[n - 1]);
    for (i32 x = 0; x < GRADED; x++) grades[x] = x < 4 ? x : 2 * digits_of(x) - 2 + (x >> (digits_of(x) - 2) & 1);
}

// A model with a number is unpacked once; one without (0) each time. Returns 0 if there is nothing to unpack.
static i32 start_learning(Learner learner, const u8 *given, i32 size, i32 model) {
    if (!model || model != fresh_model) {
        if (!size) return 0;
        for (i32 k = 0; k < learner.count; k++, given += 2)
            learner.fresh[k] = (Counter){squashed[ZERO + (given[0] - 128) * 16] >> 1, paces[given[1]]};
        for (i32 k = 0; k < MIXERS * INPUTS; k++) learner.fresh_weights[k / INPUTS][k % INPUTS] = ((i8)given[k]) * (1 << 7);
        fresh_model = model;
    }
    __builtin_memcpy(learner.counters, learner.fresh, learner.count * sizeof(Counter));
    __builtin_memcpy(learner.weights, learner.fresh_weights, MIXERS * LANES * sizeof(i16));
    return 1;
}

// The mirror of `start_learning`, for the program that fits what is shipped.
static void tell_learned(Learner learner, u8 *told) {
    for (i32 k = 0; k < learner.count; k++, told += 2) {
        i32 moved = 0;
        while (moved < 255 && paces[moved] > learner.counters[k].pace) moved++;
        told[0] = clipped((stretched[learner.counters[k].p >> 3] + 2056) / 16, 0, 255);
        told[1] = moved;
    }
    for (i32 k = 0; k < MIXERS * INPUTS; k++) told[k] = clipped((learner.weights[k / INPUTS][k % INPUTS] + 64) >> 7, -127, 127);
}

// One bit, from `count` counters. The weights of two sets, chosen by different surroundings, are added; both learn
// from the error, divided by 2^CALM. Weights are in 1/16384, logits in 1/256.
INLINE i32 code_bit(Range *range, i32 bit, Counter *const *counters, const i32 count, i16 *first, i16 *second) {
    const i32 pair = second != 0;
    v128_t low = wasm_v128_load32_zero(counters[0]), high = wasm_i32x4_splat(0), logits = wasm_i32x4_splat(0);
#define GATHER(k) if (count > k) { \
        if (k && k < 4) low = wasm_v128_load32_lane(counters[k], low, k & 3); \
        if (k >= 4) high = wasm_v128_load32_lane(counters[k], high, k & 3); \
        logits = wasm_v128_load16_lane(stretched + (counters[k]->p >> 3), logits, k); \
    }
    GATHER(0) GATHER(1) GATHER(2) GATHER(3) GATHER(4) GATHER(5) GATHER(6) GATHER(7)
#undef GATHER
    v128_t one = wasm_v128_load(first), two = pair ? wasm_v128_load(second) : one;
    v128_t sum = wasm_i32x4_dot_i16x8(logits, wasm_i16x8_add_sat(one, two));
    if (count > 4) sum = wasm_i32x4_add(sum, wasm_i32x4_shuffle(sum, sum, 2, 3, 0, 1));
    sum = wasm_i32x4_add(sum, wasm_i32x4_shuffle(sum, sum, 1, 0, 3, 2));
    i32 p = squashed[ZERO + (wasm_i32x4_extract_lane(sum, 0) >> 14)];  // 8 logits by weights up to 2 stay within it
    bit = code_quick(range, bit, p);
    v128_t change = wasm_i16x8_q15mulr_sat(logits, wasm_i16x8_splat(((bit << 16) - p) >> CALM));
    wasm_v128_store(first, wasm_i16x8_add_sat(one, change));
    if (pair) wasm_v128_store(second, wasm_i16x8_add_sat(two, change));
    v128_t chances = wasm_i16x8_narrow_i32x4(wasm_v128_and(low, wasm_i32x4_splat(0xffff)), wasm_v128_and(high, wasm_i32x4_splat(0xffff)));
    v128_t pace = wasm_i16x8_narrow_i32x4(wasm_i32x4_shr(low, 16), wasm_i32x4_shr(high, 16));
    v128_t gap = wasm_i16x8_sub(wasm_i16x8_splat(-bit & CERTAIN), chances);
    chances = wasm_i16x8_add(chances, wasm_i16x8_q15mulr_sat(gap, pace));
    pace = wasm_i16x8_max(wasm_i16x8_sub(pace, wasm_i16x8_q15mulr_sat(pace, pace)), wasm_i16x8_splat(SLOWEST));
    low = wasm_i16x8_shuffle(chances, pace, 0, 8, 1, 9, 2, 10, 3, 11);
    high = wasm_i16x8_shuffle(chances, pace, 4, 12, 5, 13, 6, 14, 7, 15);
#define SCATTER(k) if (count > k) wasm_v128_store32_lane(counters[k], k < 4 ? low : high, k & 3);
    SCATTER(0) SCATTER(1) SCATTER(2) SCATTER(3) SCATTER(4) SCATTER(5) SCATTER(6) SCATTER(7)
#undef SCATTER
    return bit;
}

INLINE i32 code_alone(Range *range, i32 bit, Counter *counter) {
    bit = code_quick(range, bit, clipped(2 * counter->p, SURE, ONE - SURE));
    learn(counter, bit);
    return bit;
}

INLINE i32 grade(i32 x, i32 top) { return least(grades[least(x, GRADED - 1)], top); }

INLINE i32 sign_of(i32 x) { return (x > 0) - (x < 0); }
