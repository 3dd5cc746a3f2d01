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

// Whether the basis of a job can be used this way.
static i32 prepare_quick(const Job *job) {
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
    return job->basis_bits == BITS && steepest && pair_up(across_pairs, job->factors_back + side * side, side) &&
           pair_up(lap_pairs, lap, TAPS);
}

#define DOT wasm_i32x4_dot_i16x8
#define SPLAT wasm_i32x4_splat

// What is not zero in a tile, by channel: rows of each column two by two, columns two by two.
typedef struct {
    u32 columns[COLORS], rows[COLORS][LARGEST_TILE];
    i32 rest[COLORS], largest[COLORS];  // the sum and the largest of all but the lowest component
} Filled;

// The tile, and whether its numbers are small enough for sums of them.
INLINE i32 look_through(const i32 *tile, Filled *filled, i32 side, i32 colors) {
    const v128_t others = wasm_i32x4_make(0, -1, -1, -1);
    __builtin_memset(filled, 0, sizeof *filled);
    for (i32 c = 0; c < colors; c++) {
        v128_t rest = SPLAT(0), largest = SPLAT(0);
        for (i32 j = 0; j < side; j++) {
            u32 rows = 0;
            for (i32 i = 0; i < side; i += 8, tile += 8) {
                v128_t first = wasm_v128_load(tile), second = wasm_v128_load(tile + 4);
                if (!wasm_v128_any_true(wasm_v128_or(first, second))) continue;
                u32 found = ~wasm_i16x8_bitmask(wasm_i16x8_narrow_i32x4(wasm_i32x4_eq(first, SPLAT(0)), wasm_i32x4_eq(second, SPLAT(0))));
                found = (found | found >> 1) & 0x55, found = (found | found >> 1) & 0x33;  // two by two
                rows |= ((found | found >> 2) & 0xf) << (i / 2);
                if (!(i | j)) first = wasm_v128_and(first, others);
                first = wasm_i32x4_abs(first), second = wasm_i32x4_abs(second);
                rest = wasm_i32x4_add(rest, wasm_i32x4_add(first, second));
                largest = wasm_i32x4_max(largest, wasm_i32x4_max(first, second));
            }
            filled->rows[c][j] = rows;
            filled->columns[c] |= (rows > 0) << (j >> 1);
        }
        i32 sums[4], most[4];
        wasm_v128_store(sums, rest), wasm_v128_store(most, largest);
        for (i32 k = 0; k < 4; k++) {
            if (most[k] > LARGEST_OTHER) return 0;
            filled->rest[c] += sums[k];
            if (most[k] > filled->largest[c]) filled->largest[c] = most[k];
        }
    }
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

#define MULTIPLY(sum, values, factors) sum = wasm_i32x4_add(sum, DOT(values, wasm_v128_load(factors)))

// One column of coefficients down the tile: out[y] = sum over i of column[i] down[i][y].
INLINE void one_column(v128_t *out, const i32 *column, u32 used, i32 first, i32 wide, i32 side) {
    v128_t low[LARGEST_TILE / 4], high[LARGEST_TILE / 4];
    for (i32 k = 0; k < side / 4; k++) low[k] = high[k] = SPLAT(0);
    for (; used; used &= used - 1) {
        i32 p = __builtin_ctz(used);
        v128_t one = SPLAT(column[2 * p]), two = SPLAT(column[2 * p + 1]);
        i32 split = wide || (first && !p);
        v128_t values = split ? low_part(one, two) : joined(one, two), more = high_part(one, two);
        for (i32 k = 0; k < side / 4; k++) MULTIPLY(low[k], values, down_pairs[p][4 * k]);
        for (i32 k = 0; k < side / 4 && split; k++) MULTIPLY(high[k], more, down_pairs[p][4 * k]);
    }
    for (i32 k = 0; k < side / 4; k++) out[k] = halved(low[k], high[k]);
}

static i32 tile_ints[COLORS][LARGEST_TILE][LARGEST_TILE] __attribute__((aligned(16)));

INLINE void one_channel_as(i32 c, const i32 *values, const Filled *used, i32 wide, i32 side) {
    static i32 lows[LARGEST_TILE / 2][LARGEST_TILE] __attribute__((aligned(16))), highs[LARGEST_TILE / 2][LARGEST_TILE] __attribute__((aligned(16)));
    for (u32 left = used->columns[c]; left; left &= left - 1) {
        i32 q = __builtin_ctz(left);
        v128_t one[LARGEST_TILE / 4], two[LARGEST_TILE / 4];
        one_column(one, values + 2 * q * side, used->rows[c][2 * q], !q, wide, side);
        one_column(two, values + (2 * q + 1) * side, used->rows[c][2 * q + 1], 0, wide, side);
        for (i32 k = 0; k < side / 4; k++) {
            i32 split = wide || !q;
            wasm_v128_store(lows[q] + 4 * k, split ? low_part(one[k], two[k]) : joined(one[k], two[k]));
            if (split) wasm_v128_store(highs[q] + 4 * k, high_part(one[k], two[k]));
        }
    }
    for (i32 y = 0; y < side; y++) {
        v128_t low[LARGEST_TILE / 4], high[LARGEST_TILE / 4];
        for (i32 k = 0; k < side / 4; k++) low[k] = high[k] = SPLAT(0);
        for (u32 left = used->columns[c]; left; left &= left - 1) {
            i32 q = __builtin_ctz(left);
            v128_t values = wasm_v128_load32_splat(lows[q] + y);
            for (i32 k = 0; k < side / 4; k++) MULTIPLY(low[k], values, across_pairs[q][4 * k]);
            if (!wide && q) continue;
            values = wasm_v128_load32_splat(highs[q] + y);
            for (i32 k = 0; k < side / 4; k++) MULTIPLY(high[k], values, across_pairs[q][4 * k]);
        }
        for (i32 k = 0; k < side / 4; k++) wasm_v128_store(tile_ints[c][y] + 4 * k, halved(low[k], high[k]));
    }
}

// The first is for most; they are compiled where the program starts, so there are not more of them.
APART void one_channel(i32 c, const i32 *values, const Filled *used, i32 narrow, i32 side) {
    if (narrow && side == 8) one_channel_as(c, values, used, 0, 8);
    else one_channel_as(c, values, used, !narrow, side);
}

// One tile into planes; what it returns is too large if any sample might be.
INLINE v128_t quick_tile(const Job *job, const Filled *used, const i32 *values, i16 *planes, i32 area, i32 width, i32 side, i32 colors) {
    for (i32 c = 0; c < colors; c++) {
        i64 rest = used->rest[c];
        i32 narrow = rest <= LARGEST_REST && used->largest[c] <= LARGEST_SHORT && rest * steepest <= (i64)LARGEST_SHORT << BITS;
        one_channel(c, values + c * side * side, used, narrow, side);
    }
    const double *mixing = job->factors_back + 2 * side * side;
    v128_t factors[COLORS][COLORS], largest = SPLAT(0), half = SPLAT(1 << (BITS - 1));
    for (i32 c = 0; c < colors; c++)
        for (i32 k = 0; k < colors; k++) factors[c][k] = SPLAT((i32)mixing[c * colors + k]);
    for (i32 y = 0; y < side; y++)
        for (i32 x = 0; x < side; x += 8) {
            v128_t sums[COLORS][2];
            for (i32 h = 0; h < 2; h++) {
                v128_t total = SPLAT(0);
                for (i32 k = 0; k < colors; k++) sums[k][h] = half;
                for (i32 c = 0; c < colors; c++) {
                    v128_t value = wasm_v128_load(tile_ints[c][y] + x + 4 * h);
                    total = wasm_i32x4_add(total, wasm_i32x4_abs(value));
                    for (i32 k = 0; k < colors; k++) sums[k][h] = wasm_i32x4_add(sums[k][h], wasm_i32x4_mul(value, factors[c][k]));
                }
                largest = wasm_u32x4_max(largest, total);
            }
            for (i32 k = 0; k < colors; k++) {
                for (i32 h = 0; h < 2; h++) sums[k][h] = wasm_i32x4_sub(wasm_i32x4_shr(sums[k][h], BITS), SPLAT(GREY));
                wasm_v128_store(planes + k * area + y * width + x, wasm_i16x8_narrow_i32x4(sums[k][0], sums[k][1]));
            }
        }
    return largest;
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
                MULTIPLY(low, pairs[q], lap_pairs[q][0]);
                MULTIPLY(high, pairs[q], lap_pairs[q][4]);
            }
            wasm_v128_store(at, quick_border(low, high, &largest));
        }
    return largest;
}

// The planes of a picture, a line of tiles after the other while they are in the cache. Whether all is exact.
static i32 synthesize_quick(const Job *job, const Shape *shape) {
    i32 side = job->side, colors = job->colors, height = shape->down * side, width = shape->right * side, area = height * width;
    i16 *planes = (i16 *)job->planes;
    static Filled filled;
    v128_t mixed = SPLAT(0), largest = SPLAT(0), most = wasm_i16x8_splat(LARGEST_SAMPLE);
    for (i32 row = 0; row < shape->down; row++) {
        i16 *line = planes + row * side * width;
        for (i32 column = 0; column < shape->right; column++) {
            const i32 *tile = job->tiles + (shape->place + row * job->stride + column) * colors * side * side;
            v128_t found;
            if (side == 8 && colors == 3) {
                if (!look_through(tile, &filled, 8, 3)) return 0;
                found = quick_tile(job, &filled, tile, line + column * side, area, width, 8, 3);
            } else {
                if (!look_through(tile, &filled, side, colors)) return 0;
                found = quick_tile(job, &filled, tile, line + column * side, area, width, side, colors);
            }
            mixed = wasm_u32x4_max(mixed, found);
        }
        for (i32 c = 0; c < colors; c++) {
            i16 *own = line + c * area;
            for (i32 x = 0; x < side * width; x += 8) largest = wasm_u16x8_max(largest, wasm_i16x8_abs(wasm_v128_load(own + x)));
            if (!job->lapped) continue;
            largest = quick_right(own, side, width, side, largest);
            if (row) largest = quick_down(own - REACH * width, width, largest);
        }
    }
    return !wasm_v128_any_true(wasm_u32x4_gt(mixed, SPLAT(LARGEST_MIXED))) && !wasm_v128_any_true(wasm_u16x8_gt(largest, most));
}
