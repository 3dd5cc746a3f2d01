// The tables that probabilities are computed with. All integers.

#include "../../kernel/range_coder.h"

enum { SURE = 20, LIMIT = 255 };

static u16 squashed[2 * STEEPEST + 1];  // probability by logit in 1/256
static i16 stretched[4096];             // logit by probability in 1/4096
static u16 paces[256];                  // how far a counter moves, by how often it moved

static void make_tables(void) {
    if (paces[0]) return;
    for (i32 at = 0; at <= 2 * STEEPEST; at++) {
        i32 knot = (at + 1) >> 6, between = (at + 1) & 63;
        squashed[at] = (KNOTS[knot] * (64 - between) + KNOTS[knot + 1] * between + 32) >> 6;
    }
    for (i32 p = 0, at = 0; p < 4096; p++) {
        while (at < 2 * STEEPEST && squashed[at] < 16 * p + 8) at++;
        stretched[p] = at - STEEPEST;
    }
    for (u32 n = 0; n < 256; n++) paces[n] = 327680 / (10 * n + 16);
}

INLINE i32 size_of(i32 x) { return x < 0 ? -x : x; }

static Range range;
