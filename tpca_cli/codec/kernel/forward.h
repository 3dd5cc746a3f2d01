// Pictures to coefficients of tiles in 16- and 32-bit integers: the same bits as pixels.h, in a third of the time.
//
// It serves tiles of 8 x 8 with three colors. Where a number might not fit, as at edges between black and white that
// lie on corners of tiles, the answer is no, and doubles do the work.

#include "quick.h"

enum { TILE = 8, TRIPLE = 3, SQUARE = TILE * TILE, TOGETHER = 8 };
enum { LARGEST_LAPPED = 16383, LARGEST_ROW = 23100 };  // sums of two, and of eight with factors of a unit vector, fit

static v128_t before_low[REACH][2], before_right[2];      // factors of the odd half: by row; of all rows
static v128_t down_splats[TILE][TILE / 2], across_forward[TILE / 2][2];  // factors of two samples at a time
static i32 greys[TILE];                                   // what the grey that samples are counted from adds to a row
static v128_t color_pairs[TRIPLE][2];
static i32 staged[TOGETHER][TRIPLE][TILE][TILE] __attribute__((aligned(16)));

INLINE i32 both(double first, double second) { return ((i32)first & 0xffff) | (i32)((u32)(i32)second << 16); }

INLINE i32 too_steep(const double *factors, i32 count, i32 step) {
    double sum = 0;
    for (i32 k = 0; k < count; k++) sum += absolute(factors[k * step]);
    return sum * LARGEST_ROW > 0x7fffffff - (1 << (BITS + 1));
}

// Whether the basis of a job can be used this way.
static i32 prepare_forward(const Job *job) {
    if (job->side != TILE || job->colors != TRIPLE || job->basis_bits != BITS) return 0;
    const double *down = job->factors, *across = down + SQUARE, *mixing = across + SQUARE;
    const double *even = job->lap_before, *odd = even + REACH * REACH;
    for (i32 k = 0; k < REACH * REACH; k++) {
        if (even[k] != (k % (REACH + 1) ? 0 : 1 << LAP_BITS) || absolute(odd[k]) > LARGEST_SHORT) return 0;
    }
    for (i32 k = 0; k < 2 * SQUARE + TRIPLE * TRIPLE; k++)
        if (absolute(down[k]) > LARGEST_SHORT) return 0;
    for (i32 k = 0; k < TILE; k++)
        if (too_steep(down + k, TILE, TILE) || too_steep(across + k, TILE, TILE)) return 0;
    for (i32 q = 0; q < 2; q++) {
        i32 pairs[REACH];
        for (i32 r = 0; r < REACH; r++) {
            pairs[r] = both(odd[REACH * r + 2 * q], odd[REACH * r + 2 * q + 1]);
            before_low[r][q] = SPLAT(pairs[r]);
        }
        before_right[q] = wasm_v128_load(pairs);
    }
    for (i32 k = 0; k < TILE; k++) {
        double sum = 0;
        for (i32 r = 0; r < TILE; r++) sum += down[r * TILE + k];
        greys[k] = (i32)sum * (job->lapped ? GREY : GREY >> SCALE_BITS);
    }
    for (i32 q = 0; q < TILE / 2; q++) {
        i32 pairs[TILE];
        for (i32 k = 0; k < TILE; k++) {
            down_splats[k][q] = SPLAT(both(down[2 * q * TILE + k], down[(2 * q + 1) * TILE + k]));
            pairs[k] = both(across[2 * q * TILE + k], across[(2 * q + 1) * TILE + k]);
        }
        across_forward[q][0] = wasm_v128_load(pairs), across_forward[q][1] = wasm_v128_load(pairs + 4);
    }
    for (i32 k = 0; k < TRIPLE; k++) {
        color_pairs[k][0] = SPLAT(both(mixing[k], mixing[TRIPLE + k]));
        color_pairs[k][1] = SPLAT(both(mixing[2 * TRIPLE + k], 0));
    }
    return 1;
}

// Pixels (h, w, 3), continued by mirroring to whole tiles, as planes, counted from grey.
static void spread_quick(const Job *job, const Shape *shape, const u8 *pixels, i16 *planes) {
    i32 height = shape->down * TILE, width = shape->right * TILE, area = height * width;
    i32 shift = job->lapped ? SCALE_BITS : 0, grey = GREY >> (SCALE_BITS - shift);
    for (i32 y = 0; y < height; y++) {
        const u8 *line = pixels + mirrored(y, shape->height) * shape->width * TRIPLE;
        i16 *out = planes + y * width;
        i32 x = 0;
        for (; x + 8 <= shape->width; x += 8) {  // 24 bytes, as 16 and the last 16
            v128_t one = wasm_v128_load(line + 3 * x), two = wasm_v128_load(line + 3 * x + 8), none = SPLAT(0), base = wasm_i16x8_splat(grey);
            v128_t red = wasm_i8x16_shuffle(one, two, 0, 3, 6, 9, 12, 15, 26, 29, 0, 0, 0, 0, 0, 0, 0, 0);
            v128_t green = wasm_i8x16_shuffle(one, two, 1, 4, 7, 10, 13, 24, 27, 30, 0, 0, 0, 0, 0, 0, 0, 0);
            v128_t blue = wasm_i8x16_shuffle(one, two, 2, 5, 8, 11, 14, 25, 28, 31, 0, 0, 0, 0, 0, 0, 0, 0);
            v128_t found[TRIPLE] = {red, green, blue};
            for (i32 c = 0; c < TRIPLE; c++) {
                v128_t wide = wasm_i8x16_shuffle(found[c], none, 0, 16, 1, 16, 2, 16, 3, 16, 4, 16, 5, 16, 6, 16, 7, 16);
                wasm_v128_store(out + c * area + x, wasm_i16x8_sub(wasm_i16x8_shl(wide, shift), base));
            }
        }
        for (; x < width; x++)
            for (i32 c = 0; c < TRIPLE; c++) out[c * area + x] = (line[mirrored(x, shape->width) * TRIPLE + c] << shift) - grey;
    }
}

INLINE v128_t larger(v128_t largest, v128_t samples) { return wasm_u16x8_max(largest, wasm_i16x8_abs(samples)); }

#define TO_LAP(sum) wasm_i32x4_shr(sum, LAP_BITS + 1)

// Eight samples across borders below one another, eight columns at a time; the answer holds the largest.
static v128_t lap_down_quick(i16 *plane, i32 height, i32 width, v128_t largest) {
    const v128_t half = SPLAT(1 << LAP_BITS);
    for (i32 border = TILE; border < height; border += TILE)
        for (i32 x = 0; x < width; x += 8) {
            i16 *at = plane + (border - REACH) * width + x;
            v128_t even[REACH], odd[REACH];
            for (i32 k = 0; k < REACH; k++) {
                v128_t one = wasm_v128_load(at + k * width), two = wasm_v128_load(at + (7 - k) * width);
                even[k] = wasm_i16x8_add(one, two), odd[k] = wasm_i16x8_sub(one, two);
            }
            v128_t low[2], high[2];
            for (i32 q = 0; q < 2; q++) {
                low[q] = wasm_i16x8_shuffle(odd[2 * q], odd[2 * q + 1], 0, 8, 1, 9, 2, 10, 3, 11);
                high[q] = wasm_i16x8_shuffle(odd[2 * q], odd[2 * q + 1], 4, 12, 5, 13, 6, 14, 7, 15);
            }
            for (i32 r = 0; r < REACH; r++) {
                v128_t first = wasm_i32x4_add(wasm_i32x4_shl(wasm_i32x4_extend_low_i16x8(even[r]), LAP_BITS), half);
                v128_t second = wasm_i32x4_add(wasm_i32x4_shl(wasm_i32x4_extend_high_i16x8(even[r]), LAP_BITS), half);
                v128_t turn = wasm_i32x4_add(DOT(low[0], before_low[r][0]), DOT(low[1], before_low[r][1]));
                v128_t other = wasm_i32x4_add(DOT(high[0], before_low[r][0]), DOT(high[1], before_low[r][1]));
                v128_t above = wasm_i16x8_narrow_i32x4(TO_LAP(wasm_i32x4_add(first, turn)), TO_LAP(wasm_i32x4_add(second, other)));
                v128_t below = wasm_i16x8_narrow_i32x4(TO_LAP(wasm_i32x4_sub(first, turn)), TO_LAP(wasm_i32x4_sub(second, other)));
                wasm_v128_store(at + r * width, above), wasm_v128_store(at + (7 - r) * width, below);
                largest = larger(larger(largest, above), below);
            }
        }
    return largest;
}

// The same across borders beside one another, one line at a time.
static v128_t lap_right_quick(i16 *plane, i32 height, i32 width, v128_t largest) {
    const v128_t half = SPLAT(1 << LAP_BITS);
    for (i32 y = 0; y < height; y++)
        for (i32 border = TILE; border < width; border += TILE) {
            i16 *at = plane + y * width + border - REACH;
            v128_t samples = wasm_v128_load(at), turned = wasm_i16x8_shuffle(samples, samples, 7, 6, 5, 4, 3, 2, 1, 0);
            v128_t even = wasm_i16x8_add(samples, turned), odd = wasm_i16x8_sub(samples, turned);
            v128_t first = wasm_i32x4_add(wasm_i32x4_shl(wasm_i32x4_extend_low_i16x8(even), LAP_BITS), half);
            v128_t turn = wasm_i32x4_add(DOT(wasm_i32x4_shuffle(odd, odd, 0, 0, 0, 0), before_right[0]), DOT(wasm_i32x4_shuffle(odd, odd, 1, 1, 1, 1), before_right[1]));
            v128_t right = TO_LAP(wasm_i32x4_sub(first, turn));
            v128_t found = wasm_i16x8_narrow_i32x4(TO_LAP(wasm_i32x4_add(first, turn)), wasm_i32x4_shuffle(right, right, 3, 2, 1, 0));
            wasm_v128_store(at, found);
            largest = larger(largest, found);
        }
    return largest;
}

// One channel of a tile: down, then across, each rounded; the answer holds the largest but for the lowest four.
INLINE v128_t forward_channel_as(const i16 *plane, i32 width, i32 shift, i32 (*out)[TILE], v128_t largest, i32 steep) {
    v128_t low[TILE / 2], high[TILE / 2], half = SPLAT(1 << (shift - 1));
    for (i32 q = 0; q < TILE / 2; q++) {
        v128_t one = wasm_v128_load(plane + 2 * q * width), two = wasm_v128_load(plane + (2 * q + 1) * width);
        low[q] = wasm_i16x8_shuffle(one, two, 0, 8, 1, 9, 2, 10, 3, 11), high[q] = wasm_i16x8_shuffle(one, two, 4, 12, 5, 13, 6, 14, 7, 15);
    }
    for (i32 i = 0; i < TILE; i++) {
        const i32 whole = greys[i] >> shift;  // added after rounding: so all sums fit
        v128_t first = wasm_i32x4_add(half, SPLAT(greys[i] - (i32)((u32)whole << shift))), second = first;
        if (steep) {  // in two parts
            v128_t mask = wasm_i16x8_splat(LOW_MASK), one = SPLAT(0), two = SPLAT(0);
            for (i32 q = 0; q < TILE / 2; q++) {
                first = wasm_i32x4_add(first, DOT(wasm_v128_and(low[q], mask), down_splats[i][q]));
                second = wasm_i32x4_add(second, DOT(wasm_v128_and(high[q], mask), down_splats[i][q]));
                one = wasm_i32x4_add(one, DOT(wasm_i16x8_shr(low[q], LOW_BITS), down_splats[i][q]));
                two = wasm_i32x4_add(two, DOT(wasm_i16x8_shr(high[q], LOW_BITS), down_splats[i][q]));
            }
            first = wasm_i32x4_add(one, wasm_i32x4_shr(first, LOW_BITS)), second = wasm_i32x4_add(two, wasm_i32x4_shr(second, LOW_BITS));
            first = wasm_i32x4_shr(first, BITS - LOW_BITS), second = wasm_i32x4_shr(second, BITS - LOW_BITS);
        } else {
            for (i32 q = 0; q < TILE / 2; q++) {
                first = wasm_i32x4_add(first, DOT(low[q], down_splats[i][q]));
                second = wasm_i32x4_add(second, DOT(high[q], down_splats[i][q]));
            }
            first = wasm_i32x4_shr(first, shift), second = wasm_i32x4_shr(second, shift);
        }
        first = wasm_i32x4_add(first, SPLAT(whole)), second = wasm_i32x4_add(second, SPLAT(whole));
        v128_t most = wasm_u32x4_max(wasm_i32x4_abs(first), wasm_i32x4_abs(second)), sums[2] = {SPLAT(0), SPLAT(0)}, more[2] = {SPLAT(0), SPLAT(0)};
        i32 wide = wasm_v128_any_true(wasm_u32x4_gt(most, SPLAT(LARGEST_ROW)));
        v128_t mask = SPLAT(LOW_MASK);
        v128_t rest = wasm_i16x8_narrow_i32x4(wasm_i32x4_shr(first, LOW_BITS), wasm_i32x4_shr(second, LOW_BITS));
        v128_t row = wide ? wasm_i16x8_narrow_i32x4(wasm_v128_and(first, mask), wasm_v128_and(second, mask)) : wasm_i16x8_narrow_i32x4(first, second);
        v128_t values[TILE / 2] = {
            wasm_i32x4_shuffle(row, row, 0, 0, 0, 0), wasm_i32x4_shuffle(row, row, 1, 1, 1, 1),
            wasm_i32x4_shuffle(row, row, 2, 2, 2, 2), wasm_i32x4_shuffle(row, row, 3, 3, 3, 3),
        };
        for (i32 q = 0; q < TILE / 2; q++)
            for (i32 h = 0; h < 2; h++) sums[h] = wasm_i32x4_add(sums[h], DOT(values[q], across_forward[q][h]));
        if (wide) {
            v128_t larges[TILE / 2] = {
                wasm_i32x4_shuffle(rest, rest, 0, 0, 0, 0), wasm_i32x4_shuffle(rest, rest, 1, 1, 1, 1),
                wasm_i32x4_shuffle(rest, rest, 2, 2, 2, 2), wasm_i32x4_shuffle(rest, rest, 3, 3, 3, 3),
            };
            for (i32 q = 0; q < TILE / 2; q++)
                for (i32 h = 0; h < 2; h++) more[h] = wasm_i32x4_add(more[h], DOT(larges[q], across_forward[q][h]));
        }
        for (i32 h = 0; h < 2; h++) {
            v128_t found = halved(sums[h], more[h]);
            wasm_v128_store(out[i] + 4 * h, found);
            if (i | h) largest = wasm_u32x4_max(largest, wasm_i32x4_abs(found));
        }
    }
    return largest;
}

static v128_t forward_channel(const i16 *plane, i32 width, i32 shift, i32 (*out)[TILE], v128_t largest) {
    v128_t most = SPLAT(0);
    for (i32 r = 0; r < TILE; r++) most = larger(most, wasm_v128_load(plane + r * width));
    if (wasm_v128_any_true(wasm_u16x8_gt(most, wasm_i16x8_splat(LARGEST_ROW)))) return forward_channel_as(plane, width, shift, out, largest, 1);
    return forward_channel_as(plane, width, shift, out, largest, 0);
}

// Four components of a tile: each channel becomes what the basis makes of all three.
INLINE void forward_colors(i32 (*tile)[TILE][TILE], i32 i, i32 j, i32 wide) {
    v128_t values[TRIPLE], mask = SPLAT(LOW_MASK);
    for (i32 c = 0; c < TRIPLE; c++) values[c] = wasm_v128_load(tile[c][i] + j);
    v128_t two = wide ? low_part(values[0], values[1]) : joined(values[0], values[1]);
    v128_t last = wide ? wasm_v128_and(values[2], mask) : wasm_v128_and(values[2], SPLAT(0xffff));
    v128_t more = high_part(values[0], values[1]), most = wasm_v128_and(wasm_i32x4_shr(values[2], LOW_BITS), SPLAT(0xffff));
    for (i32 k = 0; k < TRIPLE; k++) {
        v128_t low = wasm_i32x4_add(DOT(two, color_pairs[k][0]), DOT(last, color_pairs[k][1])), high = SPLAT(0);
        if (wide) high = wasm_i32x4_add(DOT(more, color_pairs[k][0]), DOT(most, color_pairs[k][1]));
        wasm_v128_store(tile[k][i] + j, halved(low, high));
    }
}

static void forward_tile(const i16 *planes, i32 area, i32 width, i32 shift, i32 (*tile)[TILE][TILE]) {
    v128_t largest = SPLAT(0);
    for (i32 c = 0; c < TRIPLE; c++) largest = forward_channel(planes + c * area, width, shift, tile[c], largest);
    i32 wide = wasm_v128_any_true(wasm_u32x4_gt(largest, SPLAT(LARGEST_ROW)));
    for (i32 i = 0; i < TILE; i++)
        for (i32 j = 0; j < TILE; j += 4) forward_colors(tile, i, j, wide || !(i | j));
}

// The components of some tiles beside one another to where the walk looks for them.
static void put_staged(const Job *job, i32 place, i32 count) {
    for (i32 m = 0; m < job->rows; m++) {
        const i32 *index = job->indices + 3 * m;
        double *out = job->data + m * job->size + place;
        for (i32 k = 0; k < count; k++) out[k] = staged[k][index[2]][index[0]][index[1]];
    }
}

// The coefficients of a picture; whether all of it is exact.
static i32 analyze_quick(const Job *job, const Shape *shape, const u8 *pixels) {
    i32 height = shape->down * TILE, width = shape->right * TILE, area = height * width;
    i16 *planes = (i16 *)job->planes;
    spread_quick(job, shape, pixels, planes);
    for (i32 c = 0; c < TRIPLE && job->lapped; c++) {
        v128_t down = lap_down_quick(planes + c * area, height, width, SPLAT(0));
        if (wasm_v128_any_true(wasm_u16x8_gt(down, wasm_i16x8_splat(LARGEST_LAPPED)))) return 0;
        v128_t right = lap_right_quick(planes + c * area, height, width, SPLAT(0));
        if (wasm_v128_any_true(wasm_u16x8_gt(right, wasm_i16x8_splat(LARGEST_SAMPLE)))) return 0;
    }
    for (i32 row = 0; row < shape->down; row++)
        for (i32 column = 0; column < shape->right; column += TOGETHER) {
            i32 count = least(TOGETHER, shape->right - column);
            for (i32 k = 0; k < count; k++)
                forward_tile(planes + row * TILE * width + (column + k) * TILE, area, width, job->lapped ? BITS : BITS - SCALE_BITS, staged[k]);
            put_staged(job, shape->place + row * job->stride + column, count);
        }
    return 1;
}
