// The coefficients of one file, predicted from neighbouring blocks and from what is known of their own.
//
// A block is coded in four parts: its 7 x 7 inner coefficients, preceded by how many of them are not zero; the
// first column and the first row, predicted by the border of the block to the left and above; and the mean, by
// which the block continues its neighbours' borders. Every bit is mixed from counters of several contexts. Blocks
// go row by row, plane by plane; one function serves encoder and decoder.

#include "mixing.h"

#include "jpeg_file.h"

enum {
    SLOT = 16,      // counters of one context of a value: its length in ones, then its highest digits
    EXPONENTS = 9,  // lengths with a counter of their own
    KINDS = 3,      // planes: the first, the second, others
    WIDEST = 8208,  // blocks of a row
    INNER = 49,     // coefficients that are neither in the first row nor in the first column
    FRAMED = 10,    // sizes of these with two zeros before each row and column
    COUNT_CONTEXTS = 160,
    EDGE_COUNT_CONTEXTS = 128,
    INNER_CONTEXTS = 1176,
    EDGE_CONTEXTS = 560,
    MEAN_CONTEXTS = 240,
};

typedef Counter Slot[SLOT];

static const i16 COSINES[8][8] = {  // by frequency and place, in 1/2048
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
    Counter inner_sign[KINDS][64 * 27], edge_sign[KINDS][2][14 * 64], mean_sign[KINDS][2][64];
    Counter digits[KINDS][3][16][12];
} jpeg __attribute__((aligned(64)));  // a slot is a line of the cache
_Static_assert(sizeof jpeg == JPEG_COUNTERS * sizeof(Counter), "as Python counts them");
static i16 jpeg_weights[MIXERS][LANES] __attribute__((aligned(16)));
static Counter jpeg_fresh[JPEG_COUNTERS];
static i16 jpeg_fresh_weights[MIXERS][LANES];
static const Learner jpeg_learner = {(Counter *)&jpeg, jpeg_fresh, jpeg_weights, jpeg_fresh_weights, JPEG_COUNTERS};

// What the next block sees of one: its two outermost lines of pixels, the outermost first, and what the outermost
// is in frequencies along it. All in 1/8.
typedef struct {
    i16 lines[2][8], spectrum[8];
} Border;

static const i16 nothing[64];
static u8 inner_counts[2][WIDEST + 2], edge_counts[2][WIDEST + 2][2];  // of the row above and of this one
static Border bottoms[WIDEST + 1];
static i32 misses[2][WIDEST + 2];
static i16 pairs[4][2][8];  // cosines of frequencies 2 k and 2 k + 1, for places 0 .. 3 and 4 .. 7
static u8 inner_places[INNER];

static void make_places(void) {
    for (i32 k = 0, z = 0; k < 64; k++)
        if (ZIGZAG[k] >> 3 && ZIGZAG[k] & 7) inner_places[z++] = ZIGZAG[k];
    for (i32 k = 0; k < 8; k++)
        for (i32 x = 0; x < 8; x++) pairs[k / 2][x / 4][2 * (x & 3) + (k & 1)] = COSINES[k][x];
}

// A magnitude: how many binary digits it has, in ones; then the digits after the first.
INLINE i32 code_size(Range *range, i32 magnitude, Counter *const *slots, i16 (*mixer)[LANES], i16 (*mixer2)[LANES], Counter (*digits)[12]) {
    i32 length = digits_of(magnitude), found = 0;
    Counter *counters[INPUTS];
    for (; found < 15; found++) {
        i32 at = least(found, EXPONENTS - 1);
        for (i32 k = 0; k < INPUTS; k++) counters[k] = slots[k] + at;
        if (!code_bit(range, length > found, counters, INPUTS, mixer[at], mixer2[at])) break;
    }
    if (found < 2) return found;
    i32 value = 1, k = found - 2;
    if (found < 6) {
        i32 at = EXPONENTS + found - 2;
        for (i32 i = 0; i < INPUTS; i++) counters[i] = slots[i] + at;
        value = 2 | code_bit(range, magnitude >> k & 1, counters, INPUTS, mixer[at], mixer2[at]);
        k--;
    }
    for (; k >= 0; k--) value = value << 1 | code_alone(range, magnitude >> k & 1, digits[found] + least(k, 11));
    return value;
}

// A count below 64 (or 8), digit by digit from the highest.
INLINE i32 code_count(Range *range, i32 value, i32 width, Counter *const *trees, i32 mixer) {
    i32 node = 1;
    for (i32 k = width - 1; k >= 0; k--) {
        Counter *counters[3] = {trees[0] + node, trees[1] + node, trees[2] + node};
        node = node << 1 | code_bit(range, value >> k & 1, counters, 3, jpeg_weights[mixer + node], 0);
    }
    return node - (1 << width);
}

INLINE i32 rank(i32 x) {  // 0 1 2 3-4 5-6 7-9 10-13 ..: 0 .. 11
    static const u8 RANKS[64] = {0, 1, 2, 3, 3, 4, 4, 5, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7, 7, 7, 8, 8, 8, 8, 8, 8, 8, 8, 9, 9, 9, 9,
                                 9, 9, 9, 9, 9, 9, 9, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 11, 11, 11, 11, 11, 11, 11, 11, 11};
    return RANKS[least(x, 63)];
}

// What holds for all blocks of a plane.
typedef struct {
    i16 steps[64];      // of the quantiser, rows of frequencies
    float parts[2][8];  // by which a spectrum of a border in 1/8 becomes quarters of quanta: first column, first row
} Quantizer;

// A block and what is around it.
typedef struct {
    i32 kind, row, column;
    i16 *own;
    const i16 *left, *above, *after, *far_left, *far_above;  // after: above right
    const i16 *sister;  // the block of the plane before at the same place, where planes have the same size
    const Quantizer *quantizer;
    i32 has_left, has_above;
    i32 inner;  // how many of its inner coefficients are not zero
    i16 values[64], turned[64];  // coefficients so far times steps, without the mean; the same by columns
} Place;

// How many of the inner coefficients are not zero.
INLINE i32 filled(const i16 *block) {
    v128_t sum = wasm_i32x4_splat(0), none = sum;
    for (i32 u = 1; u < 8; u++) sum = wasm_i16x8_sub(sum, wasm_i16x8_ne(wasm_v128_load(block + 8 * u), none));
    sum = wasm_i32x4_dot_i16x8(sum, wasm_i16x8_make(0, 1, 1, 1, 1, 1, 1, 1));
    sum = wasm_i32x4_add(sum, wasm_i32x4_shuffle(sum, sum, 2, 3, 0, 1));
    return wasm_i32x4_extract_lane(sum, 0) + wasm_i32x4_extract_lane(sum, 1);
}

INLINE void code_inner(Range *range, Place *at, Border *beside) {
    (void)beside;
    i16 *own = at->own;
    i32 kind = at->kind, column = at->column + 1;
    u8 *row = inner_counts[at->row & 1], *up = inner_counts[~at->row & 1];
    i32 left = row[column - 1], above = up[column], mean = at->has_left && at->has_above ? left + above : 2 * (left + above);
    Counter(*trees)[COUNT_CONTEXTS][64] = jpeg.count[kind];
    i32 wide = (up[column - 1] + up[column + 1] + mean) / 2;
    Counter *contexts[3] = {
        trees[0][rank(mean / 2) * 12 + rank(at->sister ? filled(at->sister) : wide / 2)],
        trees[1][rank(left) * 12 + rank(above)],
        trees[2][least(grade(mean, 19) + (at->has_left + at->has_above) * 20, 59)],
    };
    i32 count = code_count(range, range->writing ? filled(own) : 0, 6, contexts, kind * 64), remaining = count;
    row[column] = at->inner = count;
    if (!count) return;
    i16 framed[FRAMED * FRAMED] = {0};  // sizes so far
    Slot(*sets)[INNER_CONTEXTS] = jpeg.inner[kind];
    i16(*mixers)[LANES] = jpeg_weights + 256 + (kind * 7 << 4), (*mixers2)[LANES] = jpeg_weights + 2720 + (kind * 12 << 4);
    for (i32 z = 0; z < INNER && remaining; z++) {
        i32 place = inner_places[z], u = place >> 3, v = place & 7, zone = (u + v - 2) >> 1;
        i16 *size = framed + (u + 1) * FRAMED + v + 1;
        i32 a = size_of(at->above[place]), l = size_of(at->left[place]);
        i32 inside = 2 * (size[-FRAMED] + size[-1]) + size[-FRAMED - 1] + size[-2 * FRAMED] + size[-2];
        i32 beside = z * 24, left_over = rank(remaining);
        if (at->sister) beside += least(size_of(at->sister[place]), 3) * 6 + least(a + l, 5);
        else beside += grade(2 * size_of(at->after[place]) + size_of(at->far_left[place]) + size_of(at->far_above[place]), 23);
        Counter *slots[INPUTS] = {
            sets[0][z * 24 + least(remaining, 23)],
            sets[1][z * 24 + grade(inside, 7) * 3 + (left_over > 2) + (left_over > 5)],
            sets[2][((least(a, 4) * 5 + least(l, 4)) * 6 + grade(inside, 5)) * 7 + zone],
            sets[3][beside],
        };
        i32 magnitude = code_size(range, size_of(own[place]), slots, mixers + (zone << 4), mixers2 + (left_over << 4), jpeg.digits[kind][0]);
        if (!magnitude) continue;
        remaining--;
        i32 signs = ((sign_of(at->above[place]) + 1) * 3 + sign_of(at->left[place]) + 1) * 3 + (at->sister ? sign_of(at->sister[place]) + 1 : 0);
        *size = magnitude;
        own[place] = code_alone(range, own[place] < 0, &jpeg.inner_sign[kind][place * 27 + signs]) ? -magnitude : magnitude;
    }
}

// The inner coefficients times their steps, and the same by columns.
static void scale(Place *at) {
    v128_t rows[8], mask = wasm_i16x8_make(0, -1, -1, -1, -1, -1, -1, -1);
    rows[0] = wasm_i32x4_splat(0);
    for (i32 u = 1; u < 8; u++) {
        v128_t row = wasm_v128_load(at->own + 8 * u), steps = wasm_v128_load(at->quantizer->steps + 8 * u);
        row = wasm_i16x8_narrow_i32x4(wasm_i32x4_extmul_low_i16x8(row, steps), wasm_i32x4_extmul_high_i16x8(row, steps));
        rows[u] = wasm_v128_and(row, mask);
    }
    for (i32 u = 0; u < 8; u++) wasm_v128_store(at->values + 8 * u, rows[u]);
    for (i32 round = 0; round < 3; round++) {  // three perfect shuffles are a transposition
        v128_t next[8];
        for (i32 k = 0; k < 4; k++) {
            next[2 * k] = wasm_i16x8_shuffle(rows[k], rows[k + 4], 0, 8, 1, 9, 2, 10, 3, 11);
            next[2 * k + 1] = wasm_i16x8_shuffle(rows[k], rows[k + 4], 4, 12, 5, 13, 6, 14, 7, 15);
        }
        for (i32 k = 0; k < 8; k++) rows[k] = next[k];
    }
    for (i32 u = 0; u < 8; u++) wasm_v128_store(at->turned + 8 * u, rows[u]);
}

// One dimension of the cosine transform at the places `line` and 7 - `line` of columns: what even and odd rows give.
typedef struct {
    v128_t near, far;
} Lines;

INLINE Lines across(const i16 *values, i32 line) {
    v128_t halves[2][2];
    for (i32 odd = 0; odd < 2; odd++) {
        v128_t low = wasm_i32x4_splat(0), high = low;
        for (i32 f = odd; f < 8; f += 4) {
            v128_t one = wasm_v128_load(values + 8 * f), two = wasm_v128_load(values + 8 * f + 16);
            v128_t by = wasm_i32x4_splat((u16)COSINES[f][line] | (u32)COSINES[f + 2][line] << 16);
            low = wasm_i32x4_add(low, wasm_i32x4_dot_i16x8(wasm_i16x8_shuffle(one, two, 0, 8, 1, 9, 2, 10, 3, 11), by));
            high = wasm_i32x4_add(high, wasm_i32x4_dot_i16x8(wasm_i16x8_shuffle(one, two, 4, 12, 5, 13, 6, 14, 7, 15), by));
        }
        halves[odd][0] = low, halves[odd][1] = high;
    }
    v128_t half = wasm_i32x4_splat(128), low = wasm_i32x4_add(halves[0][0], half), high = wasm_i32x4_add(halves[0][1], half);
    return (Lines){
        wasm_i16x8_narrow_i32x4(wasm_i32x4_shr(wasm_i32x4_add(low, halves[1][0]), 8), wasm_i32x4_shr(wasm_i32x4_add(high, halves[1][1]), 8)),
        wasm_i16x8_narrow_i32x4(wasm_i32x4_shr(wasm_i32x4_sub(low, halves[1][0]), 8), wasm_i32x4_shr(wasm_i32x4_sub(high, halves[1][1]), 8)),
    };
}

// The other dimension: frequencies along a line to its pixels.
INLINE v128_t along(v128_t line) {
    v128_t low = wasm_i32x4_splat(1 << 10), high = low;
#define PAIR(k) do { \
        v128_t two = wasm_i32x4_shuffle(line, line, k, k, k, k); \
        low = wasm_i32x4_add(low, wasm_i32x4_dot_i16x8(two, wasm_v128_load(pairs[k][0]))); \
        high = wasm_i32x4_add(high, wasm_i32x4_dot_i16x8(two, wasm_v128_load(pairs[k][1]))); \
    } while (0)
    PAIR(0);
    PAIR(1);
    PAIR(2);
    PAIR(3);
#undef PAIR
    return wasm_i16x8_narrow_i32x4(wasm_i32x4_shr(low, 11), wasm_i32x4_shr(high, 11));
}

// What the coefficients of the first column (row) would be if the block went on from the border to its left (above),
// in quarters of their quanta.
INLINE void guess_edges(const Place *at, i32 sideways, const Border *there, i32 *guesses) {
    v128_t own = across(sideways ? at->values : at->turned, 0).near, gap = wasm_i16x8_sub_sat(wasm_v128_load(there->spectrum), own);
    const float *parts = at->quantizer->parts[sideways];
    v128_t low = wasm_f32x4_convert_i32x4(wasm_i32x4_extend_low_i16x8(gap)), high = wasm_f32x4_convert_i32x4(wasm_i32x4_extend_high_i16x8(gap));
    low = wasm_f32x4_nearest(wasm_f32x4_mul(low, wasm_v128_load(parts)));
    high = wasm_f32x4_nearest(wasm_f32x4_mul(high, wasm_v128_load(parts + 4)));
    wasm_v128_store(guesses, wasm_i32x4_trunc_sat_f32x4(low));
    wasm_v128_store(guesses + 4, wasm_i32x4_trunc_sat_f32x4(high));
}

INLINE void code_edges(Range *range, Place *at, Border *beside) {
    i16 *own = at->own;
    i32 kind = at->kind, column = at->column + 1, busy = rank(at->inner), doubled = !(at->has_above && at->has_left);
    u8(*row)[2] = edge_counts[at->row & 1], (*up)[2] = edge_counts[~at->row & 1];
    Slot(*sets)[EDGE_CONTEXTS] = jpeg.edge[kind];
    for (i32 sideways = 0; sideways < 2; sideways++) {
        i32 line = sideways ? 1 : 8, wanted = 0;
        if (range->writing) for (i32 k = 1; k < 8; k++) wanted += own[k * line] != 0;
        Counter(*trees)[EDGE_COUNT_CONTEXTS][8] = jpeg.edge_count[kind][sideways];
        i32 l = row[column - 1][sideways], a = up[column][sideways];
        Counter *contexts[3] = {
            trees[0][busy * 8 + l],
            trees[1][l * 8 + a],
            trees[2][(sideways ? row[column][0] : l) * 12 + busy],
        };
        i32 count = code_count(range, wanted, 3, contexts, 192 + (kind * 2 + sideways) * 8), remaining = count, guesses[8] = {0};
        row[column][sideways] = count;
        if (!count) continue;
        if (sideways ? at->has_above : at->has_left) guess_edges(at, sideways, sideways ? bottoms + at->column : beside, guesses);
        for (i32 k = 1; k < 8 && remaining; k++) {
            i32 place = k * line, spot = sideways * 7 + k - 1, guess = guesses[k], sure = size_of(guess);
            i32 near = (size_of(at->above[place]) + size_of(at->left[place])) << doubled;
            i32 next = size_of(own[place + (sideways ? 8 : 1)]), last = k > 1 ? size_of(own[place - line]) : 0;
            i32 closeness = grade(sure, 19), around = grade(near, 9);
            Counter *slots[INPUTS] = {
                sets[0][spot * 40 + closeness * 2 + (remaining + k > 7)],
                sets[1][(least(closeness, 13) * 10 + around) * 4 + k / 2],
                sets[2][spot * 40 + grade(next, 4) * 8 + grade(last, 7)],
                sets[3][spot * 40 + (at->sister ? least(size_of(at->sister[place]), 4) * 8 + least(closeness, 7) : busy * 3 + least(remaining, 2))],
        };
            i32 magnitude = code_size(range, size_of(own[place]), slots, jpeg_weights + 1024 + ((kind * 14 + spot) << 4), jpeg_weights + 3296 + ((kind * 12 + least(closeness, 11)) << 4), jpeg.digits[kind][1]);
            if (!magnitude) continue;
            remaining--;
            i32 signs = (sign_of(at->above[place]) + 1) * 3 + sign_of(at->left[place]) + 1;
            Counter *contexts[2] = {
                &jpeg.edge_sign[kind][0][spot * 64 + least(closeness, 15) * 2 + (guess < 0)],
                &jpeg.edge_sign[kind][1][spot * 64 + signs + (at->sister ? 9 * (1 + sign_of(at->sister[place])) : 0)],
            };
            i32 negative = code_bit(range, own[place] < 0, contexts, 2, jpeg_weights[2016 + kind * 16 + least(closeness, 15)], jpeg_weights[2008 + kind]);
            own[place] = negative ? -magnitude : magnitude;
            i32 value = clipped(own[place] * at->quantizer->steps[place], -32768, 32767);
            at->values[place] = value, at->turned[sideways ? 8 * k : k] = value;
        }
    }
}

// The borders of a block on all sides, without its mean.
typedef struct {
    Border top, left, bottom, right;
} Borders;

static void borders_of(const Place *at, Borders *borders) {
    for (i32 upright = 0; upright < 2; upright++) {
        Border *near = upright ? &borders->left : &borders->top, *far = upright ? &borders->right : &borders->bottom;
        for (i32 line = 0; line < 2; line++) {
            Lines lines = across(upright ? at->turned : at->values, line);
            wasm_v128_store(near->lines[line], along(lines.near));
            wasm_v128_store(far->lines[line], along(lines.far));
            if (!line) wasm_v128_store(far->spectrum, lines.far);
        }
    }
}

INLINE i32 sum_of(v128_t x) {
    x = wasm_i32x4_dot_i16x8(x, wasm_i16x8_splat(1));
    x = wasm_i32x4_add(x, wasm_i32x4_shuffle(x, x, 2, 3, 0, 1));
    return wasm_i32x4_extract_lane(x, 0) + wasm_i32x4_extract_lane(x, 1);
}

INLINE void code_mean(Range *range, Place *at, Border *beside) {
    Borders borders = {0};
    const u8 *edges = edge_counts[at->row & 1][at->column + 1];
    i32 filled = at->inner + edges[0] + edges[1];
    if (filled) borders_of(at, &borders);  // zeros otherwise
    i16 *own = at->own;
    i32 kind = at->kind, step = at->quantizer->steps[0], column = at->column + 1, sum[2] = {0, 0}, sides = at->has_above + at->has_left;
    v128_t low = wasm_i16x8_splat(32767), high = wasm_i16x8_splat(-32768);
    for (i32 side = 0; side < 2; side++) {
        if (side ? !at->has_left : !at->has_above) continue;
        const Border *there = side ? beside : bottoms + at->column, *here = side ? &borders.left : &borders.top;
        v128_t last = wasm_v128_load(there->lines[0]), next = wasm_v128_load(here->lines[0]);
        v128_t slope = wasm_i16x8_add_sat(wasm_i16x8_sub_sat(last, wasm_v128_load(there->lines[1])), wasm_i16x8_sub_sat(wasm_v128_load(here->lines[1]), next));
        v128_t level = wasm_i16x8_add_sat(wasm_i16x8_sub_sat(last, next), wasm_i16x8_shr(slope, 1));
        sum[side] = sum_of(level);
        low = wasm_i16x8_min(low, level), high = wasm_i16x8_max(high, level);
    }
    i32 guess = 0, spread = 0, apart = 0;
    if (sides) {
        i16 lows[8], highs[8];
        wasm_v128_store(lows, low), wasm_v128_store(highs, high);
        for (i32 x = 1; x < 8; x++) lows[0] = least(lows[0], lows[x]), highs[0] = most(highs[0], highs[x]);
        guess = (sum[0] + sum[1]) >> (2 + sides);  // pixels in 1/8 are coefficients of the mean
        guess = (guess + (guess < 0 ? -step / 2 : step / 2)) / step;
        spread = (highs[0] - lows[0]) / step;
        apart = sides == 2 ? size_of(sum[0] - sum[1]) / 8 / step : spread;
    }
    i32 *row = misses[at->row & 1], *up = misses[~at->row & 1];
    i32 missed = size_of(row[column - 1]) + size_of(up[column]), rest = own[0] - guess;
    i32 busy = rank(filled);
    i32 wide = grade(spread, 19), far = grade(apart, 19), off = grade(missed, 19);
    Slot(*sets)[MEAN_CONTEXTS] = jpeg.mean[kind];
    Counter *slots[INPUTS] = {
        sets[0][wide * 12 + busy],
        sets[1][least(wide, 13) * 14 + least(far, 13)],
        sets[2][busy * 20 + off],
        sets[3][at->row ? at->column ? far : 20 + wide : 40 + wide],
    };
    i32 magnitude = code_size(range, size_of(rest), slots, jpeg_weights + 2100 + ((kind * 12 + wide / 2) << 4), jpeg_weights + 3872 + ((kind * 4 + least(off, 11) / 3) << 4), jpeg.digits[kind][2]);
    if (magnitude) {
        i32 signs = (sign_of(row[column - 1]) + 1) * 3 + sign_of(up[column]) + 1;
        i32 bias = sides == 2 ? sum[0] - sum[1] : 0;
        Counter *contexts[2] = {&jpeg.mean_sign[kind][0][signs], &jpeg.mean_sign[kind][1][sign_of(bias) + 1 + 3 * least(far, 9)]};
        if (code_bit(range, rest < 0, contexts, 2, jpeg_weights[2004 + kind], 0)) magnitude = -magnitude;
    }
    own[0] = guess + magnitude;
    row[column] = magnitude;
    v128_t level = wasm_i16x8_splat(clipped(own[0] * step, -32768, 32767));
    for (i32 line = 0; line < 2; line++) {
        wasm_v128_store(bottoms[at->column].lines[line], wasm_i16x8_add_sat(wasm_v128_load(borders.bottom.lines[line]), level));
        wasm_v128_store(beside->lines[line], wasm_i16x8_add_sat(wasm_v128_load(borders.right.lines[line]), level));
    }
    wasm_v128_store(bottoms[at->column].spectrum, wasm_v128_load(borders.bottom.spectrum));
    wasm_v128_store(beside->spectrum, wasm_v128_load(borders.right.spectrum));
}

// Each part once for each way: there the state of the range is in registers, and nothing asks for the way.
#define ONE_WAY(name, part, way) \
    static NOINLINE void name(Range *range, Place *at, Border *beside) { \
        Range own = *range; \
        own.writing = way; \
        part(&own, at, beside); \
        *range = own; \
    }
ONE_WAY(write_inner, code_inner, 1)
ONE_WAY(read_inner, code_inner, 0)
ONE_WAY(write_edges, code_edges, 1)
ONE_WAY(read_edges, code_edges, 0)
ONE_WAY(write_mean, code_mean, 1)
ONE_WAY(read_mean, code_mean, 0)

static void code_plane(Range *range, i32 p) {
    Plane *plane = file.plane + p;
    i32 wide = plane->blocks_wide;
    Quantizer quantizer;
    for (i32 k = 0; k < 64; k++) quantizer.steps[ZIGZAG[k]] = clipped(file.quantizers[plane->quantizer][k], 1, 32767);  // 0: it has no table
    for (i32 k = 0; k < 8; k++)  // quarters of step times 724 / 2048, in 1/8
        for (i32 sideways = 0; sideways < 2; sideways++) quantizer.parts[sideways][k] = 2048.0f / (2 * 724.0f) / quantizer.steps[sideways ? k : 8 * k];
    const Plane *last = p > 1 ? file.plane + p - 1 : 0;
    if (last && (last->blocks_wide != wide || last->blocks_high != plane->blocks_high)) last = 0;
    for (i32 row = 0; row < 2; row++) {
        __builtin_memset(inner_counts[row], 0, wide + 2);
        __builtin_memset(edge_counts[row], 0, 2 * (wide + 2));
        __builtin_memset(misses[row], 0, 4 * (wide + 2));
    }
    for (i32 row = 0; row < plane->blocks_high; row++) {
        Border beside = {0};
        for (i32 column = 0; column < wide; column++) {
            i16 *own = plane->data + 64 * (row * (i64)wide + column);
            i64 up = 64 * (i64)wide;
            Place at = {
                .kind = least(p, KINDS - 1), .row = row, .column = column, .own = own, .quantizer = &quantizer,
                .has_left = column > 0, .has_above = row > 0,
                .left = column ? own - 64 : nothing,
                .above = row ? own - up : nothing,
                .after = row && column + 1 < wide ? own - up + 64 : nothing,
                .far_left = column > 1 ? own - 128 : nothing,
                .far_above = row > 1 ? own - 2 * up : nothing,
                .sister = last ? last->data + 64 * (row * (i64)wide + column) : 0,
            };
            if (range->writing) write_inner(range, &at, &beside);
            else read_inner(range, &at, &beside);
            if (at.inner) scale(&at);  // zeros otherwise
            if (range->writing) write_edges(range, &at, &beside), write_mean(range, &at, &beside);
            else read_edges(range, &at, &beside), read_mean(range, &at, &beside);
        }
    }
}

static void code_file(Range *range) {
    for (i32 p = 0; p < file.planes; p++) code_plane(range, p);
}
