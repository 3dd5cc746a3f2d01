// The network before the filter (learned.py), line after line: each layer only as far as the next line needs it, so
// that all is in the cache. Two inputs at a time are multiplied with the weights of four outputs.

#include "samples.h"

enum { PLACES_AROUND = 9, GROUPS = MAPS / 4 };
enum { WEIGHT_BITS = 11, INVERSE_BITS = 15, CHANGE_BITS = 12 };
enum { FIRST_SHIFT = 9, LAST_SHIFT = 8 };

static struct {
    i32 inner, read, done;     // layers from maps to maps; rows of inputs and of corrected places so far
    i32 down, across, room;    // places; numbers of a row of maps
    i16 *lines, *inputs, *maps[1 + MOST_INNER], *none;
    const i16 *weights[2 + MOST_INNER];
    v128_t bias_first[PHASES][PHASES][GROUPS], bias_inner[MOST_INNER][GROUPS], bias_last;
} network;

INLINE v128_t four_ints(const i16 *numbers) { return wasm_i32x4_load16x4(numbers); }

static void start_network(const Job *job, const Shape *shape) {
    const i16 *numbers = job->network;
    network.inner = job->networked, network.read = network.done = 0;
    network.down = (shape->height + 1) / 2, network.across = (shape->width + 1) / 2, network.room = (network.across + MARGIN_PLACES) * MAPS;
    network.lines = job->layers, network.none = network.lines + job->colors * HELD_LINES * shape->stride;
    __builtin_memset(network.none, 0, 2 * network.room);
    for (i32 layer = 0; layer <= network.inner; layer++) network.maps[layer] = network.none + (1 + layer * HELD) * network.room;
    network.inputs = network.maps[network.inner] + HELD * network.room;
    network.weights[0] = numbers, numbers += PLACES_AROUND * INPUTS * MAPS;
    for (i32 k = 0; k < PHASES * PHASES * GROUPS; k++, numbers += 4) network.bias_first[k / GROUPS / PHASES][k / GROUPS % PHASES][k % GROUPS] = four_ints(numbers);
    for (i32 layer = 0; layer < network.inner; layer++) {
        network.weights[1 + layer] = numbers, numbers += PLACES_AROUND * MAPS * MAPS;
        for (i32 k = 0; k < GROUPS; k++, numbers += 4) network.bias_inner[layer][k] = four_ints(numbers);
    }
    network.weights[1 + network.inner] = numbers, numbers += PLACES_AROUND * MAPS * INPUTS;
    network.bias_last = four_ints(numbers);
}

INLINE i16 *held_line(const Shape *shape, i32 c, i32 y) { return network.lines + (c * HELD_LINES + y % HELD_LINES) * shape->stride + 2; }
INLINE i16 *held_row(i16 *maps, i32 numbers, i32 row) { return maps + row % HELD * (numbers * (network.across + MARGIN_PLACES)) + numbers; }

// Which step a tile has.
INLINE i32 grade_of(const Job *job, const Shape *shape, i32 row, i32 column) {
    return job->grades > 1 ? job->grade[shape->place + row * job->stride + column] : 0;
}

// Eight samples of brightness.
INLINE v128_t light_at(const Job *job, const Shape *shape, i32 x, i32 y) {
    v128_t own = SHORTS(held_line(shape, 0, y) + x), middle = wasm_i16x8_splat(LEARNED_MIDDLE);
    if (job->colors < 3) return wasm_i16x8_sub(own, middle);
    v128_t twice = wasm_i16x8_shl(SHORTS(held_line(shape, 1, y) + x), 1), third = SHORTS(held_line(shape, 2, y) + x);
    return wasm_i16x8_sub(wasm_i16x8_shr(wasm_i16x8_add(wasm_i16x8_add(own, third), twice), 2), middle);
}

// Two lines of samples become a row of places.
static void input_row(const Job *job, const Shape *shape, i32 quick, i32 row) {
    i32 above = 2 * row, below = least(2 * row + 1, shape->height - 1), across = network.across;
    for (i32 y = above; y <= below; y++)
        for (i32 c = 0; c < job->colors; c++) to_shorts(job, shape, quick, c, y, held_line(shape, c, y));
    i16 *out = held_row(network.inputs, INPUTS, row);
    for (i32 x = 0; x < shape->width; x += 8) {
        v128_t one = light_at(job, shape, x, above), two = light_at(job, shape, x, below);
        wasm_v128_store(out + 2 * x, wasm_i32x4_shuffle(one, two, 0, 4, 1, 5));
        wasm_v128_store(out + 2 * x + 8, wasm_i32x4_shuffle(one, two, 2, 6, 3, 7));
    }
    __builtin_memcpy(out - INPUTS, out, 2 * INPUTS);
    __builtin_memcpy(out + INPUTS * across, out + INPUTS * (across - 1), 2 * INPUTS);
}

// Sums over the places around `count` of them, beside one another, for some groups of four outputs.
INLINE void convolve(v128_t *sums, const i16 *const *rows, i32 inputs, const i16 *weights, i32 groups, i32 count) {
    for (i32 down = 0; down < 3; down++)
        for (i32 right = 0; right < 3; right++) {
            const i16 *in = rows[down] + (right - 1) * inputs;
            for (i32 pair = 0; pair < inputs / 2; pair++, weights += 8 * groups)
                for (i32 k = 0; k < count; k++) {
                    v128_t both = wasm_v128_load32_splat(in + k * inputs + 2 * pair);
                    for (i32 g = 0; g < groups; g++) sums[k * groups + g] = wasm_i32x4_add(sums[k * groups + g], wasm_i32x4_dot_i16x8(both, wasm_v128_load(weights + 8 * g)));
                }
        }
}

// Four groups of sums as maps: nothing is below zero.
INLINE void put_maps(i16 *out, const v128_t *sums) {
    for (i32 h = 0; h < 2; h++) wasm_v128_store(out + 8 * h, wasm_i16x8_max(wasm_i16x8_narrow_i32x4(sums[2 * h], sums[2 * h + 1]), wasm_i16x8_splat(0)));
}

// Beside a picture there is nothing.
static void clear_beside(i16 *row) {
    __builtin_memset(row - MAPS, 0, 2 * MAPS);
    __builtin_memset(row + MAPS * network.across, 0, 2 * MAPS);
}

// What varies around each place, in units of the step there.
static void first_row(const Job *job, const Shape *shape, i32 row) {
    const i16 *rows[3];
    for (i32 k = 0; k < 3; k++) rows[k] = held_row(network.inputs, INPUTS, clipped(row + k - 1, 0, network.down - 1));
    i16 *out = held_row(network.maps[0], MAPS, row);
    for (i32 x = 0; x < network.across; x += 2) {
        v128_t sums[2 * GROUPS], inverse = wasm_i32x4_splat(job->inverses[grade_of(job, shape, row / PHASES, x / PHASES)]);
        for (i32 k = 0; k < 2 * GROUPS; k++) sums[k] = wasm_i32x4_splat(1 << (FIRST_SHIFT - 1));
        const i16 *here[3] = {rows[0] + INPUTS * x, rows[1] + INPUTS * x, rows[2] + INPUTS * x};
        convolve(sums, here, INPUTS, network.weights[0], GROUPS, 2);
        for (i32 k = 0; k < 2 * GROUPS; k++) {
            v128_t scaled = wasm_i32x4_mul(wasm_i32x4_shr(sums[k], FIRST_SHIFT), inverse);
            scaled = wasm_i32x4_shr(wasm_i32x4_add(scaled, wasm_i32x4_splat(1 << (INVERSE_BITS - 1))), INVERSE_BITS);
            sums[k] = wasm_i32x4_add(scaled, network.bias_first[row % PHASES][(x + k / GROUPS) % PHASES][k % GROUPS]);
        }
        put_maps(out + MAPS * x, sums);
        put_maps(out + MAPS * (x + 1), sums + GROUPS);
    }
    clear_beside(out);
}

static const i16 *row_or_none(i16 *maps, i32 row) { return row < 0 || row >= network.down ? network.none + MAPS : held_row(maps, MAPS, row); }

static void inner_row(i32 layer, i32 row) {
    const i16 *rows[3], *weights = network.weights[layer];
    for (i32 k = 0; k < 3; k++) rows[k] = row_or_none(network.maps[layer - 1], row + k - 1);
    i16 *out = held_row(network.maps[layer], MAPS, row);
    for (i32 x = 0; x < network.across; x += 2) {
        v128_t sums[2 * GROUPS];
        for (i32 k = 0; k < 2 * GROUPS; k++) sums[k] = wasm_i32x4_splat(1 << (WEIGHT_BITS - 1));
        const i16 *here[3] = {rows[0] + MAPS * x, rows[1] + MAPS * x, rows[2] + MAPS * x};
        convolve(sums, here, MAPS, weights, GROUPS, 2);
        for (i32 k = 0; k < 2 * GROUPS; k++) sums[k] = wasm_i32x4_add(wasm_i32x4_shr(sums[k], WEIGHT_BITS), network.bias_inner[layer - 1][k % GROUPS]);
        put_maps(out + MAPS * x, sums);
        put_maps(out + MAPS * (x + 1), sums + GROUPS);
    }
    clear_beside(out);
}

// Eight samples of a line of all colors change.
INLINE void change_eight(const Job *job, const Shape *shape, i32 x, i32 y, v128_t change) {
    if (y >= shape->height) return;
    for (i32 c = 0; c < job->colors - (job->colors % 2 == 0); c++) {
        i16 *at = held_line(shape, c, y) + x;
        v128_t found = wasm_i16x8_add_sat(SHORTS(at), change);
        wasm_v128_store(at, wasm_i16x8_max(wasm_i16x8_min(found, wasm_i16x8_splat(BRIGHTEST)), wasm_i16x8_splat(DARKEST)));
    }
}

static void last_row(const Job *job, const Shape *shape, i32 row) {
    const v128_t most = wasm_i32x4_splat(MOST_CHANGE), half = wasm_i32x4_splat(1 << (CHANGE_BITS - 1));
    const i16 *rows[3];
    for (i32 k = 0; k < 3; k++) rows[k] = row_or_none(network.maps[network.inner], row + k - 1);
    for (i32 x = 0; x < network.across; x += PHASES) {  // a tile at a time
        v128_t sums[PHASES], scale = wasm_i32x4_splat(job->scales[grade_of(job, shape, row / PHASES, x / PHASES)]);
        for (i32 k = 0; k < PHASES; k++) sums[k] = wasm_i32x4_splat(1 << (LAST_SHIFT - 1));
        const i16 *here[3] = {rows[0] + MAPS * x, rows[1] + MAPS * x, rows[2] + MAPS * x};
        convolve(sums, here, MAPS, network.weights[1 + network.inner], 1, PHASES);
        for (i32 k = 0; k < PHASES; k++) {
            v128_t found = wasm_i32x4_add(wasm_i32x4_shr(sums[k], LAST_SHIFT), network.bias_last);
            found = wasm_i32x4_max(wasm_i32x4_min(found, most), wasm_i32x4_neg(most));
            sums[k] = wasm_i32x4_shr(wasm_i32x4_add(wasm_i32x4_mul(found, scale), half), CHANGE_BITS);
        }
        v128_t left = wasm_i16x8_narrow_i32x4(sums[0], sums[1]), right = wasm_i16x8_narrow_i32x4(sums[2], sums[3]);
        change_eight(job, shape, 2 * x, 2 * row, wasm_i32x4_shuffle(left, right, 0, 2, 4, 6));
        change_eight(job, shape, 2 * x, 2 * row + 1, wasm_i32x4_shuffle(left, right, 1, 3, 5, 7));
    }
    for (i32 y = 2 * row; y < least(2 * row + 2, shape->height); y++)
        for (i32 c = 0; c < job->colors; c++) fill_margins(shape, held_line(shape, c, y));
}

INLINE i32 is_row(i32 row) { return row >= 0 && row < network.down; }

// A row of inputs comes in, and each layer goes on by the row that it can make with it.
static void advance(const Job *job, const Shape *shape, i32 quick) {
    i32 row = network.read++;
    if (is_row(row)) input_row(job, shape, quick, row);
    if (is_row(--row)) first_row(job, shape, row);
    for (i32 layer = 1; layer <= network.inner; layer++)
        if (is_row(--row)) inner_row(layer, row);
    if (is_row(--row)) last_row(job, shape, row), network.done = row + 1;
}

// A corrected line of a channel: those who ask go down the picture.
static const i16 *learned_line(const Job *job, const Shape *shape, i32 quick, i32 c, i32 y) {
    while (2 * network.done <= y) advance(job, shape, quick);
    return held_line(shape, c, y);
}
