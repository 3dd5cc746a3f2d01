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
static i16 weights[MIXERS][LANES] __attribute__((aligned(16)));
static Counter fresh[PIXEL_COUNTERS];
static i16 fresh_weights[MIXERS][LANES];
static const Learner pixel_learner = {(Counter *)&tables, fresh, weights, fresh_weights, PIXEL_COUNTERS};
static struct {
    i32 sum, count;
} biases[3][1024];

static i32 misses[2][WIDEST_PICTURE + 16][PREDICTORS];  // of the row above and of this one

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
        else bit = code(bit, ONE / 2);
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
    i32 kind = least(which, 2), s = plane->stride, n = taps_of(which), width = plane->width;
    i32 count = (width + STRIP - 1) / STRIP;
    Solution local[2];
    Sums *strips = (Sums *)job->strips;
    for (i32 k = 0; k < count; k++) clear_sums(strips + k);
    for (i32 row = 0; row < 2; row++) __builtin_memset(misses[row], 0, (width + 16) * sizeof misses[row][0]);
    for (i32 y = 0; y < plane->height; y++) {
        i32 *line = plane->data + y * s;
        // margins: what is left of a row is above its first sample, what is right of the row above is its last
        for (i32 k = 1; k <= MARGIN; k++) line[-k] = y ? line[-s] : (depth->peak + 1) / 2;
        if (y) for (i32 k = 0; k < MARGIN; k++) line[-s + width + k] = line[-s + width - 1];
        if (overall[which].count > 0) solve(overall + which, n, 2, slow + which);
        local[0] = slow[which];
        for (i32 x = 0; x < width; x++) {
            i32 offset = y * s + x, *own = line + x;
            i16 *errors = plane->errors + offset;
            float taps[MOST_TAPS] = {0}, base;
            gather(planes, which, offset, taps, &base);
            if (x % STRIP == 0) {
                i32 strip = x / STRIP;
                Sums sums = strips[strip];
                if (strip) add_sums(&sums, strips + strip - 1, 1);
                if (strip + 1 < count) add_sums(&sums, strips + strip + 1, 1);
                if (overall[which].count > 0) add_sums(&sums, overall + which, 0.03f / overall[which].count);
                local[0] = slow[which];
                solve(&sums, n, 0.02f, local);
                fade(strips + strip, 0.85f);
            }
            i32 W = own[-1], N = own[-s], NW = own[-s - 1], NE = own[-s + 1];
            float third, fourth;
            if (which) {
                const i32 *other = planes[which - 1].data + offset;
                third = other[0] + middle_of(W - other[-1], N - other[-s], NW - other[-s - 1]);
                fourth = other[0] + ((W - other[-1]) + (N - other[-s])) * 0.5f;
            } else {
                third = middle_of(W, N, NW);
                fourth = W + (NE - N) * 0.5f + (N - NW) * 0.25f;
            }
            v128_t guesses = wasm_f32x4_make(base + predicted(taps, local), base + predicted(taps, slow + which), third, fourth);
            guesses = wasm_f32x4_pmax(wasm_f32x4_splat(0), wasm_f32x4_pmin(wasm_f32x4_splat(depth->peak), guesses));
            const i32(*now)[PREDICTORS] = misses[y & 1] + x + 8, (*up)[PREDICTORS] = misses[~y & 1] + x + 8;
            v128_t twice = wasm_i32x4_add(wasm_v128_load(now[-1]), wasm_v128_load(up[0]));
            v128_t once = wasm_i32x4_add(wasm_i32x4_add(wasm_v128_load(up[-1]), wasm_v128_load(up[1])), wasm_v128_load(now[-2]));
            once = wasm_i32x4_add(once, wasm_i32x4_add(wasm_i32x4_add(twice, twice), wasm_i32x4_splat(4 * depth->quantum)));
            v128_t sizes = wasm_f32x4_convert_i32x4(once), square = wasm_f32x4_mul(sizes, sizes);
            v128_t trusts = wasm_f32x4_div(wasm_f32x4_make(6, 2, 1, 1), wasm_f32x4_mul(square, square));
            float blended = total(wasm_f32x4_mul(trusts, guesses)) / total(trusts);
            float g0 = wasm_f32x4_extract_lane(guesses, 0), g1 = wasm_f32x4_extract_lane(guesses, 1), g2 = wasm_f32x4_extract_lane(guesses, 2);
            float low = g0 < g1 ? g0 : g1, high = g0 < g1 ? g1 : g0;
            low = g2 < low ? g2 : low, high = g2 > high ? g2 : high;
            // energy of the errors around
            const i16 *eu = errors - s;
            i32 near = 2 * (size_of(errors[-1]) + size_of(eu[0])) + size_of(eu[-1]) + size_of(eu[1]) + size_of(errors[-2]) + size_of(errors[-2 * s]);
            i32 spread = (high - low) * 2 / depth->quantum;
            i32 slope = (size_of(W - NW) + size_of(N - NW) + size_of(N - NE) + size_of(own[-2 * s] - N) + size_of(own[-2] - W)) / depth->quantum;
            i32 sister = which ? planes[which - 1].errors[offset] : 0;
            i32 sister2 = which > 1 ? planes[which - 2].errors[offset] : 0;
            i32 level = grade(near, 20);
            i32 bias = (least(grade(near, 15), 15) * 4 + (W > blended) * 2 + (N > blended)) * 3 + sign_of(sister) + 1;
            if (biases[kind][bias].count) blended += (float)biases[kind][bias].sum / (8 * biases[kind][bias].count);
            i32 fine = clipped((i32)__builtin_floorf(blended * 4 + 0.5f), 0, 4 * depth->peak), guess = (fine + 2) >> 2, part = fine - 4 * guess + 2;  // part: 0 .. 3
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
            v128_t miss = wasm_f32x4_abs(wasm_f32x4_sub(wasm_f32x4_splat(actual), guesses));
            miss = wasm_i32x4_trunc_sat_f32x4(wasm_f32x4_add(miss, miss));
            wasm_v128_store(misses[y & 1][x + 8], miss);
            wasm_v128_store(misses[y & 1][x + 9], miss);
            i32 missed = (i32)((actual - blended) * 8);
            biases[kind][bias].sum += missed, biases[kind][bias].count++;
            if (biases[kind][bias].count >= 256) biases[kind][bias].sum /= 2, biases[kind][bias].count /= 2;
            float trust = 1 / (near * depth->quantum * 0.25f + 3 * depth->quantum);
            taps[n] = actual - base;
            add_sample(strips + x / STRIP, taps, n, trust * __builtin_sqrtf(trust));
        }
        for (i32 k = 0; k < count; k++) add_sums(overall + which, strips + k, 0.02f);
        fade(overall + which, 0.999f);
    }
    for (i32 k = 0; k < MARGIN; k++) {
        plane->data[(plane->height - 1) * s + width + k] = plane->data[(plane->height - 1) * s + width - 1];
    }
    // below the last row: the last row again, for planes that look down
    for (i32 x = -MARGIN; x < width + MARGIN; x++) plane->data[plane->height * s + x] = plane->data[(plane->height - 1) * s + x];
}
