// Samples of pictures with few values, flat areas and sharp edges: is one the same as a neighbour?
//
// Three neighbours are asked for in turn, the left one, the upper one and the one after it, each unless it has the
// value of one before. Contexts are the pattern of equal values around, from near to far.

#include "pixel_predict.h"

enum { QUESTIONS = 3, FLAT_INPUTS = 6, FLAT_MIXERS = 124 * SLOT, FLAT = 2 };

typedef Counter FlatTables[QUESTIONS][FLAT_INPUTS][FLAT_CONTEXTS];

// Whether of a plane at least one in FLAT samples has the value of the one before it.
static i32 is_flat(const Plane *plane) {
    i64 equal = 0;
    for (i32 y = 0; y < plane->height; y++) for (i32 x = 1; x < plane->width; x++) equal += plane->data[y * plane->stride + x] == plane->data[y * plane->stride + x - 1];
    return equal * FLAT >= (i64)plane->height * plane->width;
}

INLINE i32 small(i32 difference, i32 top) { return clipped(difference, -top, top) + top; }

// What is around a sample, as one context for each input.
INLINE void look_around(const Plane *planes, i32 which, i32 offset, i32 fine, i32 busy, i32 *contexts) {
    const i32 *own = planes[which].data + offset;
    i32 s = planes[which].stride, W = own[-1], N = own[-s], NW = own[-s - 1], NE = own[-s + 1], WW = own[-2], NN = own[-2 * s];
    i32 NWW = own[-s - 2], NEE = own[-s + 2], NNW = own[-2 * s - 1], NNE = own[-2 * s + 1];
    i32 near = (N == W) | (NW == W) << 1 | (NE == W) << 2 | (NN == W) << 3 | (WW == W) << 4 | (NNE == W) << 5 | (NEE == W) << 6 | (NWW == W) << 7;
    contexts[0] = near | (NE == N) << 8 | (NW == N) << 9 | (NN == N) << 10 | (NEE == NE) << 11;
    contexts[1] = (((small(N - W, 2) * 5 + small(NW - W, 2)) * 5 + small(NE - N, 2)) * 3 + small(NN - N, 1)) * 3 + small(WW - W, 1);
    contexts[2] = (small(fine - 4 * W, 8) * 17 + small(fine - 4 * N, 8)) * 8 + grade(busy, 7);
    contexts[3] = (NW == N) | (NE == N) << 1 | (NEE == NE) << 2 | (NNW == NN) << 3 | (NNE == NN) << 4 | (WW == W) << 5 | (NWW == NW) << 6 | (NW == W) << 7 | (own[-3] == WW) << 8 | (NN == N) << 9 | (own[-s + 3] == NEE) << 10 | (own[-4] == own[-3]) << 11;
    contexts[4] = least(W, 511) * 8 + (N == W) + 2 * (NE == N) + 4 * (NW == W);
    contexts[5] = near | (NNW == W) << 8 | (own[-3 * s] == W) << 9 | (own[-3] == W) << 10 | (own[-2 * s + 2] == W) << 11;
    if (which) {
        const i32 *other = planes[which - 1].data + offset;
        contexts[4] = (other[0] == other[-1]) | (other[0] == other[-s]) << 1 | (other[0] == other[-s + 1]) << 2 | (other[1] == other[0]) << 3 | (other[s] == other[0]) << 4 | (near & 15) << 5 | (which > 1 ? planes[which - 2].data[offset] == planes[which - 2].data[offset - 1] : 0) << 9;
    }
}

// Whether a sample is one of the three, or near enough; it is then what `*actual` becomes.
INLINE i32 code_flat(Range *range, i32 *actual, const Plane *planes, i32 which, i32 offset, i32 fine, i32 busy, i32 tolerance, FlatTables *tables, i16 (*weights)[LANES]) {
    i32 contexts[FLAT_INPUTS], s = planes[which].stride;
    const i32 *own = planes[which].data + offset;
    i32 asked[QUESTIONS] = {own[-1], own[-s], own[-s + 1]};
    look_around(planes, which, offset, fine, busy, contexts);
    for (i32 question = 0; question < QUESTIONS; question++) {
        if ((question && asked[question] == asked[0]) || (question > 1 && asked[2] == asked[1])) continue;
        Counter *counters[FLAT_INPUTS];
        for (i32 k = 0; k < FLAT_INPUTS; k++) counters[k] = &(*tables)[question][k][contexts[k]];
        i16 *first = weights[question * 48 + grade(busy, 15)], *second = weights[question * 48 + 16 + (contexts[0] & 15)];
        if (code_bit(range, size_of(*actual - asked[question]) <= tolerance, counters, FLAT_INPUTS, first, second)) {
            *actual = asked[question];
            return 1;
        }
    }
    return 0;
}
