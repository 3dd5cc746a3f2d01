// Counters and mixers: a bit is predicted by the counters of several contexts, and two mixers, chosen by different
// surroundings, learn whom of them to trust.
//
// What they begin with is shipped: the state after other folders. A counter is two bytes of it, its logit in 1/16
// (plus 128) and how often it moved; a weight is one byte, in 1/64.

#include "bits.h"

#include <wasm_simd128.h>

enum { LANES = 8 };  // inputs, and zeros up to whole vectors

typedef struct {
    u16 p, n;
} Counter;

typedef struct {
    Counter *counters, *fresh;  // as they are, and as they were before the first bit
    i32 (*weights)[LANES], (*fresh_weights)[LANES];
    i32 count;
} Learner;

static i32 fresh_model;  // the number of the model that the fresh ones are of; 0: none

INLINE void learn(Counter *counter, i32 bit, i32 limit) {
    counter->p += ((bit ? ONE - 1 : 0) - counter->p) * paces[counter->n] >> 15;
    if (counter->n < limit) counter->n++;
}

INLINE i32 mixed(v128_t logits, const i32 *weights) {
    v128_t low = wasm_i32x4_shr(wasm_v128_load(weights), 2), high = wasm_i32x4_shr(wasm_v128_load(weights + 4), 2);
    v128_t sum = wasm_i32x4_dot_i16x8(logits, wasm_i16x8_narrow_i32x4(low, high));
    sum = wasm_i32x4_add(sum, wasm_i32x4_shuffle(sum, sum, 2, 3, 0, 1));
    i32 total = wasm_i32x4_extract_lane(sum, 0) + wasm_i32x4_extract_lane(sum, 1);
    return clipped(total >> 14, -STEEPEST, STEEPEST);
}

INLINE void correct(v128_t logits, i32 *weights, i32 error) {
    v128_t by = wasm_i16x8_splat(error), half = wasm_i32x4_splat(1 << 12);
    v128_t one = wasm_i32x4_shr(wasm_i32x4_add(wasm_i32x4_extmul_low_i16x8(logits, by), half), 13);
    v128_t two = wasm_i32x4_shr(wasm_i32x4_add(wasm_i32x4_extmul_high_i16x8(logits, by), half), 13);
    wasm_v128_store(weights, wasm_i32x4_add(wasm_v128_load(weights), one));
    wasm_v128_store(weights + 4, wasm_i32x4_add(wasm_v128_load(weights + 4), two));
}

// A model with a number is unpacked once; one without (0) each time.
static void start_learning(Learner learner, const u8 *given, i32 model) {
    if (!model || model != fresh_model) {
        for (i32 k = 0; k < learner.count; k++, given += 2)
            learner.fresh[k] = (Counter){squashed[clipped((given[0] - 128) * 16, -STEEPEST, STEEPEST) + STEEPEST], given[1]};
        for (i32 k = 0; k < MIXERS * INPUTS; k++) learner.fresh_weights[k / INPUTS][k % INPUTS] = ((i8)given[k]) * (ONE / 64);
        fresh_model = model;
    }
    __builtin_memcpy(learner.counters, learner.fresh, learner.count * sizeof(Counter));
    __builtin_memcpy(learner.weights, learner.fresh_weights, MIXERS * LANES * sizeof(i32));
}

// The mirror of `start_learning`, for the program that fits what is shipped.
static void tell_learned(Learner learner, u8 *told) {
    for (i32 k = 0; k < learner.count; k++, told += 2) {
        told[0] = clipped((stretched[learner.counters[k].p >> 4] + 2056) / 16, 0, 255);
        told[1] = learner.counters[k].n;
    }
    for (i32 k = 0; k < MIXERS * INPUTS; k++) told[k] = clipped((learner.weights[k / INPUTS][k % INPUTS] + ONE / 128) >> 10, -127, 127);
}

// One bit, from `count` counters; two mixers, chosen by different surroundings, each learn from their own error.
// Weights are read in 1/16384, so that sums of products stay below 2^31.
INLINE i32 code_bit(i32 bit, Counter *const *counters, const i32 count, i32 *first, i32 *second) {
    i16 found[LANES] = {0};
    for (i32 k = 0; k < count; k++) found[k] = stretched[counters[k]->p >> 4];
    v128_t logits = wasm_i16x8_make(found[0], found[1], found[2], found[3], found[4], found[5], found[6], found[7]);
    i32 x = mixed(logits, first), y = mixed(logits, second);
    i32 p = clipped(squashed[((x + y) >> 1) + STEEPEST], SURE, ONE - SURE);
    bit = code(&range, bit, p);
    i32 target = bit ? ONE : 0;
    correct(logits, first, (target - squashed[x + STEEPEST]) >> 2);
    correct(logits, second, (target - squashed[y + STEEPEST]) >> 2);
    for (i32 k = 0; k < count; k++) learn(counters[k], bit, LIMIT);
    return bit;
}

INLINE i32 code_alone(i32 bit, Counter *counter) {
    bit = code(&range, bit, clipped(counter->p, SURE, ONE - SURE));
    learn(counter, bit, LIMIT);
    return bit;
}

INLINE i32 grade(i32 x, i32 top) {  // half octaves: 0 1 2 3 4-5 6-7 8-11 12-15 ..
    i32 digits = digits_of(x);
    return least(x < 4 ? x : 2 * digits - 2 + (x >> (digits - 2) & 1), top);
}

INLINE i32 sign_of(i32 x) { return (x > 0) - (x < 0); }
