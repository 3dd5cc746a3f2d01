// What a sample probably is, from samples that are known: least squares over the neighbourhood, in two dimensions.
//
// Planes are coded one after another, so that of an earlier plane all neighbours are known. The weights of
// the neighbours are solved for anew every STRIP samples, from sums over the strip itself and the ones beside it;
// sums fade from row to row. A second set of weights follows the whole plane, slowly. Doubles: WebAssembly defines
// every operation to the bit.

#include "mixing.h"

enum { PACKED = MOST_TAPS * MOST_TAPS, PREDICTORS = 4, MOST_PLANES = 4 };

// A plane of known samples with a margin of MARGIN around it.
typedef struct {
    i32 height, width, stride;
    i32 *data;    // sample (0, 0)
    i16 *errors;  // of the prediction, likewise
} Plane;

typedef struct {
    double moments[PACKED], against[MOST_TAPS], count;
} Sums;

typedef struct {
    double weights[MOST_TAPS];
} Solution;

static Sums overall[MOST_PLANES];   // of all images of the block so far
static Solution slow[MOST_PLANES];

static void clear_sums(Sums *sums) { __builtin_memset(sums, 0, sizeof *sums); }

INLINE void fade(Sums *sums, double share) {
    for (i32 k = 0; k < PACKED; k++) sums->moments[k] *= share;
    for (i32 k = 0; k < MOST_TAPS; k++) sums->against[k] *= share;
    sums->count *= share;
}

INLINE void add_sums(Sums *to, const Sums *from, double share) {
    for (i32 k = 0; k < PACKED; k++) to->moments[k] += from->moments[k] * share;
    for (i32 k = 0; k < MOST_TAPS; k++) to->against[k] += from->against[k] * share;
    to->count += from->count * share;
}

INLINE void add_sample(Sums *sums, const double *taps, i32 n, double target, double trust) {
    for (i32 i = 0; i < n; i++) {
        double scaled = taps[i] * trust;
        double *row = sums->moments + i * MOST_TAPS;
        for (i32 j = 0; j <= i; j++) row[j] += scaled * taps[j];
        sums->against[i] += scaled * target;
    }
    sums->count += trust;
}

// By Cholesky; where the sums say nothing the weights stay as they are.
static void solve(const Sums *sums, i32 n, double ridge, Solution *solution) {
    double lower[MOST_TAPS][MOST_TAPS], right[MOST_TAPS], inverse[MOST_TAPS];
    for (i32 i = 0; i < n; i++) {
        for (i32 j = 0; j <= i; j++) {
            double sum = sums->moments[i * MOST_TAPS + j] + (i == j ? ridge : 0);
            for (i32 k = 0; k < j; k++) sum -= lower[i][k] * lower[j][k];
            if (i == j) {
                if (!(sum > 1e-9)) return;
                lower[i][i] = __builtin_sqrt(sum), inverse[i] = 1 / lower[i][i];
            } else lower[i][j] = sum * inverse[j];
        }
        double sum = sums->against[i];
        for (i32 k = 0; k < i; k++) sum -= lower[i][k] * right[k];
        right[i] = sum * inverse[i];
    }
    for (i32 i = n - 1; i >= 0; i--) {
        double sum = right[i];
        for (i32 k = i + 1; k < n; k++) sum -= lower[k][i] * solution->weights[k];
        solution->weights[i] = sum * inverse[i];
    }
}

// Neighbours of a sample, as differences from the mean of the left and the upper one of their plane.
static i32 gather(const Plane *planes, i32 which, i32 offset, double *taps, double *base) {
    const i32 *own = planes[which].data + offset;
    i32 s = planes[which].stride, n = 0;
    double middle = (own[-1] + own[-s]) * 0.5;
    *base = middle;
#define TAP(value) taps[n++] = (value) - middle
    TAP(own[-1]), TAP(own[-s]), TAP(own[-s - 1]), TAP(own[-s + 1]), TAP(own[-2]), TAP(own[-2 * s]), TAP(own[-2 * s + 1]), TAP(own[-s - 2]);
    if (which == 0) {
        TAP(own[-s + 2]), TAP(own[-2 * s - 1]), TAP(own[-3]), TAP(own[-3 * s]), TAP(own[-2 * s + 2]), TAP(own[-2 * s - 2]), TAP(own[-3 * s + 1]), TAP(own[-3 * s - 1]), TAP(own[-s - 3]), TAP(own[-s + 3]);
        return n;
    }
    i32 earlier = least(which, 2);
    for (i32 k = 1; k <= earlier; k++) {
        const i32 *other = planes[which - k].data + offset;
        middle = (other[-1] + other[-s]) * 0.5;
        TAP(other[0]), TAP(other[-1]), TAP(other[-s]), TAP(other[1]), TAP(other[s]);
        if (earlier == 1) TAP(other[-s - 1]), TAP(other[-s + 1]), TAP(other[s - 1]);
    }
    return n;
}
