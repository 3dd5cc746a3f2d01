// Coefficients of tiles to pictures in 16- and 32-bit integers: the same bits as pixels.h, in a third of the time.
//
// It serves all that pictures are made of. Where a number might not fit, in blocks that no picture gave, the
// answer is no, and doubles do the work.
//
// A product of two pairs of 16-bit numbers is one instruction. A number that is too large for it goes in two
// parts, its lowest ten bits and the rest, which are added up apart: rounding down twice is rounding down once.

#include "pixels.h"

enum { BITS = 15, LOW_BITS = 10, LOW_MASK = (1 << LOW_BITS) - 1, TAPS = 2 * REACH };
enum { LARGEST_OTHER = 1 << 20, LARGEST_SHORT = 32767, LARGEST_REST = 57000, LARGEST_MIXED = 63000, LARGEST_SAMPLE = 31000 };
enum { GREY = 128 << SCALE_BITS };  // samples are counted from here: borders are filtered alike

typedef i16 Pairs[LARGEST_TILE / 2][LARGEST_TILE][2];

static Pairs down_pairs, across_pairs, lap_pairs;
static v128_t down_fours[LARGEST_TILE / 2][LARGEST_TILE], across_fours[LARGEST_TILE / 2][LARGEST_TILE];  // pairs of factors
static i32 steepest;  // the largest factor down a tile

static i32 pair_up(Pairs pairs, const double *matrix, i32 side) {
    i32 largest = 0;
    for (i32 r = 0; r < side; r++)
        for (i32 k = 0; k < side; k++) {
            double factor = matrix[r * side + k];
            if (absolute(factor) > LARGEST_SHORT) return 0;
            pairs[r / 2][k][r % 2] = (i32)factor;
            if (absolute(factor) > largest) largest = absolute(factor);
        }
    return largest + 1;
}

#define DOT wasm_i32x4_dot_i16x8
#define SPLAT wasm_i32x4_splat

// Tiles are made four at a time: an entry of every vector belongs to each.
enum { AT_ONCE = 4 };

// Of a channel of four tiles: how many pairs of rows and of columns hold anything, and whether all numbers are small.
typedef struct {
    i32 rows, columns, narrow;
} Extent;

static u32 known_pairs[COLORS][LARGEST_TILE];  // of rows, by channel and column: those that hold anything in any tile

// Of two components that are taken together, both are written or none.
static void pair_values(Job *job) {
    i32 side = job->side, slot = 0;
    for (i32 c = 0; c < job->colors; c++)
        for (i32 j = 0; j < side; j++) {
            known_pairs[c][j] = 0;
            for (i32 p = 0; p < side / 2; p++, slot += 2) {
                if (!(job->touched[slot] | job->touched[slot + 1])) continue;
                slot_values(job, slot), slot_values(job, slot + 1);
                known_pairs[c][j] |= 1u << p;
            }
        }
}

// Whether the basis of a job can be used this way.
static i32 prepare_quick(Job *job) {
    i32 side = job->side;
    double lap[TAPS * TAPS];
    for (i32 r = 0; r < REACH; r++)
        for (i32 k = 0; k < REACH; k++) {
            double even = job->lap_after[REACH * r + k], odd = job->lap_after[REACH * REACH + REACH * r + k];
            lap[k * TAPS + r] = lap[(7 - k) * TAPS + 7 - r] = even + odd;
            lap[(7 - k) * TAPS + r] = lap[k * TAPS + 7 - r] = even - odd;
        }
    for (i32 k = 0; k < job->colors * job->colors; k++)
        if (absolute(job->factors_back[2 * side * side + k]) > 1 << BITS) return 0;
    steepest = pair_up(down_pairs, job->factors_back, side);
    if (job->basis_bits != BITS || !steepest || !pair_up(across_pairs, job->factors_back + side * side, side) || !pair_up(lap_pairs, lap, TAPS)) return 0;
    for (i32 p = 0; p < side / 2; p++)
        for (i32 k = 0; k < side; k++) down_fours[p][k] = wasm_v128_load32_splat(down_pairs[p][k]), across_fours[p][k] = wasm_v128_load32_splat(across_pairs[p][k]);
    pair_values(job);
    return 1;
}

INLINE v128_t low_part(v128_t first, v128_t second) {
    v128_t mask = SPLAT(LOW_MASK);
    return wasm_v128_or(wasm_v128_and(first, mask), wasm_i32x4_shl(wasm_v128_and(second, mask), 16));
}

INLINE v128_t joined(v128_t first, v128_t second) {
    return wasm_v128_or(wasm_v128_and(first, SPLAT(0xffff)), wasm_i32x4_shl(second, 16));
}

INLINE v128_t high_part(v128_t first, v128_t second) {
    return joined(wasm_i32x4_shr(first, LOW_BITS), wasm_i32x4_shr(second, LOW_BITS));
}

INLINE v128_t halved(v128_t low, v128_t high) {  // (low + high 2^10) / 2^15, rounded half up
    low = wasm_i32x4_add(low, SPLAT(1 << (BITS - 1)));
    return wasm_i32x4_shr(wasm_i32x4_add(high, wasm_i32x4_shr(low, LOW_BITS)), BITS - LOW_BITS);
}

#define MULTIPLY(sum, values, factors) sum = wasm_i32x4_add(sum, DOT(values, factors))
#define FOUR(slot) wasm_v128_and(wasm_v128_load(values + (slot) * apart), lanes)

// What a channel of four tiles holds. Whether its numbers are small enough for sums of them.
INLINE i32 look_through(const i32 *values, i32 apart, v128_t lanes, const u32 *known, i32 side, Extent *extent) {
    v128_t rest = SPLAT(0), largest = SPLAT(0), rows[LARGEST_TILE / 2];
    for (i32 p = 0; p < side / 2; p++) rows[p] = SPLAT(0);
    i32 columns = 0, used = 0, narrow = 1, sums[4], most[4];
    for (i32 j = 0; j < side; j++) {
        v128_t column = SPLAT(0);
        for (i32 p = 0; p < side / 2; p++) {
            if (!(known[j] >> p & 1)) continue;
            v128_t one = wasm_i32x4_abs(FOUR(j * side + 2 * p)), two = wasm_i32x4_abs(FOUR(j * side + 2 * p + 1));
            v128_t both = wasm_v128_or(one, two);
            rows[p] = wasm_v128_or(rows[p], both), column = wasm_v128_or(column, both);
            if (!(j | p)) one = SPLAT(0);  // the lowest component has a way of its own
            rest = wasm_i32x4_add(rest, wasm_i32x4_add(one, two));
            largest = wasm_i32x4_max(largest, wasm_i32x4_max(one, two));
        }
        columns = wasm_v128_any_true(column) ? j / 2 + 1 : columns;
    }
    for (i32 p = 0; p < side / 2; p++) used = wasm_v128_any_true(rows[p]) ? p + 1 : used;
    wasm_v128_store(sums, rest), wasm_v128_store(most, largest);
    for (i32 k = 0; k < 4; k++) {
        if (most[k] > LARGEST_OTHER) return 0;
        narrow &= sums[k] <= LARGEST_REST && most[k] <= LARGEST_SHORT && (i64)sums[k] * steepest <= (i64)LARGEST_SHORT << BITS;
    }
    *extent = (Extent){used, columns, narrow};
    return 1;
}

// Up to eight sums of products with pairs of numbers, rounded; the first pairs have a high part, too.
INLINE void some_sums(v128_t *out, i32 some, const v128_t *pairs, const v128_t *high, i32 count, i32 split, v128_t (*factors)[LARGEST_TILE], i32 at) {
    v128_t sums[8];
    for (i32 k = 0; k < some; k++) sums[k] = SPLAT(1 << (BITS - 1));
    for (i32 p = 0; p < count; p++)
        for (i32 k = 0; k < some; k++) MULTIPLY(sums[k], pairs[p], factors[p][at + k]);
    if (!split)
        for (i32 k = 0; k < some; k++) out[k] = wasm_i32x4_shr(sums[k], BITS);
    else {
        for (i32 k = 0; k < some; k++) sums[k] = wasm_i32x4_shr(sums[k], LOW_BITS);
        for (i32 p = 0; p < split; p++)
            for (i32 k = 0; k < some; k++) MULTIPLY(sums[k], high[p], factors[p][at + k]);
        for (i32 k = 0; k < some; k++) out[k] = wasm_i32x4_shr(sums[k], BITS - LOW_BITS);
    }
}

static v128_t tile_columns[LARGEST_TILE][LARGEST_TILE];        // [column][y]
static v128_t tile_ints[COLORS][LARGEST_TILE * LARGEST_TILE];  // [channel][y, x]

INLINE void one_channel_as(v128_t *out, const i32 *values, i32 apart, v128_t lanes, const u32 *known, const Extent *extent, i32 wide, i32 side) {
    v128_t pairs[LARGEST_TILE / 2], high[LARGEST_TILE / 2];
    const i32 some = least(side, 8);
    i32 rows = extent->rows, columns = extent->columns;
    for (i32 j = 0; j < 2 * columns; j++) {
        i32 split = wide ? rows : least(rows, !j);
        for (i32 p = 0; p < rows; p++) {
            if (!(known[j] >> p & 1)) {
                pairs[p] = high[p] = SPLAT(0);
                continue;
            }
            v128_t one = FOUR(j * side + 2 * p), two = FOUR(j * side + 2 * p + 1);
            if (p < split) pairs[p] = low_part(one, two), high[p] = high_part(one, two);
            else pairs[p] = joined(one, two);
        }
        for (i32 y = 0; y < side; y += some) some_sums(tile_columns[j] + y, some, pairs, high, rows, split, down_fours, y);
    }
    for (i32 y = 0; y < side; y++) {
        i32 split = wide ? columns : least(columns, 1);
        for (i32 q = 0; q < columns; q++) {
            v128_t one = tile_columns[2 * q][y], two = tile_columns[2 * q + 1][y];
            if (q < split) pairs[q] = low_part(one, two), high[q] = high_part(one, two);
            else pairs[q] = joined(one, two);
        }
        for (i32 x = 0; x < side; x += some) some_sums(out + y * side + x, some, pairs, high, columns, split, across_fours, x);
    }
}

// The first is for most; they are compiled where the program starts, so there are not more of them.
APART void one_channel(v128_t *out, const i32 *values, i32 apart, v128_t lanes, const u32 *known, const Extent *extent, i32 side) {
    if (extent->narrow && side == 4) one_channel_as(out, values, apart, lanes, known, extent, 0, 4);
    else if (extent->narrow && side == 8) one_channel_as(out, values, apart, lanes, known, extent, 0, 8);
    else one_channel_as(out, values, apart, lanes, known, extent, !extent->narrow, side);
}

// Eight samples of four tiles, a line of each, to where they belong.
INLINE void store_lines(const v128_t *samples, i16 *line, i32 side, i32 count) {
    v128_t one = wasm_i16x8_narrow_i32x4(samples[0], samples[1]), two = wasm_i16x8_narrow_i32x4(samples[2], samples[3]);
    v128_t three = wasm_i16x8_narrow_i32x4(samples[4], samples[5]), four = wasm_i16x8_narrow_i32x4(samples[6], samples[7]);
    // in each of these, two samples of tile 0, of tile 1, ..
    one = wasm_i16x8_shuffle(one, one, 0, 4, 1, 5, 2, 6, 3, 7), two = wasm_i16x8_shuffle(two, two, 0, 4, 1, 5, 2, 6, 3, 7);
    three = wasm_i16x8_shuffle(three, three, 0, 4, 1, 5, 2, 6, 3, 7), four = wasm_i16x8_shuffle(four, four, 0, 4, 1, 5, 2, 6, 3, 7);
    v128_t a = wasm_i32x4_shuffle(one, two, 0, 4, 1, 5), b = wasm_i32x4_shuffle(one, two, 2, 6, 3, 7);
    v128_t c = wasm_i32x4_shuffle(three, four, 0, 4, 1, 5), d = wasm_i32x4_shuffle(three, four, 2, 6, 3, 7);
    wasm_v128_store(line, wasm_i64x2_shuffle(a, c, 0, 2));
    if (count > 1) wasm_v128_store(line + side, wasm_i64x2_shuffle(a, c, 1, 3));
    if (count > 2) wasm_v128_store(line + 2 * side, wasm_i64x2_shuffle(b, d, 0, 2));
    if (count > 3) wasm_v128_store(line + 3 * side, wasm_i64x2_shuffle(b, d, 1, 3));
}

// Four samples of four small tiles, a line of each: they lie beside one another.
INLINE void store_small_lines(const v128_t *samples, i16 *line, i32 count) {
    v128_t one = wasm_i16x8_narrow_i32x4(samples[0], samples[1]), two = wasm_i16x8_narrow_i32x4(samples[2], samples[3]);
    one = wasm_i16x8_shuffle(one, one, 0, 4, 1, 5, 2, 6, 3, 7), two = wasm_i16x8_shuffle(two, two, 0, 4, 1, 5, 2, 6, 3, 7);
    v128_t low = wasm_i32x4_shuffle(one, two, 0, 4, 1, 5), high = wasm_i32x4_shuffle(one, two, 2, 6, 3, 7);
    wasm_v128_store64_lane(line, low, 0);
    if (count > 1) wasm_v128_store64_lane(line + 4, low, 1);
    if (count > 2) wasm_v128_store64_lane(line + 8, high, 0);
    if (count > 3) wasm_v128_store64_lane(line + 12, high, 1);
}

// Up to four tiles into planes; the answer is no if a sum may not fit, or holds the largest.
INLINE i32 quick_tiles(const Job *job, i32 place, i32 count, i16 *planes, i32 area, i32 width, i32 side, i32 colors, v128_t *largest) {
    const v128_t lanes = wasm_i32x4_make(-1, count > 1 ? -1 : 0, count > 2 ? -1 : 0, count > 3 ? -1 : 0);
    for (i32 c = 0; c < colors; c++) {
        const i32 *values = job->tiles + c * side * side * job->apart + place;
        Extent extent;
        if (!look_through(values, job->apart, lanes, known_pairs[c], side, &extent)) return 0;
        one_channel(tile_ints[c], values, job->apart, lanes, known_pairs[c], &extent, side);
    }
    const double *mixing = job->factors_back + 2 * side * side;
    v128_t factors[COLORS][COLORS], half = SPLAT(1 << (BITS - 1)), most = *largest;
    for (i32 c = 0; c < colors; c++)
        for (i32 k = 0; k < colors; k++) factors[c][k] = SPLAT((i32)mixing[c * colors + k]);
    const i32 some = least(side, 8);
    for (i32 y = 0; y < side; y++)
        for (i32 x = 0; x < side; x += some) {
            v128_t sums[COLORS][8];
            for (i32 h = 0; h < some; h++) {
                v128_t total = SPLAT(0), found[COLORS];
                for (i32 k = 0; k < colors; k++) found[k] = half;
                for (i32 c = 0; c < colors; c++) {
                    v128_t value = tile_ints[c][y * side + x + h];
                    total = wasm_i32x4_add(total, wasm_i32x4_abs(value));
                    for (i32 k = 0; k < colors; k++) found[k] = wasm_i32x4_add(found[k], wasm_i32x4_mul(value, factors[c][k]));
                }
                most = wasm_u32x4_max(most, total);
                for (i32 k = 0; k < colors; k++) sums[k][h] = wasm_i32x4_sub(wasm_i32x4_shr(found[k], BITS), SPLAT(GREY));
            }
            for (i32 k = 0; k < colors; k++) {
                i16 *line = planes + k * area + y * width + x;
                if (side == 4) store_small_lines(sums[k], line, count);
                else store_lines(sums[k], line, side, count);
            }
        }
    *largest = most;
    return 1;
}

// Eight samples across a tile border in 32 bits, four columns or lines at a time; the answer holds the largest.
INLINE v128_t quick_border(v128_t low, v128_t high, v128_t *largest) {
    v128_t half = SPLAT(1 << LAP_BITS);
    low = wasm_i32x4_shr(wasm_i32x4_add(low, half), LAP_BITS + 1), high = wasm_i32x4_shr(wasm_i32x4_add(high, half), LAP_BITS + 1);
    v128_t found = wasm_i16x8_narrow_i32x4(low, high);
    *largest = wasm_u16x8_max(*largest, wasm_i16x8_abs(found));
    return found;
}

INLINE v128_t all_taps(const v128_t *pairs, i32 r) {
    v128_t sum = DOT(pairs[0], wasm_v128_load32_splat(lap_pairs[0][r]));
    for (i32 q = 1; q < REACH; q++) sum = wasm_i32x4_add(sum, DOT(pairs[q], wasm_v128_load32_splat(lap_pairs[q][r])));
    return sum;
}

static v128_t quick_down(i16 *plane, i32 width, v128_t largest) {
    for (i32 x = 0; x < width; x += 8) {
        v128_t low[REACH], high[REACH];
        for (i32 q = 0; q < REACH; q++) {
            v128_t one = wasm_v128_load(plane + 2 * q * width + x), two = wasm_v128_load(plane + (2 * q + 1) * width + x);
            low[q] = wasm_i16x8_shuffle(one, two, 0, 8, 1, 9, 2, 10, 3, 11);
            high[q] = wasm_i16x8_shuffle(one, two, 4, 12, 5, 13, 6, 14, 7, 15);
        }
        for (i32 r = 0; r < TAPS; r++) wasm_v128_store(plane + r * width + x, quick_border(all_taps(low, r), all_taps(high, r), &largest));
    }
    return largest;
}

static v128_t quick_right(i16 *plane, i32 height, i32 width, i32 side, v128_t largest) {
    for (i32 y = 0; y < height; y++)
        for (i32 x = side; x < width; x += side) {
            i16 *at = plane + y * width + x - REACH;
            v128_t samples = wasm_v128_load(at), low = SPLAT(0), high = low;
            v128_t pairs[REACH] = {
                wasm_i32x4_shuffle(samples, samples, 0, 0, 0, 0), wasm_i32x4_shuffle(samples, samples, 1, 1, 1, 1),
                wasm_i32x4_shuffle(samples, samples, 2, 2, 2, 2), wasm_i32x4_shuffle(samples, samples, 3, 3, 3, 3),
            };
            for (i32 q = 0; q < REACH; q++) {
                MULTIPLY(low, pairs[q], wasm_v128_load(lap_pairs[q][0]));
                MULTIPLY(high, pairs[q], wasm_v128_load(lap_pairs[q][4]));
            }
            wasm_v128_store(at, quick_border(low, high, &largest));
        }
    return largest;
}

// Of the picture at work: how many lines of tiles are made, whether all fits so far, and the largest numbers.
static struct {
    i32 made, fits;
    v128_t mixed, largest;
} making;

static void start_making(i32 can) {
    making.made = 0, making.fits = can;
    making.mixed = making.largest = SPLAT(0);
}

// Whether all that was made is exact.
static i32 made_well(void) {
    v128_t wide = wasm_v128_or(wasm_u32x4_gt(making.mixed, SPLAT(LARGEST_MIXED)), wasm_u16x8_gt(making.largest, wasm_i16x8_splat(LARGEST_SAMPLE)));
    return making.fits && !wasm_v128_any_true(wide);
}

// The next line of tiles. Of the one before only those samples are kept that the border changes: all is in the cache.
APART void make_tiles(const Job *job, const Shape *shape) {
    i32 side = job->side, colors = job->colors, width = shape->right * side, area = (REACH + side) * width, row = making.made++;
    i16 *planes = (i16 *)job->planes, *line = planes + REACH * width;
    v128_t largest = making.largest, mixed = making.mixed;
    for (i32 c = 0; c < colors && row; c++) __builtin_memcpy(planes + c * area, planes + c * area + side * width, 2 * REACH * width);
    for (i32 column = 0; column < shape->right; column += AT_ONCE) {
        i32 place = shape->place + row * job->stride + column, count = least(AT_ONCE, shape->right - column);
        i16 *tiles = line + column * side;
        making.fits &= side == 8 && colors == 3 ? quick_tiles(job, place, count, tiles, area, width, 8, 3, &mixed) : side == 4 && colors == 3 ? quick_tiles(job, place, count, tiles, area, width, 4, 3, &mixed) : quick_tiles(job, place, count, tiles, area, width, side, colors, &mixed);
    }
    for (i32 c = 0; c < colors; c++) {
        i16 *own = line + c * area;
        for (i32 x = 0; x < side * width; x += 8) largest = wasm_u16x8_max(largest, wasm_i16x8_abs(wasm_v128_load(own + x)));
        if (!job->lapped) continue;
        largest = quick_right(own, side, width, side, largest);
        if (row) largest = quick_down(own - REACH * width, width, largest);
    }
    making.largest = largest, making.mixed = mixed;
}

// A line of a channel: those who ask go down the picture.
static const i16 *quick_line(const Job *job, const Shape *shape, i32 c, i32 y) {
    i32 side = job->side, later = job->lapped ? REACH : 0;
    while (making.made < shape->down && y >= making.made * side - later) make_tiles(job, shape);
    return (const i16 *)job->planes + (c * (REACH + side) + REACH + y - (making.made - 1) * side) * shape->right * side;
}
