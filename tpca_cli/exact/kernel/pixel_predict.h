// What a sample probably is, from samples that are known: least squares over the neighbourhood, in two dimensions.
//
// Planes are coded one after another, so that of an earlier plane all neighbours are known. The weights of
// the neighbours are solved for anew every STRIP samples, from sums over the strip itself and the ones beside it;
// sums fade from row to row. A second set of weights follows the whole plane, slowly. Floats: WebAssembly defines
// every operation to the bit.

#include "mixing.h"

enum { TAPS = 18, VECTORS = 5, PADDED = 4 * VECTORS, PREDICTORS = 8, MOST_PLANES = 4 };

#define UNROLLED _Pragma("clang loop unroll(full)")

// A plane of known samples with a margin of MARGIN around it.
typedef struct {
    i32 height, width, stride;
    i32 *data;    // sample (0, 0)
    i16 *errors;  // of the prediction, likewise
} Plane;

// Products of the taps, and of the taps with the sample, which stands behind the last of them. Of row j what is
// right of j / 4 vectors is kept: the sums are symmetric.
typedef struct {
    float moments[TAPS][PADDED], count, unused[3];
} Sums;

typedef struct {
    float weights[PADDED];
} Solution;

_Static_assert(sizeof(Sums) == SUMS * sizeof(float), "as Python counts them");

static Sums overall[MOST_PLANES];   // of all images of the block so far
static Solution slow[MOST_PLANES];

static void clear_sums(Sums *sums) { __builtin_memset(sums, 0, sizeof *sums); }

static void fade(Sums *sums, float share) {
    v128_t by = wasm_f32x4_splat(share);
    UNROLLED for (i32 j = 0; j < TAPS; j++)
        UNROLLED for (i32 k = j / 4 * 4; k < PADDED; k += 4) wasm_v128_store(&sums->moments[j][k], wasm_f32x4_mul(wasm_v128_load(&sums->moments[j][k]), by));
    sums->count *= share;
}

static void add_sums(Sums *to, const Sums *from, float share) {
    v128_t by = wasm_f32x4_splat(share);
    UNROLLED for (i32 j = 0; j < TAPS; j++)
        UNROLLED for (i32 k = j / 4 * 4; k < PADDED; k += 4) {
            v128_t more = wasm_f32x4_mul(wasm_v128_load(&from->moments[j][k]), by);
            wasm_v128_store(&to->moments[j][k], wasm_f32x4_add(wasm_v128_load(&to->moments[j][k]), more));
        }
    to->count += from->count * share;
}

// `taps` has the sample behind the last, and a zero after it.
INLINE void add_sample(Sums *sums, const float *taps, float trust) {
    v128_t all[VECTORS];
    UNROLLED for (i32 k = 0; k < VECTORS; k++) all[k] = wasm_v128_load(taps + 4 * k);
    UNROLLED for (i32 j = 0; j < TAPS; j++) {
        v128_t scaled = wasm_f32x4_splat(taps[j] * trust);
        UNROLLED for (i32 k = j / 4; k < VECTORS; k++) {
            float *at = &sums->moments[j][4 * k];
            wasm_v128_store(at, wasm_f32x4_add(wasm_v128_load(at), wasm_f32x4_mul(scaled, all[k])));
        }
    }
    sums->count += trust;
}

INLINE float total(v128_t x) {
    x = wasm_f32x4_add(x, wasm_i32x4_shuffle(x, x, 2, 3, 0, 1));
    return wasm_f32x4_extract_lane(x, 0) + wasm_f32x4_extract_lane(x, 1);
}

// By Cholesky; where the sums say nothing the weights stay as they are.
static void solve(const Sums *sums, float ridge, Solution *solution) {
    float lower[TAPS][PADDED], inverse[TAPS], weights[PADDED] = {0};
    __builtin_memcpy(lower, sums->moments, sizeof lower);
    UNROLLED for (i32 j = 0; j < TAPS; j++) {
        float pivot = lower[j][j] + ridge;
        if (!(pivot > 1e-6f)) return;
        inverse[j] = 1 / __builtin_sqrtf(pivot);
        v128_t column[VECTORS], by = wasm_f32x4_splat(inverse[j]);
        UNROLLED for (i32 k = j / 4; k < VECTORS; k++) {
            column[k] = wasm_f32x4_mul(wasm_v128_load(&lower[j][4 * k]), by);
            wasm_v128_store(&lower[j][4 * k], column[k]);
        }
        UNROLLED for (i32 i = j + 1; i < TAPS; i++) {
            v128_t times = wasm_v128_load32_splat(&lower[j][i]);
            UNROLLED for (i32 k = i / 4; k < VECTORS; k++) {
                float *at = &lower[i][4 * k];
                wasm_v128_store(at, wasm_f32x4_sub(wasm_v128_load(at), wasm_f32x4_mul(times, column[k])));
            }
        }
    }
    for (i32 i = TAPS - 1; i >= 0; i--) {
        v128_t sum = wasm_f32x4_splat(0);
        for (i32 k = i / 4; k < VECTORS; k++) sum = wasm_f32x4_add(sum, wasm_f32x4_mul(wasm_v128_load(&lower[i][4 * k]), wasm_v128_load(weights + 4 * k)));
        weights[i] = (lower[i][TAPS] - total(sum)) * inverse[i];
    }
    *solution = *(Solution *)weights;
}

INLINE float predicted(const float *taps, const Solution *solution) {
    v128_t sum = wasm_f32x4_splat(0);
    for (i32 k = 0; k < VECTORS; k++) sum = wasm_f32x4_add(sum, wasm_f32x4_mul(wasm_v128_load(taps + 4 * k), wasm_v128_load(solution->weights + 4 * k)));
    return total(sum);
}

// Neighbours of a sample, as differences from the mean of the left and the upper one of their plane.
INLINE void gather(const Plane *planes, i32 which, i32 offset, float *taps, float *base) {
    const i32 *own = planes[which].data + offset;
    i32 s = planes[which].stride, n = 0, middle = own[-1] + own[-s];
    *base = middle * 0.5f;
#define TAP(value) taps[n++] = (2 * (value) - middle) * 0.5f
    TAP(own[-1]), TAP(own[-s]), TAP(own[-s - 1]), TAP(own[-s + 1]), TAP(own[-2]), TAP(own[-2 * s]), TAP(own[-2 * s + 1]), TAP(own[-s - 2]);
    if (which == 0) {
        TAP(own[-s + 2]), TAP(own[-2 * s - 1]), TAP(own[-3]), TAP(own[-3 * s]), TAP(own[-2 * s + 2]), TAP(own[-2 * s - 2]), TAP(own[-3 * s + 1]), TAP(own[-3 * s - 1]), TAP(own[-s - 3]), TAP(own[-s + 3]);
        return;
    }
    i32 earlier = least(which, 2);
    for (i32 k = 1; k <= earlier; k++) {
        const i32 *other = planes[which - k].data + offset;
        middle = other[-1] + other[-s];
        TAP(other[0]), TAP(other[-1]), TAP(other[-s]), TAP(other[1]), TAP(other[s]);
        if (earlier == 1) TAP(other[-s - 1]), TAP(other[-s + 1]), TAP(other[s - 1]), TAP(other[s + 1]), TAP(other[2]);
    }
#undef TAP
}

INLINE i32 middle_of(i32 a, i32 b, i32 c) {
    i32 low = least(a, b), high = most(a, b);
    return c >= high ? low : c <= low ? high : a + b - c;
}

// What each predictor says; how far each was off at a sample, in halves.
typedef struct {
    v128_t by[PREDICTORS / 4];
} Guesses;

typedef i32 Misses[PREDICTORS];

// Least squares near and far, and simple ones: of the sample, or of its difference from the plane before.
INLINE Guesses guess_all(const Plane *planes, i32 which, i32 offset, float local, float wide, i32 peak) {
    const i32 *own = planes[which].data + offset;
    i32 s = planes[which].stride, W = own[-1], N = own[-s], NW = own[-s - 1], NE = own[-s + 1];
    Guesses guesses;
    if (which) {
        const i32 *other = planes[which - 1].data + offset;
        i32 w = W - other[-1], n = N - other[-s], nw = NW - other[-s - 1], level = other[0];
        guesses.by[0] = wasm_f32x4_make(local, wide, level + middle_of(w, n, nw), level + (w + n) * 0.5f);
        guesses.by[1] = wasm_f32x4_make(level + w, level + n, level + w + n - nw, middle_of(W, N, NW));
    } else {
        guesses.by[0] = wasm_f32x4_make(local, wide, middle_of(W, N, NW), W + (NE - N) * 0.5f + (N - NW) * 0.25f);
        guesses.by[1] = wasm_f32x4_make(W, N, W + N - NW, (W + NE) * 0.5f);
    }
    for (i32 k = 0; k < PREDICTORS / 4; k++) guesses.by[k] = wasm_f32x4_pmax(wasm_f32x4_splat(0), wasm_f32x4_pmin(wasm_f32x4_splat(peak), guesses.by[k]));
    return guesses;
}

// Their mean, each weighted by the fourth power of how little it missed around, in this row and the one above.
INLINE float blend(const Guesses *guesses, const Misses *now, const Misses *up, i32 quantum) {
    v128_t sum = wasm_f32x4_splat(0), weight = sum;
    for (i32 k = 0; k < PREDICTORS / 4; k++) {
        v128_t near = wasm_i32x4_add(wasm_v128_load(now[-1] + 4 * k), wasm_v128_load(up[0] + 4 * k));
        v128_t far = wasm_i32x4_add(wasm_i32x4_add(wasm_v128_load(up[-1] + 4 * k), wasm_v128_load(up[1] + 4 * k)), wasm_v128_load(now[-2] + 4 * k));
        v128_t missed = wasm_f32x4_convert_i32x4(wasm_i32x4_add(wasm_i32x4_add(far, wasm_i32x4_add(near, near)), wasm_i32x4_splat(4 * quantum)));
        v128_t square = wasm_f32x4_mul(missed, missed);
        v128_t trust = wasm_f32x4_div(k ? wasm_f32x4_splat(0.5f) : wasm_f32x4_make(6, 2, 1, 1), wasm_f32x4_mul(square, square));
        sum = wasm_f32x4_add(sum, wasm_f32x4_mul(trust, guesses->by[k])), weight = wasm_f32x4_add(weight, trust);
    }
    return total(sum) / total(weight);
}

// How far the first three are from one another.
INLINE float range_of(const Guesses *guesses) {
    float a = wasm_f32x4_extract_lane(guesses->by[0], 0), b = wasm_f32x4_extract_lane(guesses->by[0], 1), c = wasm_f32x4_extract_lane(guesses->by[0], 2);
    float low = a < b ? a : b, high = a < b ? b : a;
    return (c > high ? c : high) - (c < low ? c : low);
}

// The place after it too: beyond the end of a row its last sample stands.
INLINE void note_misses(const Guesses *guesses, i32 actual, Misses *now) {
    for (i32 k = 0; k < PREDICTORS / 4; k++) {
        v128_t miss = wasm_f32x4_abs(wasm_f32x4_sub(wasm_f32x4_splat(actual), guesses->by[k]));
        miss = wasm_i32x4_trunc_sat_f32x4(wasm_f32x4_add(miss, miss));
        wasm_v128_store(now[0] + 4 * k, miss);
        wasm_v128_store(now[1] + 4 * k, miss);
    }
}
