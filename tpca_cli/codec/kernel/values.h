// One quantised value: the encoder decides it, both code it, both know what it stands for.

#include "coder.h"

enum { STAGES = TOKENS - 1, LARGEST = 4095, LONGEST = 44, SURROUNDINGS = 2, MIXED = 2, SURELY_ZERO = -600, FAMILIAR = 30 };

static i32 given[FAMILIES][ROWS][STAGES];
static Counter plain[FAMILIES][ROWS][STAGES], near_by[5 * 256 * MIXED], crowd[5 * 256 * MIXED];
static Counter flag_counters[3][512], sign_near[33 * 8], sign_slope[33 * 8];
static i32 value_weights[FAMILIES][16][MIXED][SURROUNDINGS + 1], flag_weights[16][2][4];

INLINE i32 least(i32 a, i32 b) { return a < b ? a : b; }
INLINE i32 clipped(i32 value, i32 low, i32 high) { return value < low ? low : value > high ? high : value; }

static void fill(Counter *counters, u32 count) {
    for (u32 k = 0; k < count; k++) counters[k] = (Counter){HALF, 0};
}
#define FILL(counters) fill((Counter *)(counters), sizeof(counters) / sizeof(Counter))

static void start_learning(const Job *job) {
    if (!paces[0]) make_tables();
    for (i32 f = 0; f < FAMILIES * ROWS; f++) {
        const i32 *row = job->tables + f * TOKENS;
        i32 rest = ONE;
        for (i32 k = 0; k < STAGES; k++) {
            i32 more = rest - row[k], p = least((i64)more * ONE / (rest > 1 ? rest : 1), ONE - 1);
            given[f / ROWS][f % ROWS][k] = stretch(p);
            plain[f / ROWS][f % ROWS][k] = (Counter){p, FAMILIAR};
            rest = more;
        }
    }
    FILL(near_by), FILL(crowd), FILL(flag_counters), FILL(sign_near), FILL(sign_slope);
    for (i32 k = 0; k < (i32)(sizeof value_weights / sizeof(i32)); k++)
        ((i32 *)value_weights)[k] = k % (SURROUNDINGS + 1) ? 12000 : 46000;
    for (i32 k = 0; k < (i32)(sizeof flag_weights / sizeof(i32)); k++) ((i32 *)flag_weights)[k] = k % 4 ? 10000 : 40000;
}

INLINE double absolute(double x) { return __builtin_fabs(x); }

// 8 log2 in whole eighths of an octave, from the bits of the float.
INLINE i32 log_code(double value) {
    union { double value; u64 bits; } both = {value < 1 ? 1 : value};
    return (i32)(both.bits >> 49) - (1023 << 3);
}

INLINE i32 class_of(i64 expected) {
    i32 found = (log_code(expected) >> 1) - 4;
    return found < 0 ? 0 : least(found, CLASSES - 1);
}

INLINE i32 shift_of(i32 class) { return class < ROWS ? 0 : class / CYCLE - (ROWS / CYCLE - 1); }

// Where a value lies. What surrounds it is only looked at when it is needed: most values are surely zero.
typedef struct Spot Spot;
struct Spot {
    i32 family, class, row, place;
    i32 which, sign_spot;         // select counters
    const Near *near;
    const u16 *const *near_rows;  // magnitudes there
    Counter *surroundings[SURROUNDINGS];
    void (*look_around)(const Job *job, Spot *spot);
    i32 (*slope)(const Job *job, const Spot *spot);
};

// Nearest, one less or zero, whichever costs least in error and bits.
INLINE i64 decide(const Job *job, Spot *spot, double ratio) {
    i64 nearest = __builtin_floor(ratio + 0.5), best = 0;
    if (!nearest) return 0;
    i32 class = spot->class, shift = shift_of(class), row = class < ROWS ? class : ROWS - CYCLE + class % CYCLE;
    const double *prices = job->prices + (spot->family * CLASSES + class) * TOKENS;
    const i32 *offsets = job->offsets + class * 4;
    double zero = prices[0], one = prices[1], more = 0;
    if (!shift) {  // what the first two bits would cost here and now
        const i32 *logits = given[spot->family][row];
        i32 unused[8], p[MIXED];
        spot->look_around(job, spot);
        for (i32 stage = 0; stage < MIXED; stage++) {
            Counter *counters[SURROUNDINGS] = {spot->surroundings[0] + stage, spot->surroundings[1] + stage};
            const i32 *weights = value_weights[spot->family][least(class >> 2, 15)][stage];
            p[stage] = mixed(unused, logits[stage], counters, SURROUNDINGS, weights);
        }
        if (logits[0] < SURELY_ZERO) p[0] = clipped(plain[spot->family][row][0].p, SURE, ONE - SURE);
        const double *bits = job->bit_prices;
        double some = bits[p[0] >> PRICE_SHIFT] + job->log_prices[0];
        zero = bits[(ONE - p[0]) >> PRICE_SHIFT];
        one = some + bits[(ONE - p[1]) >> PRICE_SHIFT];
        more = some + bits[p[1] >> PRICE_SHIFT] - prices[2];
    }
    double least_cost = ratio * ratio + zero;
    for (i64 q = nearest > 1 ? nearest - 1 : 1; q <= nearest; q++) {
        double error = ratio - q + offsets[q < 3 ? q : 3] / 256.0;
        double price = q >> shift == 1 && !shift ? one : prices[q >> shift < STAGES ? q >> shift : STAGES] + more;
        if (error * error + price < least_cost) least_cost = error * error + price, best = q;
    }
    return best;
}

INLINE i32 code_plain(Range *range, i32 bit, Counter *counter) {
    bit = code(range, bit, clipped(counter->p, SURE, ONE - SURE));
    learn(counter, bit, 2 * PATIENCE);
    return bit;
}

INLINE i64 code_magnitude(Job *job, Range *range, Spot *spot, i64 q) {
    i32 class = spot->class, shift = shift_of(class), row = class < ROWS ? class : ROWS - CYCLE + class % CYCLE;
    const i32 *logits = given[spot->family][row];
    Counter *counters = plain[spot->family][row];
    i64 token = q >> shift;
    i32 stage = logits[0] < SURELY_ZERO;
    if (stage && !code_plain(range, token > 0, counters)) return 0;
    spot->look_around(job, spot);
    for (; stage < STAGES; stage++) {  // is it larger than `stage`?
        if (stage < MIXED) {
            Counter *mixed[SURROUNDINGS] = {spot->surroundings[0] + stage, spot->surroundings[1] + stage};
            i32 *weights = value_weights[spot->family][least(class >> 2, 15)][stage];
            if (!code_mixed(range, token > stage, logits[stage], mixed, SURROUNDINGS, weights)) break;
        } else if (!code_plain(range, token > stage, counters + stage)) break;
    }
    if (!stage && !shift) return 0;
    i64 found = stage;
    if (stage == STAGES) {  // the length of what is beyond, in ones, then its digits after the first
        i64 beyond = token - STAGES + 1, digits = 1;
        i32 length = 0;
        while (code(range, beyond >> (length + 1) > 0, HALF)) {
            if (++length > LONGEST) {
                job->damaged = 1;
                return 0;
            }
        }
        for (i32 k = length - 1; k >= 0; k--) digits = 2 * digits + code(range, beyond >> k & 1, HALF);
        found = digits + STAGES - 1;
    }
    for (i32 k = shift - 1; k >= 0; k--) found = 2 * found + code(range, q >> k & 1, HALF);
    return found;
}

// A sign is like those of neighbouring tiles, or follows the slope of the lowest component.
INLINE i32 code_sign(const Job *job, Range *range, const Spot *spot, i32 negative) {
    i8 *signs = job->signs + spot->row * job->size + spot->place;
    i32 across = signs[-1] + signs[1], along = signs[-job->stride] + signs[job->stride];
    across = (across > 0) - (across < 0), along = (along > 0) - (along < 0);
    i32 steep = spot->slope(job, spot), turned = across < 0 || (!across && along < 0), falling = steep < 0;
    if (turned) across = -across, along = -along;
    Counter *near = sign_near + spot->sign_spot * 8 + across * 3 + along + 1;
    Counter *slope = sign_slope + spot->sign_spot * 8 + (falling ? -steep : steep);
    i32 first = stretch(near->p), second = stretch(slope->p);
    i32 p = squash(((turned ? -first : first) + (falling ? -second : second)) * 3 >> 2);
    negative = code(range, negative, p);
    learn(near, negative ^ turned, STEADY);
    learn(slope, negative ^ falling, STEADY);
    signs[0] = negative ? -1 : 1;
    return negative;
}

// Code one value; `rest` is what the encoder wants to say. Returns the symbol, and what it stands for.
INLINE i64 code_value(Job *job, Range *range, Spot *spot, double rest, double *value) {
    double quantum = job->quanta[spot->row];
    i64 q = !range->writing ? 0 : job->mode == DECIDE ? decide(job, spot, absolute(rest) / quantum) : (i64)absolute(rest);
    i32 negative = rest < 0;
    q = code_magnitude(job, range, spot, q);
    *value = 0;
    if (!q) return 0;
    negative = code_sign(job, range, spot, negative);
    job->own[spot->row * job->size + spot->place] = q < LARGEST ? q : LARGEST;
    double size = (q - job->offsets[spot->class * 4 + (q < 3 ? q : 3)] / 256.0) * quantum;
    *value = __builtin_floor((negative ? -size : size) + 0.5);
    return negative ? -q : q;
}
