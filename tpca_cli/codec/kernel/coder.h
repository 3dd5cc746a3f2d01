// The probabilities of bits, learned while coding.
//
// A bit is predicted by a table of the format and by counters that saw the same surroundings before in this
// block; a mixer adds up their opinions in the logistic domain and learns whom to trust. All integers.

#include "job.h"
#include "../../kernel/range_coder.h"

#include <wasm_simd128.h>

// Where an address is taken anew: what lies beside it is then reached by an offset, without a sum of its own.
#define FROM(pointer) __asm__("" : "+r"(pointer))
// An arm of a branch that the processor shall guess, not wait for.
#define GUESSED __asm__ volatile("")
// What is busiest must not share registers with what is not.
#define APART static __attribute__((noinline))

enum { HALF = ONE / 2, SURE = 24, PATIENCE = 120, STEADY = 500 };

static u16 squashed[2 * STEEPEST + 1];  // probability by logit in 1/256
static u16 careful[2 * STEEPEST + 1];   // the same, never too sure
static i16 stretched[4096];             // logit by probability in 1/4096
static u32 paces[STEADY + 1];           // how far a counter moves, by how often it moved

static void make_tables(void) {
    for (i32 at = 0; at <= 2 * STEEPEST; at++) {
        i32 knot = (at + 1) >> 6, between = (at + 1) & 63;
        i32 p = (KNOTS[knot] * (64 - between) + KNOTS[knot + 1] * between + 32) >> 6;
        squashed[at] = p;
        careful[at] = p < SURE ? SURE : p > ONE - SURE ? ONE - SURE : p;
    }
    for (i32 p = 0, at = 0; p < 4096; p++) {
        while (at < 2 * STEEPEST && squashed[at] < 16 * p + 8) at++;
        stretched[p] = at - STEEPEST;
    }
    for (u32 n = 0; n <= STEADY; n++) paces[n] = 655360 / (10 * n + 16);
}

INLINE i32 stretch(i32 p) { return stretched[p >> 4]; }

INLINE i32 place_of(i64 logit) {
    return (i32)(logit > STEEPEST ? STEEPEST : logit < -STEEPEST ? -STEEPEST : logit) + STEEPEST;
}

// A probability in the low half, and above it how often it moved.
typedef u32 Counter;

INLINE i32 chance(Counter counter) { return counter & (ONE - 1); }

INLINE void learn(Counter *counter, i32 bit, u32 limit) {
    u32 now = *counter, count = now >> 16;
    i32 away = (bit ? ONE - 1 : 0) - chance(now);
    *counter = now + (i32)((i64)away * paces[count] >> 16) + ((count < limit) << 16);
}

// How likely a bit is, by one logit of the format and the counters; weights[0] belongs to the former.
INLINE i32 mixed(i32 *logits, i32 given, Counter *const *counters, i32 count, const i32 *weights) {
    i64 sum = (i64)given * weights[0];
    logits[0] = given;
    for (i32 k = 1; k <= count; k++) {
        logits[k] = stretch(chance(*counters[k - 1]));
        sum += (i64)logits[k] * weights[k];
    }
    u64 at = (sum >> 16) + STEEPEST;
    if (at > 2 * STEEPEST) {  // rarely
        GUESSED;
        at = (i64)at < 0 ? 0 : 2 * STEEPEST;
    }
    return careful[at];
}

// How fast weights learn: errors are divided by 2 to this power.
INLINE i32 slowness(i32 rich) { return rich ? 14 : 15; }

// What a bit teaches the weights and the counters.
INLINE void settle(i32 bit, i32 p, const i32 *logits, Counter *const *counters, i32 count, i32 *weights, i32 slow) {
    i32 error = (bit ? ONE : 0) - p, half = 1 << (slow - 1), k = 0;
    if (count == 4) weights[k] += (logits[k] * error + half) >> slow, k++;
    for (; k + 3 <= count; k += 4) {
        v128_t products = wasm_i32x4_mul(wasm_v128_load(logits + k), wasm_i32x4_splat(error));
        products = wasm_i32x4_shr(wasm_i32x4_add(products, wasm_i32x4_splat(half)), slow);
        wasm_v128_store(weights + k, wasm_i32x4_add(wasm_v128_load(weights + k), products));
    }
    for (; k <= count; k++) weights[k] += (logits[k] * error + half) >> slow;
    for (k = 0; k < count; k++) learn(counters[k], bit, PATIENCE);
}

INLINE i32 code_mixed(Range *range, i32 bit, i32 given, Counter *const *counters, i32 count, i32 *weights, i32 slow) {
    i32 logits[8], p = mixed(logits, given, counters, count, weights);
    u32 middle = split(range, p);
    if (range->writing ? bit : range->point <= middle) {
        GUESSED;
        range->high = middle;
        settle(1, p, logits, counters, count, weights, slow);
        bit = 1;
    } else {
        range->low = middle + 1;
        settle(0, p, logits, counters, count, weights, slow);
        bit = 0;
    }
    refill(range);
    return bit;
}
