// The coefficients of one file, predicted from neighbouring blocks and from what is known of their own.
//
// A block is coded in four parts: its 7 x 7 inner coefficients, preceded by how many of them are not zero; the
// first column and the first row, predicted by the border of the block to the left and above; and the mean, by
// which the block continues its neighbours' borders. Every bit is mixed from counters of several contexts. Blocks
// go row by row, plane by plane; one function serves encoder and decoder.

#include "mixing.h"

#include "../kernel/jpeg_file.h"

enum {
    SLOT = 16,      // counters of one context of a value: its length in ones, then its highest digits
    EXPONENTS = 9,  // lengths with a counter of their own
    KINDS = 3,      // planes: the first, the second, others
    WIDEST = 8208,  // blocks of a row
    COUNT_CONTEXTS = 160,
    EDGE_COUNT_CONTEXTS = 128,
    INNER_CONTEXTS = 1176,
    EDGE_CONTEXTS = 560,
    MEAN_CONTEXTS = 240,
};

typedef Counter Slot[SLOT];

static const i32 COSINES[8][8] = {  // by frequency and place, in 1/2048
    {724, 724, 724, 724, 724, 724, 724, 724},
    {1004, 851, 569, 200, -200, -569, -851, -1004},
    {946, 392, -392, -946, -946, -392, 392, 946},
    {851, -200, -1004, -569, 569, 1004, 200, -851},
    {724, -724, -724, 724, 724, -724, -724, 724},
    {569, -1004, 200, 851, -851, -200, 1004, -569},
    {392, -946, 946, -392, -392, 946, -946, 392},
    {200, -569, 851, -1004, 1004, -851, 569, -200},
};

static struct {
    Counter count[KINDS][3][COUNT_CONTEXTS][64];
    Counter edge_count[KINDS][2][3][EDGE_COUNT_CONTEXTS][8];
    Slot inner[KINDS][INPUTS][INNER_CONTEXTS];
    Slot edge[KINDS][INPUTS][EDGE_CONTEXTS];
    Slot mean[KINDS][INPUTS][MEAN_CONTEXTS];
    Counter inner_sign[KINDS][2][64 * 9], edge_sign[KINDS][2][14 * 64], mean_sign[KINDS][2][64];
    Counter digits[KINDS][3][16][12];
} jpeg __attribute__((aligned(64)));  // a slot is a line of the cache
_Static_assert(sizeof jpeg == JPEG_COUNTERS * sizeof(Counter), "as Python counts them");
static i32 jpeg_weights[MIXERS][LANES] __attribute__((aligned(16)));
static Counter jpeg_fresh[JPEG_COUNTERS];
static i32 jpeg_fresh_weights[MIXERS][LANES];
static const Learner jpeg_learner = {(Counter *)&jpeg, jpeg_fresh, jpeg_weights, jpeg_fresh_weights, JPEG_COUNTERS};

typedef struct {
    i16 lines[2][8];  // pixels in 1/8: the outermost line, the next
} Border;

static const i16 nothing[64];
static u8 inner_counts[2][WIDEST + 2], edge_counts[2][WIDEST + 2][2];  // of the row above and of this one
static Border bottoms[WIDEST + 1];
static i32 misses[2][WIDEST + 2];

// A magnitude: how many binary digits it has, in ones; then the digits after the first.
INLINE i32 code_size(i32 magnitude, Slot *const *slots, i32 mixer, i32 mixer2, Counter (*digits)[12]) {
    i32 length = digits_of(magnitude), found = 0;
    Counter *counters[INPUTS];
    for (; found < 15; found++) {
        i32 at = least(found, EXPONENTS - 1);
        for (i32 k = 0; k < INPUTS; k++) counters[k] = *slots[k] + at;
        if (!code_bit(length > found, counters, INPUTS, jpeg_weights[mixer + at], jpeg_weights[mixer2 + at])) break;
    }
    if (found < 2) return found;
    i32 value = 1;
    for (i32 k = found - 2; k >= 0; k--) {
        i32 bit = magnitude >> k & 1;
        if (k == found - 2 && found < 6) {
            for (i32 i = 0; i < INPUTS; i++) counters[i] = *slots[i] + EXPONENTS + found - 2;
            bit = code_bit(bit, counters, INPUTS, jpeg_weights[mixer + EXPONENTS + found - 2], jpeg_weights[mixer2 + EXPONENTS + found - 2]);
        } else bit = code_alone(bit, digits[found] + least(k, 11));
        value = value << 1 | bit;
    }
    return value;
}

// A count below 64 (or 8), digit by digit from the highest.
INLINE i32 code_count(i32 value, i32 width, Counter *const *trees, i32 mixer) {
    i32 node = 1;
    for (i32 k = width - 1; k >= 0; k--) {
        Counter *counters[3] = {trees[0] + node, trees[1] + node, trees[2] + node};
        node = node << 1 | code_bit(value >> k & 1, counters, 3, jpeg_weights[mixer + node], jpeg_weights[mixer + node]);
    }
    return node - (1 << width);
}

INLINE i32 rank(i32 x) {  // 0 1 2 3-4 5-6 7-9 10-13 ..: 0 .. 11
    static const u8 RANKS[64] = {0, 1, 2, 3, 3, 4, 4, 5, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7, 7, 7, 8, 8, 8, 8, 8, 8, 8, 8, 9, 9, 9, 9,
                                 9, 9, 9, 9, 9, 9, 9, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 11, 11, 11, 11, 11, 11, 11, 11, 11};
    return RANKS[least(x, 63)];
}

// A block and what is around it.
typedef struct {
    i32 kind, row, column;
    i16 *own;
    const i16 *left, *above, *before, *after, *far_left, *far_above;  // before and after: above left, above right
    const i16 *sister;  // the block of the plane before at the same place, where planes have the same size
    const i32 *steps;   // of the quantiser, rows of frequencies
    i32 has_left, has_above;
} Place;

static i32 code_inner(const Place *at) {
    i16 *own = at->own;
    i32 kind = at->kind, column = at->column + 1, wanted = 0;
    if (range.writing) for (i32 u = 1; u < 8; u++) for (i32 v = 1; v < 8; v++) wanted += own[8 * u + v] != 0;
    u8 *row = inner_counts[at->row & 1], *up = inner_counts[~at->row & 1];
    i32 left = row[column - 1], above = up[column], mean = at->has_left && at->has_above ? left + above : 2 * (left + above);
    i32 sister = 0;
    if (at->sister) for (i32 u = 1; u < 8; u++) for (i32 v = 1; v < 8; v++) sister += at->sister[8 * u + v] != 0;
    Counter(*trees)[COUNT_CONTEXTS][64] = jpeg.count[kind];
    i32 wide = (up[column - 1] + up[column + 1] + mean) / 2;
    Counter *contexts[3] = {
        trees[0][rank(mean / 2) * 12 + rank(at->sister ? sister : wide / 2)],
        trees[1][rank(left) * 12 + rank(above)],
        trees[2][least(grade(mean, 19) + (at->has_left + at->has_above) * 20, 59)],
    };
    i32 count = code_count(wanted, 6, contexts, kind * 64), remaining = count;
    row[column] = count;
    for (i32 k = 0, z = 0; z < 49 && remaining; k++) {
        i32 place = ZIGZAG[k], u = place >> 3, v = place & 7;
        if (k > 63) break;
        if (!u || !v) continue;
        i32 a = size_of(at->above[place]), l = size_of(at->left[place]), b = size_of(at->before[place]);
        i32 near = 13 * a + 13 * l + 6 * b, zone = (u + v - 2) / 2;
        if (!at->has_left) near = 26 * a;
        if (!at->has_above) near = 26 * l;
        i32 inside = 0;
        if (u > 1) inside += 2 * size_of(own[place - 8]);
        if (v > 1) inside += 2 * size_of(own[place - 1]);
        if (u > 1 && v > 1) inside += size_of(own[place - 9]);
        if (u > 2) inside += size_of(own[place - 16]);
        if (v > 2) inside += size_of(own[place - 2]);
        i32 far = 2 * size_of(at->after[place]) + size_of(at->far_left[place]) + size_of(at->far_above[place]);
        i32 g = grade(near >> 2, 13);
        Slot(*sets)[INNER_CONTEXTS] = jpeg.inner[kind];
        Slot *slots[INPUTS] = {
            &sets[0][z * 24 + grade(near >> 1, 23)],
            &sets[1][z * 24 + least(remaining, 23)],
            &sets[2][(rank(remaining) * 14 + g) * 7 + zone],
            &sets[3][z * 24 + grade(inside, 7) * 3 + least(rank(remaining) / 3, 2)],
            &sets[4][((least(a, 4) * 5 + least(l, 4)) * 6 + grade(inside, 5)) * 7 + zone],
            &sets[5][z * 24 + (at->sister ? least(size_of(at->sister[place]), 3) * 6 + least(a + l, 5) : grade(far, 23))],
        };
        i32 magnitude = code_size(size_of(own[place]), slots, 256 + ((kind * 7 + zone) << 4), 2720 + ((kind * 12 + rank(remaining)) << 4), jpeg.digits[kind][0]);
        z++;
        if (!magnitude) {
            own[place] = 0;
            continue;
        }
        remaining--;
        i32 signs = (sign_of(at->above[place]) + 1) * 3 + sign_of(at->left[place]) + 1;
        Counter *contexts[2] = {&jpeg.inner_sign[kind][0][place * 9 + signs], &jpeg.inner_sign[kind][1][place * 9 + (at->sister ? sign_of(at->sister[place]) + 1 : 0)]};
        i32 negative = code_bit(own[place] < 0, contexts, 2, jpeg_weights[2000 + kind], jpeg_weights[2000 + kind]);
        own[place] = negative ? -magnitude : magnitude;
    }
    return count;
}

// What a coefficient of the first column (row) would be if the block went on from the border to its left (above),
// in quarters of its quantum.
static i32 edge_guess(const Place *at, i32 sideways, i32 k) {
    const i16 *own = at->own, *other = sideways ? at->above : at->left;
    if (sideways ? !at->has_above : !at->has_left) return 0;
    i32 line = sideways ? 1 : 8, along = sideways ? 8 : 1;
    i64 sum = (i64)other[k * line] * at->steps[k * line] * COSINES[0][0];
    for (i32 f = 1; f < 8; f++) {
        i32 place = k * line + f * along;
        i64 there = f & 1 ? -other[place] : other[place];
        sum += (there - own[place]) * at->steps[place] * COSINES[f][0];
    }
    i64 unit = (i64)at->steps[k * line] * COSINES[0][0], four = 4 * sum;
    i64 guess = (four + (four < 0 ? -unit / 2 : unit / 2)) / unit;
    return guess > 8191 ? 8191 : guess < -8191 ? -8191 : guess;
}

static void code_edges(const Place *at, i32 inner) {
    i16 *own = at->own;
    i32 kind = at->kind, column = at->column + 1;
    u8(*row)[2] = edge_counts[at->row & 1], (*up)[2] = edge_counts[~at->row & 1];
    for (i32 sideways = 0; sideways < 2; sideways++) {
        i32 line = sideways ? 1 : 8, wanted = 0;
        if (range.writing) for (i32 k = 1; k < 8; k++) wanted += own[k * line] != 0;
        Counter(*trees)[EDGE_COUNT_CONTEXTS][8] = jpeg.edge_count[kind][sideways];
        i32 l = row[column - 1][sideways], a = up[column][sideways];
        Counter *contexts[3] = {
            trees[0][rank(inner) * 8 + l],
            trees[1][l * 8 + a],
            trees[2][(sideways ? row[column][0] : l) * 12 + rank(inner)],
        };
        i32 count = code_count(wanted, 3, contexts, 192 + (kind * 2 + sideways) * 8), remaining = count;
        row[column][sideways] = count;
        for (i32 k = 1; k < 8 && remaining; k++) {
            i32 place = k * line, spot = sideways * 7 + k - 1, guess = edge_guess(at, sideways, k), sure = size_of(guess);
            i32 a = size_of(at->above[place]), l = size_of(at->left[place]), near = a + l + (at->has_above && at->has_left ? 0 : a + l);
            i32 next = size_of(own[place + (sideways ? 8 : 1)]), last = k > 1 ? size_of(own[place - line]) : 0;
            Slot(*sets)[EDGE_CONTEXTS] = jpeg.edge[kind];
            Slot *slots[INPUTS] = {
                &sets[0][spot * 40 + grade(sure, 19) * 2 + (remaining + k > 7)],
                &sets[1][spot * 40 + remaining * 5 + grade(near, 4)],
                &sets[2][spot * 40 + grade(near, 7) * 5 + least(remaining, 4)],
                &sets[3][(grade(sure, 13) * 10 + grade(near, 9)) * 4 + k / 2],
                &sets[4][spot * 40 + grade(next, 4) * 8 + grade(last, 7)],
                &sets[5][spot * 40 + (at->sister ? least(size_of(at->sister[place]), 4) * 8 + grade(sure, 7) : rank(inner) * 3 + least(remaining, 2))],
            };
            i32 magnitude = code_size(size_of(own[place]), slots, 1024 + ((kind * 14 + spot) << 4), 3296 + ((kind * 12 + grade(sure, 11)) << 4), jpeg.digits[kind][1]);
            if (!magnitude) {
                own[place] = 0;
                continue;
            }
            remaining--;
            i32 signs = (sign_of(at->above[place]) + 1) * 3 + sign_of(at->left[place]) + 1;
            Counter *contexts[2] = {
                &jpeg.edge_sign[kind][0][spot * 64 + grade(sure, 15) * 2 + (guess < 0)],
                &jpeg.edge_sign[kind][1][spot * 64 + signs + (at->sister ? 9 * (1 + sign_of(at->sister[place])) : 0)],
            };
            i32 negative = code_bit(own[place] < 0, contexts, 2, jpeg_weights[2016 + kind * 16 + grade(sure, 15)], jpeg_weights[2008 + kind]);
            own[place] = negative ? -magnitude : magnitude;
        }
    }
}

// The two outermost lines of a block's pixels on two sides, in 1/8, without its mean.
static void borders_of(const Place *at, Border *top, Border *left, Border *bottom, Border *right) {
    i32 values[64];
    for (i32 k = 0; k < 64; k++) values[k] = clipped(at->own[k] * at->steps[k], -32768, 32767);
    values[0] = 0;
    for (i32 upright = 0; upright < 2; upright++) {  // lines along rows, then along columns
        i32 along = upright ? 8 : 1, across = upright ? 1 : 8, lines[4][8];
        for (i32 f = 0; f < 8; f++)
            for (i32 line = 0; line < 2; line++) {
                i32 even = 0, odd = 0;
                for (i32 g = 0; g < 8; g += 2) {
                    even += values[f * along + g * across] * COSINES[g][line];
                    odd += values[f * along + (g + 1) * across] * COSINES[g + 1][line];
                }
                lines[line][f] = clipped((even + odd + 128) >> 8, -65536, 65535);
                lines[2 + line][f] = clipped((even - odd + 128) >> 8, -65536, 65535);
            }
        Border *near = upright ? left : top, *far = upright ? right : bottom;
        for (i32 line = 0; line < 4; line++)
            for (i32 x = 0; x < 8; x++) {
                i32 sum = 0;
                for (i32 f = 0; f < 8; f++) sum += lines[line][f] * COSINES[f][x] >> 3;
                (line < 2 ? near : far)->lines[line & 1][x] = clipped((sum + 128) >> 8, -32768, 32767);
            }
    }
}

static void code_mean(const Place *at, i32 inner, Border *beside) {
    Border top, left, bottom, right;
    borders_of(at, &top, &left, &bottom, &right);
    i16 *own = at->own;
    i32 kind = at->kind, step = at->steps[0], column = at->column + 1, count = 0, sum[2] = {0, 0}, low = 1 << 30, high = -(1 << 30);
    for (i32 side = 0; side < 2; side++) {
        if (side ? !at->has_left : !at->has_above) continue;
        const Border *there = side ? beside : bottoms + at->column, *here = side ? &left : &top;
        for (i32 x = 0; x < 8; x++) {
            i32 slope = (there->lines[0][x] - there->lines[1][x] + here->lines[1][x] - here->lines[0][x]) / 2;
            i32 level = there->lines[0][x] + slope - here->lines[0][x];
            sum[side] += level;
            low = least(low, level), high = most(high, level);
        }
        count += 8;
    }
    i32 guess = 0, spread = 0, apart = 0;
    if (count) {
        guess = (sum[0] + sum[1]) / count;  // pixels in 1/8 are coefficients of the mean
        guess = (guess + (guess < 0 ? -step / 2 : step / 2)) / step;
        spread = (high - low) / step;
        apart = count == 16 ? size_of(sum[0] - sum[1]) / 8 / step : spread;
    }
    i32 *row = misses[at->row & 1], *up = misses[~at->row & 1];
    i32 missed = size_of(row[column - 1]) + size_of(up[column]), rest = own[0] - guess;
    i32 busy = inner + edge_counts[at->row & 1][column][0] + edge_counts[at->row & 1][column][1];
    Slot(*sets)[MEAN_CONTEXTS] = jpeg.mean[kind];
    Slot *slots[INPUTS] = {
        &sets[0][grade(spread, 19) * 12 + rank(busy)],
        &sets[1][grade(spread, 13) * 14 + grade(apart, 13)],
        &sets[2][grade(missed, 13) * 14 + grade(apart, 13)],
        &sets[3][grade(spread, 13) * 14 + grade(missed, 13)],
        &sets[4][rank(busy) * 20 + grade(missed, 19)],
        &sets[5][at->row ? at->column ? grade(apart, 19) : 20 + grade(spread, 19) : 40 + grade(spread, 19)],
    };
    i32 magnitude = code_size(size_of(rest), slots, 2100 + ((kind * 12 + least(grade(spread, 23) / 2, 11)) << 4), 3872 + ((kind * 4 + grade(missed, 11) / 3) << 4), jpeg.digits[kind][2]);
    if (magnitude) {
        i32 signs = (sign_of(row[column - 1]) + 1) * 3 + sign_of(up[column]) + 1;
        i32 bias = count == 16 ? sum[0] - sum[1] : 0;
        Counter *contexts[2] = {&jpeg.mean_sign[kind][0][signs], &jpeg.mean_sign[kind][1][sign_of(bias) + 1 + 3 * grade(apart, 9)]};
        if (code_bit(rest < 0, contexts, 2, jpeg_weights[2004 + kind], jpeg_weights[2004 + kind])) magnitude = -magnitude;
    }
    own[0] = guess + magnitude;
    row[column] = magnitude;
    i32 level = own[0] * step;
    for (i32 line = 0; line < 2; line++)
        for (i32 x = 0; x < 8; x++) {
            bottoms[at->column].lines[line][x] = clipped(bottom.lines[line][x] + level, -32768, 32767);
            beside->lines[line][x] = clipped(right.lines[line][x] + level, -32768, 32767);
        }
}

static void code_plane(i32 p) {
    Plane *plane = file.plane + p;
    i32 steps[64], wide = plane->blocks_wide;
    for (i32 k = 0; k < 64; k++) steps[ZIGZAG[k]] = most(file.quantizers[plane->quantizer][k], 1);  // 0: it has no table
    const Plane *last = p > 1 ? file.plane + p - 1 : 0;
    if (last && (last->blocks_wide != wide || last->blocks_high != plane->blocks_high)) last = 0;
    __builtin_memset(inner_counts, 0, sizeof inner_counts);
    __builtin_memset(edge_counts, 0, sizeof edge_counts);
    __builtin_memset(misses, 0, sizeof misses);
    for (i32 row = 0; row < plane->blocks_high; row++) {
        Border beside = {0};
        inner_counts[row & 1][0] = 0, misses[row & 1][0] = 0;
        for (i32 column = 0; column < wide; column++) {
            i16 *own = plane->data + 64 * (row * (i64)wide + column);
            i64 up = 64 * (i64)wide;
            Place at = {
                .kind = least(p, KINDS - 1), .row = row, .column = column, .own = own, .steps = steps,
                .has_left = column > 0, .has_above = row > 0,
                .left = column ? own - 64 : nothing,
                .above = row ? own - up : nothing,
                .before = row && column ? own - up - 64 : nothing,
                .after = row && column + 1 < wide ? own - up + 64 : nothing,
                .far_left = column > 1 ? own - 128 : nothing,
                .far_above = row > 1 ? own - 2 * up : nothing,
                .sister = last ? last->data + 64 * (row * (i64)wide + column) : 0,
            };
            i32 inner = code_inner(&at);
            code_edges(&at, inner);
            code_mean(&at, inner, &beside);
        }
    }
}

static void code_file(void) {
    for (i32 p = 0; p < file.planes; p++) code_plane(p);
}
