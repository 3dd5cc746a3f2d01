// What a sample probably is, from samples that are known: least squares over the neighbourhood, in two dimensions.
//
// Planes are coded one after another, so that of an earlier plane all neighbours are known. The weights of
// the neighbours are solved for anew every STRIP samples, from sums over the strip itself and the ones beside it;
// sums fade from row to row. A second set of weights follows the whole plane, slowly. Floats: WebAssembly defines
// every operation to the bit.

#include "mixing.h"

enum { VECTORS = MOST_TAPS / 4, PREDICTORS = 4, MOST_PLANES = 4 };

// A plane of known samples with a margin of MARGIN around it.
typedef struct {
    i32 height, width, stride;
    i32 *data;    // sample (0, 0)
    i16 *errors;  // of the prediction, likewise
} Plane;

// Products of the taps, and of the taps with the sample, which stands behind the last of them. Of row j what is
// right of j / 4 vectors is kept: the sums are symmetric.
typedef struct {
    float moments[MOST_TAPS][MOST_TAPS], count, unused[3];
} Sums;

typedef struct {
    float weights[MOST_TAPS];
} Solution;

static Sums overall[MOST_PLANES];   // of all images of the block so far
static Solution slow[MOST_PLANES];

static void clear_sums(Sums *sums) { __builtin_memset(sums, 0, sizeof *sums); }

INLINE void fade(Sums *sums, float share) {
    v128_t by = wasm_f32x4_splat(share);
    for (i32 j = 0; j < MOST_TAPS; j++)
        for (i32 k = j / 4 * 4; k < MOST_TAPS; k += 4) wasm_v128_store(&sums->moments[j][k], wasm_f32x4_mul(wasm_v128_load(&sums->moments[j][k]), by));
    sums->count *= share;
}

INLINE void add_sums(Sums *to, const Sums *from, float share) {
    v128_t by = wasm_f32x4_splat(share);
    for (i32 j = 0; j < MOST_TAPS; j++)
        for (i32 k = j / 4 * 4; k < MOST_TAPS; k += 4) {
            v128_t more = wasm_f32x4_mul(wasm_v128_load(&from->moments[j][k]), by);
            wasm_v128_store(&to->moments[j][k], wasm_f32x4_add(wasm_v128_load(&to->moments[j][k]), more));
        }
    to->count += from->count * share;
}

// `taps` has the sample behind the last, and zeros after it.
INLINE void add_sample(Sums *sums, const float *taps, i32 n, float trust) {
    v128_t all[VECTORS];
    for (i32 k = 0; k < VECTORS; k++) all[k] = wasm_v128_load(taps + 4 * k);
    for (i32 j = 0; j < n; j++) {
        v128_t scaled = wasm_f32x4_splat(taps[j] * trust);
        for (i32 k = j / 4; k < VECTORS; k++) {
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
static void solve(const Sums *sums, i32 n, float ridge, Solution *solution) {
    float lower[MOST_TAPS][MOST_TAPS], inverse[MOST_TAPS], weights[MOST_TAPS] = {0};
    __builtin_memcpy(lower, sums->moments, sizeof lower);
    for (i32 j = 0; j < n; j++) {
        float pivot = lower[j][j] + ridge;
        if (!(pivot > 1e-6f)) return;
        inverse[j] = 1 / __builtin_sqrtf(pivot);
        v128_t column[VECTORS], by = wasm_f32x4_splat(inverse[j]);
        for (i32 k = j / 4; k < VECTORS; k++) {
            column[k] = wasm_f32x4_mul(wasm_v128_load(&lower[j][4 * k]), by);
            wasm_v128_store(&lower[j][4 * k], column[k]);
        }
        for (i32 i = j + 1; i < n; i++) {
            v128_t times = wasm_f32x4_splat(lower[j][i]);
            for (i32 k = i / 4; k < VECTORS; k++) {
                float *at = &lower[i][4 * k];
                wasm_v128_store(at, wasm_f32x4_sub(wasm_v128_load(at), wasm_f32x4_mul(times, column[k])));
            }
        }
    }
    for (i32 i = n - 1; i >= 0; i--) {
        v128_t sum = wasm_f32x4_splat(0);
        for (i32 k = i / 4; k < VECTORS; k++) sum = wasm_f32x4_add(sum, wasm_f32x4_mul(wasm_v128_load(&lower[i][4 * k]), wasm_v128_load(weights + 4 * k)));
        weights[i] = (lower[i][n] - total(sum)) * inverse[i];
    }
    *solution = *(Solution *)weights;
}

INLINE float predicted(const float *taps, const Solution *solution) {
    v128_t sum = wasm_f32x4_splat(0);
    for (i32 k = 0; k < VECTORS; k++) sum = wasm_f32x4_add(sum, wasm_f32x4_mul(wasm_v128_load(taps + 4 * k), wasm_v128_load(solution->weights + 4 * k)));
    return total(sum);
}

INLINE i32 taps_of(i32 which) { return which == 1 ? 16 : 18; }

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
        if (earlier == 1) TAP(other[-s - 1]), TAP(other[-s + 1]), TAP(other[s - 1]);
    }
#undef TAP
}
