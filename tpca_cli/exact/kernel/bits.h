// The tables that probabilities are computed with, and a faster way to read a bit. All integers.

#include "../../kernel/range_coder.h"

#define NOINLINE __attribute__((noinline))

enum { CERTAIN = (1 << 15) - 1, SURE = 20, ZERO = 1 << 15 };

INLINE i32 size_of(i32 x) { return x < 0 ? -x : x; }

static u16 squashed[2 * ZERO];  // probability by logit in 1/256, which is never beyond STEEPEST; 0 is at ZERO
static i16 stretched[4096];     // logit by probability in 1/4096

static void make_tables(void) {
    if (squashed[0]) return;
    for (i32 at = 0; at < 2 * ZERO; at++) {
        i32 x = clipped(at - ZERO, -STEEPEST, STEEPEST) + STEEPEST + 1, knot = x >> 6, between = x & 63;
        squashed[at] = (KNOTS[knot] * (64 - between) + KNOTS[knot + 1] * between + 32) >> 6;
    }
    for (i32 p = 0, x = -STEEPEST; p < 4096; p++) {
        while (x < STEEPEST && squashed[ZERO + x] < 16 * p + 8) x++;
        stretched[p] = x;
    }
}

// `code` with fewer branches.
INLINE i32 code_quick(Range *range, i32 bit, u32 p) {
    u32 middle = split(range, p);
    if (!range->writing) bit = range->point <= middle;
    u32 mask = -bit;  // no branch: half of them would be guessed wrong
    range->high ^= (range->high ^ middle) & mask;
    range->low += (middle + 1 - range->low) & ~mask;
    u32 differ = range->low ^ range->high;
    if (!range->writing && differ >> 16 && range->at < range->end) {  // nearly always: one byte or none, without a branch
        u32 done = differ >> 24 ? 0 : 8, rest = (1 << done) - 1;
        range->point = range->point << done | (*range->at & rest);
        range->at += done >> 3;
        range->low <<= done;
        range->high = range->high << done | rest;
        return bit;
    }
    refill(range);
    return bit;
}
