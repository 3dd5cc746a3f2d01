// A sample's difference from what was predicted, coded bit by bit.

#include "pixel_flat.h"

enum { EXPONENTS = 16 };

typedef Counter Slot[SLOT];

static struct {
    Slot slots[3][INPUTS][CONTEXTS];
    Counter signs[3][3][128];
    Counter digits[3][18][18];
    FlatTables flat[3];
} tables __attribute__((aligned(64)));  // a slot is two lines of the cache
_Static_assert(sizeof tables == PIXEL_COUNTERS * sizeof(Counter), "as Python counts them");
static i16 weights[MIXERS][LANES] __attribute__((aligned(16)));
static Counter fresh[PIXEL_COUNTERS];
static i16 fresh_weights[MIXERS][LANES];
static const Learner pixel_learner = {(Counter *)&tables, fresh, weights, fresh_weights, PIXEL_COUNTERS};
static struct {
    i32 sum, count;
} biases[3][1024];

static Misses misses[2][WIDEST_PICTURE + 16];  // of the row above and of this one

// 0 1 2 3-4 5-6 7-10 11-14 15-22 ..: a magnitude as a class and what is left of it.
INLINE i32 code_size(Range *range, i32 magnitude, Slot *const *slots, i32 mixer, i32 mixer2, Counter (*digits)[18]) {
    i32 length = digits_of(magnitude), found = 0;
    Counter *counters[INPUTS];
    for (; found < 17; found++) {
        i32 at = least(found, EXPONENTS - 1);
        for (i32 k = 0; k < INPUTS; k++) counters[k] = *slots[k] + at;
        if (!code_bit(range, length > found, counters, INPUTS, weights[mixer + at], weights[mixer2 + at])) break;
    }
    if (found < 2) return found;
    i32 value = 1;
    for (i32 k = found - 2; k >= 0; k--) {
        i32 bit = magnitude >> k & 1;
        if (k == found - 2 && found < 10) {
            for (i32 i = 0; i < INPUTS; i++) counters[i] = *slots[i] + EXPONENTS + found - 2;
            bit = code_bit(range, bit, counters, INPUTS, weights[mixer + EXPONENTS + found - 2], weights[mixer2 + EXPONENTS + found - 2]);
        } else if (k == found - 3 && found < 7) {
            i32 at = EXPONENTS + 8 + (found - 3) * 2 + (value & 1);
            for (i32 i = 0; i < INPUTS; i++) counters[i] = *slots[i] + least(at, SLOT - 1);
            bit = code_bit(range, bit, counters, INPUTS, weights[mixer + least(at, SLOT - 1)], weights[mixer2 + least(at, SLOT - 1)]);
        } else if (k >= found - 6) bit = code_alone(range, bit, digits[found] + k);
        else bit = code_quick(range, bit, ONE / 2);
        value = value << 1 | bit;
    }
    return value;
}

typedef struct {
    i32 peak, tolerance, quantum;
    i32 shift;  // samples of more than 8 bits: what contexts of levels leave out
} Depth;

INLINE i32 signed_grade(i32 x) { return x < 0 ? 7 - grade(-x, 7) : 7 + grade(x, 7); }

INLINE void code_plane(Range *range, const Job *job, Plane *planes, i32 which, const Depth *depth) {
    Plane *plane = planes + which;
    i32 kind = least(which, 2), s = plane->stride, width = plane->width;
    i32 count = (width + STRIP - 1) / STRIP;
    Solution local;
    Sums *strips = (Sums *)job->strips;
    for (i32 k = 0; k < count; k++) clear_sums(strips + k);
    for (i32 row = 0; row < 2; row++) __builtin_memset(misses[row], 0, (width + 16) * sizeof misses[row][0]);
    i32 flat = code_quick(range, range->writing && is_flat(plane), ONE / 2);
    for (i32 y = 0; y < plane->height; y++) {
        i32 *line = plane->data + y * s;
        // margins: what is left of a row is above its first sample, what is right of the row above is its last
        for (i32 k = 1; k <= MARGIN; k++) line[-k] = y ? line[-s] : (depth->peak + 1) / 2;
        if (y) for (i32 k = 0; k < MARGIN; k++) line[-s + width + k] = line[-s + width - 1];
        if (overall[which].count > 0) solve(overall + which, 2, slow + which);
        for (i32 x = 0; x < width; x++) {
            i32 offset = y * s + x, *own = line + x;
            i16 *errors = plane->errors + offset;
            float taps[PADDED] = {0}, base;
            gather(planes, which, offset, taps, &base);
            if (x % STRIP == 0) {
                i32 strip = x / STRIP;
                Sums sums = strips[strip];
                if (strip) add_sums(&sums, strips + strip - 1, 1);
                if (strip + 1 < count) add_sums(&sums, strips + strip + 1, 1);
                if (overall[which].count > 0) add_sums(&sums, overall + which, 0.03f / overall[which].count);
                local = slow[which];
                solve(&sums, 0.02f, &local);
                fade(strips + strip, 0.83f);
            }
            i32 W = own[-1], N = own[-s], NW = own[-s - 1], NE = own[-s + 1];
            Guesses guesses = guess_all(planes, which, offset, base + predicted(taps, &local), base + predicted(taps, slow + which), depth->peak);
            Misses *now = misses[y & 1] + x + 8;
            float blended = blend(&guesses, now, misses[~y & 1] + x + 8, depth->quantum);
            // energy of the errors around
            const i16 *eu = errors - s;
            i32 near = 2 * (size_of(errors[-1]) + size_of(eu[0])) + size_of(eu[-1]) + size_of(eu[1]) + size_of(errors[-2]) + size_of(errors[-2 * s]);
            i32 spread = range_of(&guesses) * 2 / depth->quantum;
            i32 slope = (size_of(W - NW) + size_of(N - NW) + size_of(N - NE) + size_of(own[-2 * s] - N) + size_of(own[-2] - W)) / depth->quantum;
            i32 sister = which ? planes[which - 1].errors[offset] : 0;
            i32 sister2 = which > 1 ? planes[which - 2].errors[offset] : 0;
            i32 level = grade(near, 20);
            i32 bias = (least(grade(near, 15), 15) * 4 + (W > blended) * 2 + (N > blended)) * 3 + sign_of(sister) + 1;
            if (biases[kind][bias].count) blended += (float)biases[kind][bias].sum / (8 * biases[kind][bias].count);
            i32 fine = clipped((i32)__builtin_floorf(blended * 4 + 0.5f), 0, 4 * depth->peak), guess = (fine + 2) >> 2, part = fine - 4 * guess + 2;  // part: 0 .. 3
            i32 actual = *own, rest = actual - guess;
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
                &sets[6][signed_grade(W - guess) * 15 + signed_grade(N - guess)],
                &sets[7][which ? (clipped(sister, -9, 9) + 9) * 20 + clipped(sister2 / 2, -9, 9) + 9 : signed_grade(2 * W - own[-2] - guess) * 15 + signed_grade(NE - guess)],
            };
            i32 mixer = (kind * 24 + level) * SLOT, mixer2 = (72 + kind * 16 + grade(before, 15)) * SLOT;
            i32 hit = flat && code_flat(range, &actual, planes, which, offset, fine, near, depth->tolerance, tables.flat + kind, weights + FLAT_MIXERS + QUESTIONS * 48 * kind);
            if (hit) rest = (actual - guess) / depth->quantum;
            else {
                i32 magnitude = code_size(range, size_of(rest), slots, mixer, mixer2, tables.digits[kind]);
                i32 q = magnitude;
                if (magnitude) {
                    i32 around = (sign_of(errors[-1]) + 1) * 3 + sign_of(eu[0]) + 1;
                    Counter *contexts[3] = {
                        &tables.signs[kind][0][around * 4 + part],
                        &tables.signs[kind][1][(sign_of(sister) + 1) * 12 + least(size_of(sister), 3) * 3 + sign_of(sister2) + 1],
                        &tables.signs[kind][2][part * 16 + least(level / 2, 9)],
                    };
                    if (code_bit(range, rest < 0, contexts, 3, weights[120 * SLOT + kind * 16 + least(level / 2, 15)], weights[122 * SLOT + kind * 16 + grade(before, 15)])) q = -magnitude;
                }
                rest = q;
                actual = clipped(guess + q * depth->quantum, 0, depth->peak);
            }
            *own = actual;
            *errors = clipped(rest, -32767, 32767);
            note_misses(&guesses, actual, now);
            i32 missed = (i32)((actual - blended) * 8);
            biases[kind][bias].sum += missed, biases[kind][bias].count++;
            if (biases[kind][bias].count >= 256) biases[kind][bias].sum /= 2, biases[kind][bias].count /= 2;
            float trust = 1 / (near * depth->quantum * 0.25f + 3 * depth->quantum);
            taps[TAPS] = actual - base;
            add_sample(strips + x / STRIP, taps, trust * __builtin_sqrtf(trust));
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

// Once for each way: there the state of the range is in registers, and nothing asks for the way.
static NOINLINE void write_plane(Range *range, const Job *job, Plane *planes, i32 which, const Depth *depth) {
    Range own = *range;
    own.writing = 1;
    code_plane(&own, job, planes, which, depth);
    *range = own;
}

static NOINLINE void read_plane(Range *range, const Job *job, Plane *planes, i32 which, const Depth *depth) {
    Range own = *range;
    own.writing = 0;
    code_plane(&own, job, planes, which, depth);
    *range = own;
}
