// A sample's difference from what was predicted, coded bit by bit.

#include "pixel_predict.h"

enum { EXPONENTS = 16 };

typedef Counter Slot[SLOT];

static struct {
    Slot slots[3][INPUTS][CONTEXTS];
    Counter signs[3][3][128];
    Counter same[3][256];
    Counter digits[3][18][18];
} tables __attribute__((aligned(64)));  // a slot is two lines of the cache
_Static_assert(sizeof tables == PIXEL_COUNTERS * sizeof(Counter), "as Python counts them");
static i32 weights[MIXERS][LANES] __attribute__((aligned(16)));
static Counter fresh[PIXEL_COUNTERS];
static i32 fresh_weights[MIXERS][LANES];
static const Learner pixel_learner = {(Counter *)&tables, fresh, weights, fresh_weights, PIXEL_COUNTERS};
static struct {
    i32 sum, count;
} biases[3][1024];

static i32 predicted_errors[PREDICTORS][2][WIDEST_PICTURE + 16];

// 0 1 2 3-4 5-6 7-10 11-14 15-22 ..: a magnitude as a class and what is left of it.
INLINE i32 code_size(i32 magnitude, Slot *const *slots, i32 mixer, i32 mixer2, Counter (*digits)[18]) {
    i32 length = digits_of(magnitude), found = 0;
    Counter *counters[INPUTS];
    for (; found < 17; found++) {
        i32 at = least(found, EXPONENTS - 1);
        for (i32 k = 0; k < INPUTS; k++) counters[k] = *slots[k] + at;
        if (!code_bit(length > found, counters, INPUTS, weights[mixer + at], weights[mixer2 + at])) break;
    }
    if (found < 2) return found;
    i32 value = 1;
    for (i32 k = found - 2; k >= 0; k--) {
        i32 bit = magnitude >> k & 1;
        if (k == found - 2 && found < 10) {
            for (i32 i = 0; i < INPUTS; i++) counters[i] = *slots[i] + EXPONENTS + found - 2;
            bit = code_bit(bit, counters, INPUTS, weights[mixer + EXPONENTS + found - 2], weights[mixer2 + EXPONENTS + found - 2]);
        } else if (k == found - 3 && found < 7) {
            i32 at = EXPONENTS + 8 + (found - 3) * 2 + (value & 1);
            for (i32 i = 0; i < INPUTS; i++) counters[i] = *slots[i] + least(at, SLOT - 1);
            bit = code_bit(bit, counters, INPUTS, weights[mixer + least(at, SLOT - 1)], weights[mixer2 + least(at, SLOT - 1)]);
        } else if (k >= found - 6) bit = code_alone(bit, digits[found] + k);
        else bit = code(&range, bit, ONE / 2);
        value = value << 1 | bit;
    }
    return value;
}

INLINE i32 middle_of(i32 a, i32 b, i32 c) {
    i32 low = least(a, b), high = most(a, b);
    return c >= high ? low : c <= low ? high : a + b - c;
}

typedef struct {
    i32 peak, tolerance, quantum;
    i32 shift;  // samples of more than 8 bits: what contexts of levels leave out
} Depth;

static void code_plane(const Job *job, Plane *planes, i32 which, const Depth *depth) {
    Plane *plane = planes + which;
    i32 kind = least(which, 2), s = plane->stride, taps_count = 0, width = plane->width;
    i32 count = (width + STRIP - 1) / STRIP;
    Solution local[2];
    Sums *strips = (Sums *)job->strips;
    for (i32 k = 0; k < count; k++) clear_sums(strips + k);
    for (i32 k = 0; k < PREDICTORS; k++) for (i32 row = 0; row < 2; row++) __builtin_memset(predicted_errors[k][row], 0, 4 * (width + 16));
    for (i32 y = 0; y < plane->height; y++) {
        i32 *line = plane->data + y * s;
        // margins: what is left of a row is above its first sample, what is right of the row above is its last
        for (i32 k = 1; k <= MARGIN; k++) line[-k] = y ? line[-s] : (depth->peak + 1) / 2;
        if (y) for (i32 k = 0; k < MARGIN; k++) line[-s + width + k] = line[-s + width - 1];
        if (overall[which].count > 0) solve(overall + which, taps_count ? taps_count : which == 0 ? 18 : which == 1 ? 16 : 18, 2.0, slow + which);
        local[0] = slow[which];
        for (i32 x = 0; x < width; x++) {
            i32 offset = y * s + x, *own = line + x;
            i16 *errors = plane->errors + offset;
            double taps[MOST_TAPS], base;
            i32 n = taps_count = gather(planes, which, offset, taps, &base);
            if (x % STRIP == 0) {
                i32 strip = x / STRIP;
                Sums sums = strips[strip];
                if (strip) add_sums(&sums, strips + strip - 1, 1);
                if (strip + 1 < count) add_sums(&sums, strips + strip + 1, 1);
                if (overall[which].count > 0) add_sums(&sums, overall + which, 0.03 / overall[which].count);
                local[0] = slow[which];
                solve(&sums, n, 0.02, local);
                fade(strips + strip, 0.85);
            }
            double guesses[PREDICTORS] = {base, base, 0, 0};
            for (i32 k = 0; k < n; k++) guesses[0] += taps[k] * local[0].weights[k], guesses[1] += taps[k] * slow[which].weights[k];
            i32 W = own[-1], N = own[-s], NW = own[-s - 1], NE = own[-s + 1];
            if (which) {
                const i32 *other = planes[which - 1].data + offset;
                guesses[2] = other[0] + middle_of(W - other[-1], N - other[-s], NW - other[-s - 1]);
                guesses[3] = other[0] + ((W - other[-1]) + (N - other[-s])) * 0.5;
            } else {
                guesses[2] = middle_of(W, N, NW);
                guesses[3] = W + (NE - N) * 0.5 + (N - NW) * 0.25;
            }
            double total = 0, sum = 0, low = guesses[0], high = guesses[0];
            for (i32 k = 0; k < PREDICTORS; k++) {
                double guess = guesses[k] < 0 ? 0 : guesses[k] > depth->peak ? depth->peak : guesses[k];
                guesses[k] = guess;
                const i32 *now = predicted_errors[k][y & 1] + x + 8, *up = predicted_errors[k][~y & 1] + x + 8;
                double missed = now[-1] + up[0] + (up[-1] + up[1] + now[-2]) * 0.5 + 2 * depth->quantum;
                double trust = 1 / (missed * missed);
                trust *= trust;
                if (k < 2) trust *= k ? 2 : 6;
                total += trust, sum += trust * guess;
                if (k < 3) low = guess < low ? guess : low, high = guess > high ? guess : high;
            }
            double blended = sum / total;
            // energy of the errors around
            const i16 *eu = errors - s;
            i32 near = 2 * (size_of(errors[-1]) + size_of(eu[0])) + size_of(eu[-1]) + size_of(eu[1]) + size_of(errors[-2]) + size_of(errors[-2 * s]);
            i32 spread = (high - low) * 2 / depth->quantum;
            i32 slope = (size_of(W - NW) + size_of(N - NW) + size_of(N - NE) + size_of(own[-2 * s] - N) + size_of(own[-2] - W)) / depth->quantum;
            i32 sister = which ? planes[which - 1].errors[offset] : 0;
            i32 sister2 = which > 1 ? planes[which - 2].errors[offset] : 0;
            i32 level = grade(near, 20);
            i32 bias = (least(grade(near, 15), 15) * 4 + (W > blended) * 2 + (N > blended)) * 3 + sign_of(sister) + 1;
            if (biases[kind][bias].count) blended += (double)biases[kind][bias].sum / biases[kind][bias].count / 8;
            double whole = __builtin_floor(blended * 4 + 0.5);
            i32 fine = clipped((i32)whole, 0, 4 * depth->peak), guess = (fine + 2) >> 2, part = fine - 4 * guess + 2;  // part: 0 .. 3
            i32 actual = *own, rest = actual - guess, q;
            if (depth->quantum > 1) rest = rest < 0 ? -((-rest + depth->tolerance) / depth->quantum) : (rest + depth->tolerance) / depth->quantum;
            Slot(*sets)[CONTEXTS] = tables.slots[kind];
            i32 before = which ? size_of(sister) * 2 + size_of(sister2) : size_of(eu[1]) + size_of(eu[2]) + size_of(errors[-2]);
            Slot *slots[INPUTS] = {
                &sets[0][level * 4 + part],
                &sets[1][grade(size_of(errors[-1]) + size_of(eu[0]), 12) * 14 + grade(spread, 13)],
                &sets[2][grade(slope, 17) * 20 + least(level, 19)],
                &sets[3][grade(before, 15) * 20 + least(level, 19)],
                &sets[4][clipped(guess >> depth->shift >> 3, 0, 31) * 12 + level / 2],
                &sets[5][(grade(size_of(errors[-1]), 7) * 8 + grade(size_of(eu[0]), 7)) * 4 + grade(size_of(eu[1]), 6) / 2],
            };
            i32 mixer = (kind * 24 + level) * SLOT, mixer2 = (72 + kind * 16 + grade(before, 15)) * SLOT;
            i32 same = (W == N) + 2 * (N == NW) + 4 * (N == NE) + 8 * (W == own[-2]) + 16 * (N == own[-2 * s]), hit = 0;
            if ((same & 3) == 3 && depth->quantum == 1) {  // flat: the same again?
                i32 context = same / 4 + 8 * (which ? sister == 0 : 0) + 16 * least(grade(near, 7), 7);
                hit = code_alone(actual == N, &tables.same[kind][context & 255]);
            }
            if (hit) actual = N, rest = N - guess;
            else {
                i32 magnitude = code_size(size_of(rest), slots, mixer, mixer2, tables.digits[kind]);
                q = magnitude;
                if (magnitude) {
                    i32 around = (sign_of(errors[-1]) + 1) * 3 + sign_of(eu[0]) + 1;
                    Counter *contexts[3] = {
                        &tables.signs[kind][0][around * 4 + part],
                        &tables.signs[kind][1][(sign_of(sister) + 1) * 12 + least(size_of(sister), 3) * 3 + sign_of(sister2) + 1],
                        &tables.signs[kind][2][part * 16 + least(level / 2, 9)],
                    };
                    if (code_bit(rest < 0, contexts, 3, weights[120 * SLOT + kind * 16 + least(level / 2, 15)], weights[122 * SLOT + kind * 16 + grade(before, 15)])) q = -magnitude;
                }
                rest = q;
                actual = clipped(guess + q * depth->quantum, 0, depth->peak);
            }
            *own = actual;
            *errors = clipped(rest, -32767, 32767);
            for (i32 k = 0; k < PREDICTORS; k++) {
                double miss = actual - guesses[k];
                predicted_errors[k][y & 1][x + 8] = (i32)((miss < 0 ? -miss : miss) * 2);
            }
            predicted_errors[0][y & 1][x + 9] = predicted_errors[0][y & 1][x + 8];
            i32 missed = (i32)((actual - blended) * 8);
            biases[kind][bias].sum += missed, biases[kind][bias].count++;
            if (biases[kind][bias].count >= 256) biases[kind][bias].sum /= 2, biases[kind][bias].count /= 2;
            double trust = 1.0 / (near * depth->quantum * 0.25 + 3 * depth->quantum);
            trust = trust * __builtin_sqrt(trust);
            add_sample(strips + x / STRIP, taps, n, actual - base, trust);
        }
        for (i32 k = 0; k < count; k++) add_sums(overall + which, strips + k, 0.02);
        fade(overall + which, 0.999);
    }
    for (i32 k = 0; k < MARGIN; k++) {
        plane->data[(plane->height - 1) * s + width + k] = plane->data[(plane->height - 1) * s + width - 1];
    }
    // below the last row: the last row again, for planes that look down
    for (i32 x = -MARGIN; x < width + MARGIN; x++) plane->data[plane->height * s + x] = plane->data[(plane->height - 1) * s + x];
}
