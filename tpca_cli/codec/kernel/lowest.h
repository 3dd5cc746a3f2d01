// The lowest components, coarse to fine: each is predicted from up to four coarser neighbours around it.

#include "regions.h"

enum { STIFFNESS = 24, FARTHEST = 1023 };

INLINE i64 size_of(i64 x) { return x < 0 ? -x : x; }
INLINE i64 floor_div(i64 a, i64 b) {  // b > 0
    i64 found = a / b;  // a remainder would be a second division
    return found - (found * b > a);
}

// A difference in quarters of a step, small enough that products of them stay exact.
INLINE i64 quarters(i64 difference, i64 step) {
    i64 found = floor_div(4 * difference, step);
    return found > FARTHEST ? FARTHEST : found < -FARTHEST ? -FARTHEST : found;
}

// How much a color adds to its mean by following the first channel, as it does among the neighbours.
static i64 follow(const double *first, const i32 *around, const i64 *near, i32 place, i64 known, i64 mean, i64 step) {
    i64 leading[4], total = 0, energy = 16 * STIFFNESS, together = 0;
    for (i32 k = 0; k < 4; k++) leading[k] = first[around[k]], total += around[k] ? leading[k] : 0;
    for (i32 k = 0; k < 4; k++) {
        if (!around[k]) continue;
        i64 ahead = quarters(leading[k] * known - total, known * step);
        energy += ahead * ahead;
        together += ahead * quarters(near[k] - mean, step);
    }
    i64 slope = floor_div(256 * together, energy);
    slope = slope > 256 ? 256 : slope < -256 ? -256 : slope;
    return floor_div(2 * slope * ((i64)first[place] * known - total) + 256 * known, 512 * known);
}

INLINE void code_lowest_at(Job *job, const Line *line, Range *range, i32 channel, i32 fineness, i32 place, const i32 *around) {
    i32 row = job->lowest_rows[channel], first_row = job->lowest_rows[0], size = job->size, follows = channel && first_row >= 0;
    double *low = job->low + channel * size;
    i64 step = quantum_at(line, place), near[4], known = 0, total = 0, mean, evidence[3];
    for (i32 k = 0; k < 4; k++) near[k] = low[around[k]], known += around[k] > 0, total += around[k] ? near[k] : 0;
    i64 some = known ? known : 1;
    if (known == 4) {  // of two opposite pairs the closer one counts more: it lies along an edge
        i64 across = size_of(near[0] - near[1]), along = size_of(near[2] - near[3]);
        i64 first = near[0] + near[1], second = near[2] + near[3];
        i64 trust_first = quarters(along, step), trust_second = quarters(across, step);
        trust_first = trust_first * trust_first + 16, trust_second = trust_second * trust_second + 16;
        i64 trust = trust_first + trust_second;
        mean = floor_div(trust_first * first + trust_second * second + trust, 2 * trust);
        evidence[0] = UNIT * (across < along ? across : along) / step;
        evidence[1] = UNIT * (across < along ? along : across) / step;
        evidence[2] = UNIT * size_of(first - second) / (2 * step);
    } else {
        i64 apart = 0;
        for (i32 k = 0; k < 4; k++) apart += around[k] ? size_of(near[k] * some - total) : 0;
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
    i32 class = class_of(expected / UNIT), kind = least(channel, 2);
    Counter *first = near_by + (4 * 256 + kind * 64 + least(first_size, 7) * 8 + least(previous, 7)) * MIXED;
    Counter *second = crowd + (4 * 256 + kind * 32 + least(class >> 1, 31)) * MIXED;
    const Spot spot = spot_of(job, row, 2, 4, class, first, second, place, turn_at(line, place), job->rich);
    double *data = job->data + row * size + place, rest = job->mode == DECIDE ? *data - mean : *data, value = 0;
    i64 q = code_size(job, line, range, &spot, rest, job->rich);
    if (q) {
        q = code_sign(line, range, spot.turn, 0, rest < 0) ? -q : q;
        value = keep(line, place, class, q);
    }
    low[place] = mean + value;
    if (job->edge_room && !channel) extend_edges(job, row, place, low[place]);
    if (job->picture_count) put(job, slot_of(job, row), place, low[place]);
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
