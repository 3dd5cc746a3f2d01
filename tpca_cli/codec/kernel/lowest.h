// The lowest components, coarse to fine: each is predicted from up to four coarser neighbours around it.

#include "regions.h"

enum { STIFFNESS = 24, FARTHEST = 1023 };

#include <wasm_simd128.h>

INLINE i64 size_of(i64 x) { return x < 0 ? -x : x; }
INLINE i64 floor_div(i64 a, i64 b) {  // b > 0
    i64 found = a / b;  // a remainder would be a second division
    return found - (found * b > a);
}

// Whole numbers below 2^52 in doubles have quotients that are rounded down as they should be, and two of them, or several
// one after another, take a fraction of the time of divisions of integers.
INLINE v128_t two_quotients(v128_t a, v128_t b) { return wasm_f64x2_floor(wasm_f64x2_div(a, b)); }

// Differences in quarters of a step, small enough that products of them stay exact.
INLINE v128_t two_quarters(v128_t differences, v128_t step) {
    v128_t found = two_quotients(wasm_f64x2_mul(differences, wasm_f64x2_splat(4)), step);
    return wasm_f64x2_pmax(wasm_f64x2_pmin(found, wasm_f64x2_splat(FARTHEST)), wasm_f64x2_splat(-FARTHEST));
}

// How much a color adds to its mean by following the first channel, as it does among the neighbours.
static i64 follow(const double *first, const i32 *around, const double *near, i32 place, i64 known, i64 mean, i64 step) {
    double leading[4], total = 0, count = known;
    i64 there[4];
    for (i32 k = 0; k < 4; k++) there[k] = -(around[k] > 0), leading[k] = first[around[k]], total += around[k] ? leading[k] : 0;
    v128_t energies = wasm_f64x2_splat(0), products = energies, own_step = wasm_f64x2_splat(step), all_step = wasm_f64x2_splat(count * step);
    for (i32 k = 0; k < 4; k += 2) {
        v128_t away = wasm_f64x2_sub(wasm_f64x2_mul(wasm_v128_load(leading + k), wasm_f64x2_splat(count)), wasm_f64x2_splat(total));
        v128_t ahead = wasm_v128_and(two_quarters(away, all_step), wasm_v128_load(there + k));
        v128_t after = two_quarters(wasm_f64x2_sub(wasm_v128_load(near + k), wasm_f64x2_splat(mean)), own_step);
        energies = wasm_f64x2_add(energies, wasm_f64x2_mul(ahead, ahead));
        products = wasm_f64x2_add(products, wasm_f64x2_mul(ahead, after));
    }
    double energy = 16 * STIFFNESS + wasm_f64x2_extract_lane(energies, 0) + wasm_f64x2_extract_lane(energies, 1);
    double slope = __builtin_floor(256 * (wasm_f64x2_extract_lane(products, 0) + wasm_f64x2_extract_lane(products, 1)) / energy);
    slope = slope > 256 ? 256 : slope < -256 ? -256 : slope;
    return (i64)__builtin_floor((2 * slope * (first[place] * count - total) + 256 * count) / (512 * count));
}

// What is foreseen of a lowest component: its mean, its class, and the magnitudes of those of the channels before.
typedef struct {
    i64 mean;
    i32 class, first_size, previous;
} Foreseen;

INLINE Foreseen foresee_lowest(const Job *job, const Line *line, i32 channel, i32 fineness, i32 place, const i32 *around) {
    i32 first_row = job->lowest_rows[0], size = job->size, follows = channel && first_row >= 0;
    const double *low = job->low + channel * size;
    double near[4];
    i64 step = quantum_at(line, place), known = 0, total = 0, mean, evidence[3];
    for (i32 k = 0; k < 4; k++) near[k] = low[around[k]], known += around[k] > 0, total += around[k] ? (i64)near[k] : 0;
    i64 some = known ? known : 1;
    if (known == 4) {  // of two opposite pairs the closer one counts more: it lies along an edge
        double across = absolute(near[0] - near[1]), along = absolute(near[2] - near[3]);
        double first = near[0] + near[1], second = near[2] + near[3], closer = across < along ? across : along, farther = across < along ? along : across;
        v128_t trusts = two_quarters(wasm_f64x2_make(along, across), wasm_f64x2_splat(step));
        trusts = wasm_f64x2_add(wasm_f64x2_mul(trusts, trusts), wasm_f64x2_splat(16));
        i64 trust_first = wasm_f64x2_extract_lane(trusts, 0), trust_second = wasm_f64x2_extract_lane(trusts, 1), trust = trust_first + trust_second;
        v128_t apart = two_quotients(wasm_f64x2_mul(wasm_f64x2_make(closer, farther), wasm_f64x2_splat(UNIT)), wasm_f64x2_splat(step));
        evidence[0] = wasm_f64x2_extract_lane(apart, 0), evidence[1] = wasm_f64x2_extract_lane(apart, 1);
        evidence[2] = __builtin_floor(UNIT * absolute(first - second) / (2 * step));
        mean = floor_div(trust_first * (i64)first + trust_second * (i64)second + trust, 2 * trust);  // of larger numbers
    } else {
        i64 apart = 0;
        for (i32 k = 0; k < 4; k++) apart += around[k] ? size_of((i64)near[k] * some - total) : 0;
        evidence[0] = evidence[1] = evidence[2] = UNIT * apart / (some * some * step);
        mean = floor_div(2 * total + some, 2 * some);
    }
    if (follows) mean += follow(job->low, around, near, place, some, mean, step);
    if (!known) mean = job->centers[channel];

    const i64 *weights = job->lowest_weights + (channel ? LOWEST_FEATURES : 0), *priors = job->lowest_priors;
    i64 prior = priors[channel * FINENESSES + fineness];
    i64 expected = weights[0] * prior + weights[1] * evidence[0] + weights[2] * evidence[1] + weights[3] * evidence[2];
    i32 first_size = follows ? job->own[first_row * size + place] : 0;
    i32 previous = channel > 1 && job->lowest_rows[1] >= 0 ? job->own[job->lowest_rows[1] * size + place] : 0;
    if (follows) {
        i64 ratio = prior * UNIT / (priors[fineness] > 1 ? priors[fineness] : 1);
        expected += weights[4] * (ratio < 8 * UNIT ? ratio : 8 * UNIT) * first_size;
    }
    return (Foreseen){mean, class_of(expected / UNIT), first_size, previous};
}

INLINE void code_lowest_at(Job *job, const Line *line, Range *range, i32 channel, i32 fineness, i32 place, const i32 *around) {
    const Foreseen foreseen = foresee_lowest(job, line, channel, fineness, place, around);
    i32 row = job->lowest_rows[channel], size = job->size, class = foreseen.class, kind = least(channel, 2);
    double *low = job->low + channel * size;
    Counter *first = near_by + (4 * 256 + kind * 64 + least(foreseen.first_size, 7) * 8 + least(foreseen.previous, 7)) * MIXED;
    Counter *second = crowd + (4 * 256 + kind * 32 + least(class >> 1, 31)) * MIXED;
    const Spot spot = spot_of(job->grade, job->placed + row * OCTAVES * MIXED, 2, 4, class, first, second, place, turn_at(line, place), job->rich);
    double *data = job->data + row * size + place, rest = job->mode == DECIDE ? *data - foreseen.mean : *data, value = 0;
    i64 q = code_size(job, line, range, &spot, rest, job->rich);
    if (q) {
        q = code_sign(line, range, spot.turn, 0, rest < 0) ? -q : q;
        value = keep(line, place, class, q);
    }
    low[place] = foreseen.mean + value;
    if (job->edge_room && !channel) extend_edges(job->edges + place, size, job->row_edges + row, low[place]);
    if (job->picture_count) job->wide |= put(slot_values(job, slot_of(job, row)), place, low[place]);
    if (!job->direct) *data = job->symbols ? q : low[place];
}

INLINE void code_lowest_as(Job *job, Range *outer, i32 writing) {
    Range range = *outer;
    range.writing = writing;
    for (i32 channel = 0; channel < job->channels; channel++) {
        if (job->lowest_rows[channel] < 0) continue;
        const i32 *place = job->level_places, *around = job->level_around;
        Line line = line_of(job, job->lowest_rows[channel], 2);
        line.sign_spot = 32;
        for (i32 l = 0; l < job->level_count; l++)
            for (i32 k = 0; k < job->levels[l].count; k++, around += 4)
                code_lowest_at(job, &line, &range, channel, job->levels[l].fineness, *place++, around);
    }
    *outer = range;
}

APART void read_lowest(Job *job, Range *range) { code_lowest_as(job, range, 0); }
APART void write_lowest(Job *job, Range *range) { code_lowest_as(job, range, 1); }
