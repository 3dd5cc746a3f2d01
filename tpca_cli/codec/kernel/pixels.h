// Pictures to coefficients of tiles and back, for bases of rank-1 components.
//
// The arithmetic is that of fixed.py, tiling.py and restore.py, to the bit; a test compares them. Doubles hold
// integers below 2^53, so sums are exact in any order. Tiles without many components, as most are, take less
// time.

#include "led.h"

#include <wasm_simd128.h>

typedef double Plane[LARGEST_TILE][LARGEST_TILE];
static Plane tile_planes[2][COLORS] __attribute__((aligned(16)));

#define PAIR(pointer) wasm_v128_load(pointer)
#define PLUS wasm_f64x2_add
#define TIMES wasm_f64x2_mul

// values / 2^bits, rounded half up.
INLINE v128_t rounded(v128_t values, v128_t scale) {
    return wasm_f64x2_floor(PLUS(TIMES(values, scale), wasm_f64x2_splat(0.5)));
}

INLINE double power(i32 exponent) {  // of two
    union { u64 bits; double value; } both = {(u64)(1023 + exponent) << 52};
    return both.value;
}

// out[k] = sum over the used r of in[r] factor[r][k].
INLINE void combine(double *out, const double *in, i32 step, const double *factor, i32 side, u32 used, v128_t scale) {
    v128_t sums[LARGEST_TILE / 2];
    for (i32 k = 0; k < side / 2; k++) sums[k] = wasm_f64x2_splat(0);
    for (; used; used &= used - 1) {
        i32 r = __builtin_ctz(used);
        v128_t value = wasm_f64x2_splat(in[r * step]);
        for (i32 k = 0; k < side / 2; k++) sums[k] = PLUS(sums[k], TIMES(value, PAIR(factor + r * side + 2 * k)));
    }
    for (i32 k = 0; k < side / 2; k++) wasm_v128_store(out + 2 * k, rounded(sums[k], scale));
}

// The row out[k] = sum over r of factor[r][k] times the row in[r].
INLINE void combine_rows(Plane out, const double *in, i32 step, const double *factor, i32 side, v128_t scale) {
    for (i32 k = 0; k < side; k++) {
        v128_t sums[LARGEST_TILE / 2];
        for (i32 x = 0; x < side / 2; x++) sums[x] = wasm_f64x2_splat(0);
        for (i32 r = 0; r < side; r++) {
            v128_t weight = wasm_f64x2_splat(factor[r * side + k]);
            for (i32 x = 0; x < side / 2; x++) sums[x] = PLUS(sums[x], TIMES(weight, PAIR(in + r * step + 2 * x)));
        }
        for (i32 x = 0; x < side / 2; x++) wasm_v128_store(&out[k][2 * x], rounded(sums[x], scale));
    }
}

// Channel k at out[k * apart]: the sum over the used c of factor[c][k] in[c].
INLINE void mix_colors(double *out, i32 apart, i32 step, Plane *in, const double *factor, i32 side, i32 colors, u32 used, v128_t scale) {
    for (i32 y = 0; y < side; y++)
        for (i32 x = 0; x < side; x += 2) {
            v128_t sums[COLORS];
            for (i32 k = 0; k < colors; k++) sums[k] = wasm_f64x2_splat(0);
            for (i32 c = 0; c < colors; c++) {
                if (!(used >> c & 1)) continue;
                v128_t value = PAIR(&in[c][y][x]);
                for (i32 k = 0; k < colors; k++)
                    sums[k] = PLUS(sums[k], TIMES(value, wasm_f64x2_splat(factor[c * colors + k])));
            }
            for (i32 k = 0; k < colors; k++) wasm_v128_store(out + k * apart + y * step + x, rounded(sums[k], scale));
        }
}

// Eight samples across a tile border, by the even and odd halves of the symmetric filter.
INLINE void filter_border(v128_t *samples, const double *halves) {
    v128_t even[REACH], odd[REACH], scale = wasm_f64x2_splat(power(-LAP_BITS - 1));
    for (i32 k = 0; k < REACH; k++) {
        even[k] = PLUS(samples[k], samples[7 - k]);
        odd[k] = wasm_f64x2_sub(samples[k], samples[7 - k]);
    }
    for (i32 r = 0; r < REACH; r++) {
        v128_t sum = TIMES(even[0], wasm_f64x2_splat(halves[4 * r])), other = TIMES(odd[0], wasm_f64x2_splat(halves[16 + 4 * r]));
        for (i32 k = 1; k < REACH; k++) {
            sum = PLUS(sum, TIMES(even[k], wasm_f64x2_splat(halves[4 * r + k])));
            other = PLUS(other, TIMES(odd[k], wasm_f64x2_splat(halves[16 + 4 * r + k])));
        }
        samples[r] = rounded(PLUS(sum, other), scale);
        samples[7 - r] = rounded(wasm_f64x2_sub(sum, other), scale);
    }
}

static void lap_down(double *plane, i32 height, i32 width, i32 side, const double *halves) {
    for (i32 border = side; border < height; border += side)
        for (i32 x = 0; x < width; x += 2) {
            double *at = plane + (border - REACH) * width + x;
            v128_t samples[8];
            for (i32 k = 0; k < 8; k++) samples[k] = PAIR(at + k * width);
            filter_border(samples, halves);
            for (i32 k = 0; k < 8; k++) wasm_v128_store(at + k * width, samples[k]);
        }
}

static void lap_right(double *plane, i32 height, i32 width, i32 side, const double *halves) {
    for (i32 y = 0; y < height; y += 2)
        for (i32 border = side; border < width; border += side) {
            double *at = plane + y * width + border - REACH;
            v128_t samples[8];
            for (i32 k = 0; k < 8; k++) samples[k] = wasm_f64x2_make(at[k], at[width + k]);
            filter_border(samples, halves);
            for (i32 k = 0; k < 8; k++) {
                at[k] = wasm_f64x2_extract_lane(samples[k], 0);
                at[width + k] = wasm_f64x2_extract_lane(samples[k], 1);
            }
        }
}

INLINE i32 mirrored(i32 at, i32 have) {
    at %= 2 * have;
    return at < have ? at : 2 * have - 1 - at;
}

// Pixels (h, w, c), continued by mirroring to whole tiles, as planes.
static void spread(const Job *job, const Shape *shape, const u8 *pixels) {
    i32 height = shape->down * job->side, width = shape->right * job->side, colors = job->colors;
    double unit = job->lapped ? 1 << SCALE_BITS : 1;
    for (i32 y = 0; y < height; y++) {
        const u8 *line = pixels + mirrored(y, shape->height) * shape->width * colors;
        for (i32 c = 0; c < colors; c++) {
            double *out = job->planes + (c * height + y) * width;
            for (i32 x = 0; x < shape->width; x++) out[x] = line[x * colors + c] * unit;
            for (i32 x = shape->width; x < width; x++) out[x] = out[mirrored(x, shape->width)];
        }
    }
}

INLINE void analyze_tile(const Job *job, const double *planes, i32 area, i32 width, i32 place, i32 side, i32 colors) {
    i32 bits = job->basis_bits;
    v128_t start = wasm_f64x2_splat(power(-(job->lapped ? bits : bits - SCALE_BITS))), scale = wasm_f64x2_splat(power(-bits));
    const double *down = job->factors, *across = down + side * side, *mixing = across + side * side;
    for (i32 c = 0; c < colors; c++) {
        combine_rows(tile_planes[0][c], planes + c * area, width, down, side, start);
        for (i32 i = 0; i < side; i++)
            combine(tile_planes[1][c][i], tile_planes[0][c][i], 1, across, side, ~0u >> (32 - side), scale);
    }
    mix_colors(tile_planes[0][0][0], LARGEST_TILE * LARGEST_TILE, LARGEST_TILE, tile_planes[1], mixing, side, colors, ~0u, scale);
    for (i32 m = 0; m < job->rows; m++) {
        const i32 *index = job->indices + 3 * m;
        job->data[m * job->size + place] = tile_planes[0][index[2]][index[0]][index[1]];
    }
}

static void analyze(const Job *job, const Shape *shape) {
    i32 side = job->side, colors = job->colors, height = shape->down * side, width = shape->right * side;
    if (job->lapped)
        for (i32 c = 0; c < colors; c++) {
            lap_down(job->planes + c * height * width, height, width, side, job->lap_before);
            lap_right(job->planes + c * height * width, height, width, side, job->lap_before);
        }
    for (i32 row = 0; row < shape->down; row++)
        for (i32 column = 0; column < shape->right; column++) {
            const double *tile = job->planes + row * side * width + column * side;
            i32 place = shape->place + row * job->stride + column;
            if (side == 8 && colors == 3) analyze_tile(job, tile, height * width, width, place, 8, 3);
            else analyze_tile(job, tile, height * width, width, place, side, colors);
        }
}

// What is not zero in a tile, by channel, column and row (tile_planes[0], transposed).
typedef struct {
    u32 colors, columns[COLORS], rows[COLORS][LARGEST_TILE];
} Used;

// The components of a tile as doubles.
static void collect(const Job *job, i32 place, Used *used, double *values) {
    i32 side = job->side, area = side * side;
    __builtin_memset(used, 0, sizeof *used);
    for (i32 k = 0; k < job->colors * area; k++) {
        i32 value = job->touched[k] ? job->tiles[k * job->apart + place] : 0;
        if (!value) continue;
        i32 c = k / area, j = k % area / side, i = k % side;
        values[k] = value;
        used->rows[c][j] |= 1u << i;
        used->columns[c] |= 1u << j;
        used->colors |= 1u << c;
    }
}

INLINE void synthesize_tile(const Job *job, const Used *used, const double *values, double *planes, i32 area, i32 width, i32 side, i32 colors) {
    v128_t scale = wasm_f64x2_splat(power(-job->basis_bits));
    const double *down = job->factors_back, *across = down + side * side, *mixing = across + side * side;
    for (i32 c = 0; c < colors; c++) {
        if (!(used->colors >> c & 1)) continue;
        for (u32 left = used->columns[c]; left; left &= left - 1) {
            i32 j = __builtin_ctz(left);
            combine(tile_planes[1][c][j], values + (c * side + j) * side, 1, down, side, used->rows[c][j], scale);
        }
        for (i32 y = 0; y < side; y++)
            combine(tile_planes[0][c][y], &tile_planes[1][c][0][y], LARGEST_TILE, across, side, used->columns[c], scale);
    }
    mix_colors(planes, area, width, tile_planes[0], mixing, side, colors, used->colors, scale);
}

static void synthesize(const Job *job, const Shape *shape) {
    static double values[COLORS * LARGEST_TILE * LARGEST_TILE];
    static Used used;
    i32 side = job->side, colors = job->colors, height = shape->down * side, width = shape->right * side;
    for (i32 row = 0; row < shape->down; row++)
        for (i32 column = 0; column < shape->right; column++) {
            double *tile = job->planes + row * side * width + column * side;
            collect(job, shape->place + row * job->stride + column, &used, values);
            synthesize_tile(job, &used, values, tile, height * width, width, side, colors);
        }
    if (job->lapped)
        for (i32 c = 0; c < colors; c++) {
            lap_right(job->planes + c * height * width, height, width, side, job->lap_after);
            lap_down(job->planes + c * height * width, height, width, side, job->lap_after);
        }
}
