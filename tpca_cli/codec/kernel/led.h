// Color is led by brightness: what a component of a color will be, from that of the first channel at the same place
// and from how the two went together in all that is known of the tile and of those beside it.
//
// Sums are whole numbers that doubles hold exactly: so is everything here.

#include "lowest.h"

enum { LED_BITS = 10, LED_FARTHEST = 65535, LED_STEEPEST = 4095, LED_DOUBT = 1 << 18, LED_COARSE = 2, OWN_SHARE = 2, SHARE_BITS = 6 };
#define LED_CLEARLY 0.6  // of a step: what is less becomes zero, so the encoder supposes

INLINE i32 within_reach(double value) { return value > LED_FARTHEST ? LED_FARTHEST : value < -LED_FARTHEST ? -LED_FARTHEST : (i32)value; }

// Of the sums of a channel, place by place: squares of brightness, and its products with the color.
INLINE double *sums_of(const Job *job, i32 channel) { return job->together + 2 * channel * job->size; }

// The row of brightness that leads a row of color, or -1.
INLINE i32 leader_of(const Job *job, i32 row) { return row < job->colored || !job->shares[row] ? -1 : job->near[row].rows[2]; }

INLINE void add_both(double *sums, v128_t both) { wasm_v128_store(sums, wasm_f64x2_add(wasm_v128_load(sums), both)); }

// Brightness and color from tile to tile: the first that is known.
static void start_leading(Job *job) {
    __builtin_memset(job->together, 0, 16 * job->channels * job->size);
    const double *first = job->low;
    for (i32 c = 1; c < job->channels && job->lowest_rows[0] >= 0; c++) {
        if (job->lowest_rows[c] < 0) continue;
        const double *color = job->low + c * job->size;
        double *sums = sums_of(job, c);
        for (i32 k = 0; k < job->even_count + job->odd_count; k++)
            for (i32 side = 0; side < 2; side++) {
                i32 place = job->phases[k], beside = place + (side ? job->stride : 1);
                if (!job->inside[beside]) continue;
                double ahead = within_reach(first[beside] - first[place]) >> LED_COARSE, after = within_reach(color[beside] - color[place]) >> LED_COARSE;
                v128_t both = wasm_f64x2_make(ahead * ahead, ahead * after);
                add_both(sums + 2 * place, both), add_both(sums + 2 * beside, both);
            }
    }
}

// What was learned of other frequencies counts less than what comes now.
static void forget_some(const Job *job) {
    double *sums = sums_of(job, 1);
    for (i32 k = 0; k < 2 * (job->channels - 1) * job->size; k += 2) wasm_v128_store(sums + k, wasm_f64x2_floor(wasm_f64x2_mul(wasm_v128_load(sums + k), wasm_f64x2_splat(0.25))));
}

// How much of a color goes with brightness.
INLINE i32 slope_of(const Job *job, i32 channel, i32 place, i32 own) {
    const double *sums = sums_of(job, channel) + 2 * place, *above = sums - 2 * job->stride, *below = sums + 2 * job->stride;
    v128_t beside = wasm_f64x2_add(wasm_f64x2_add(wasm_v128_load(sums - 2), wasm_v128_load(sums + 2)), wasm_f64x2_add(wasm_v128_load(above), wasm_v128_load(below)));
    beside = wasm_f64x2_add(beside, wasm_f64x2_mul(wasm_v128_load(sums), wasm_f64x2_splat(own)));
    double alone = wasm_f64x2_extract_lane(beside, 0), together = wasm_f64x2_extract_lane(beside, 1);
    double slope = __builtin_floor(together * (1 << LED_BITS) / (alone + LED_DOUBT));
    return slope > LED_STEEPEST ? LED_STEEPEST : slope < -LED_STEEPEST ? -LED_STEEPEST : (i32)slope;
}

// The same of each color, in some tiles; what is known of a tile itself counts `own` times.
static void find_slopes(const Job *job, const i32 *places, i32 count, i32 own) {
    for (i32 c = 1; c < job->channels; c++)
        for (i32 k = 0; k < count; k++) job->slopes[c * job->size + places[k]] = slope_of(job, c, places[k], own);
}

// The places of a phase where a row of brightness is not zero.
INLINE i32 *lit_places(const Job *job, i32 row, i32 phase) { return job->lit + row * job->size + (phase ? job->even_count : 0); }

INLINE i32 guess_of(i32 light, i32 slope, i32 share) {
    i32 found = (light * slope + (1 << (LED_BITS - 1))) >> LED_BITS;
    return (found * share + (1 << (SHARE_BITS - 1))) >> SHARE_BITS;
}

// What the values of a row of color will be, and nothing elsewhere. `when` is the number of the step and phase: before
// values of it are known, slopes are found of those tiles that have any light.
static void guess_row(const Job *job, i32 row, i32 leader, i32 phase, i32 when) {
    i32 size = job->size, channel = job->near[row].channel, *when_found = job->when_found, share = job->shares[row];
    const i32 *light = job->light + leader * size, *slopes = job->slopes + channel * size, *places = lit_places(job, leader, phase);
    for (i32 k = 0; k < job->lit_counts[2 * leader + phase]; k++) {
        i32 place = places[k];
        if (when_found[place] != when) {
            when_found[place] = when;
            find_slopes(job, &place, 1, OWN_SHARE);
        }
        job->guesses[place] = guess_of(light[place], slopes[place], share);
    }
}

// What the encoder has left to say of a row.
static const double *less_guessed(const Job *job, const double *data) {
    double *rest = job->worth;
    for (i32 k = 0; k < job->size; k++) rest[k] = data[k] - job->guesses[k];
    return rest;
}

// How a row of color goes with what brightness says of it: whoever trains a coder looks at this.
static void compare_guesses(const Job *job, i32 row, i32 leader, i32 phase) {
    const double *data = job->data + row * job->size;
    const i32 *places = lit_places(job, leader, phase);
    double *fit = job->fit + 2 * row;
    for (i32 k = 0; k < job->lit_counts[2 * leader + phase]; k++) {
        double whole = (double)job->guesses[places[k]] * (1 << SHARE_BITS) / job->shares[row];
        fit[0] += whole * data[places[k]], fit[1] += whole * whole;
    }
}

// A value of a row of color that is not what was guessed.
INLINE void learn_led(const Job *job, i32 row, i32 leader, i32 place, double value) {
    double light = job->light[leader * job->size + place];
    sums_of(job, job->near[row].channel)[2 * place + 1] += light * (within_reach(value) - within_reach(job->guesses[place]));
}

// After a row of color: values that are as guessed, and what was learned.
static void settle_row(Job *job, i32 row, i32 leader, i32 phase) {
    const i32 *places = lit_places(job, leader, phase), *light = job->light + leader * job->size;
    double *sums = sums_of(job, job->near[row].channel), *data = job->data + row * job->size;
    const u16 *own = job->own + row * job->size;
    i32 count = job->lit_counts[2 * leader + phase], *guesses = job->guesses;
    i32 *values = count && job->picture_count ? slot_values(job, slot_of(job, row)) : 0, said = !job->direct && !job->symbols, wide = 0;
    for (i32 k = 0; k < count; k++) {
        i32 place = places[k];
        double own_light = light[place];
        add_both(sums + 2 * place, wasm_f64x2_mul(wasm_f64x2_splat(own_light), wasm_f64x2_make(own_light, clipped(guesses[place], -LED_FARTHEST, LED_FARTHEST))));
        if (!own[place]) {
            if (values) values[place] = clipped(guesses[place], -LARGEST_VALUE, LARGEST_VALUE), wide |= size_of(guesses[place]) >= LARGEST_VALUE;
            if (said) data[place] = guesses[place];
        }
        guesses[place] = 0;
    }
    job->wide |= wide;
}

// What the encoder supposes before it knows: rows of color less what brightness will say of them.
static void foresee(Job *job) {
    i32 size = job->size;
    __builtin_memset(job->together, 0, 16 * job->channels * size);
    for (i32 row = job->colored; row < job->rows; row++) {
        i32 leader = leader_of(job, row);
        if (leader < 0) continue;
        const double *light = job->data + leader * size, *color = job->data + row * size;
        double *sums = sums_of(job, job->near[row].channel), least_light[GRADES];
        for (i32 g = 0; g < job->grades; g++) least_light[g] = LED_CLEARLY * job->quanta[g * job->rows + leader];
        for (i32 k = 0; k < size; k++) {
            if (absolute(light[k]) < least_light[job->grade[k]]) continue;
            add_both(sums + 2 * k, wasm_f64x2_mul(wasm_f64x2_splat(light[k]), wasm_f64x2_make(light[k], color[k])));
        }
    }
    find_slopes(job, job->phases, job->even_count + job->odd_count, 0);
}

static const double *foreseen(const Job *job, i32 row) {
    i32 leader = leader_of(job, row), size = job->size;
    const double *light = job->data + leader * size, *color = job->data + row * size;
    if (!job->led || leader < 0) return color;
    const i32 *slopes = job->slopes + job->near[row].channel * size;
    double *rest = job->worth + 2 * size, least_light[GRADES];
    for (i32 g = 0; g < job->grades; g++) least_light[g] = LED_CLEARLY * job->quanta[g * job->rows + leader];
    for (i32 k = 0; k < size; k++)
        rest[k] = absolute(light[k]) < least_light[job->grade[k]] ? color[k] : color[k] - light[k] * slopes[k] * job->shares[row] / (1 << (LED_BITS + SHARE_BITS));
    return rest;
}
