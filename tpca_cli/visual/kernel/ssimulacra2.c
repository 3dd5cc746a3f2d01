// The sums that SSIMULACRA 2 is made of: two pictures compared at up to six scales, each half of the one before.
//
// A scale is read row by row. The colors of a row become X, Y and B; these, their squares and products are blurred
// along the row, and the last eleven rows of that are kept, from which the rows between are blurred down the picture.
//
// With regions, it is only the structure of brightness that is compared, and summed for each region of a picture.

#include "job.h"

enum { COLORS = 3, REACH = 5, TAPS = 2 * REACH + 1, MARGIN = 8, KINDS = 4, SUMS = 6 };
enum { FIRST, SECOND, SQUARES, PRODUCTS };  // what is blurred

typedef float v4 __attribute__((vector_size(16), aligned(4)));
typedef i32 v4i __attribute__((vector_size(16), aligned(4)));

static const float TAP[REACH + 1] = {
    0.2660117249f, 0.2130055377f, 0.1093606895f, 0.0360007721f, 0.0075987581f, 0.0010283801f,
};
static const float ABSORBED[COLORS][COLORS] = {
    {0.30f, 0.622f, 0.078f},
    {0.23f, 0.692f, 0.078f},
    {0.24342268924547819f, 0.20476744424496821f, 0.55180986650955360f},
};
#define BIAS 0.0037930732552754493f
#define BIAS_ROOT 0.15595420054f
#define LEAST 0.0009f

INLINE v4 load(const float *at) { return *(const v4 *)at; }
INLINE void store(float *at, v4 value) { *(v4 *)at = value; }
INLINE v4 both(float value) { return (v4){value, value, value, value}; }
INLINE v4 larger(v4 a, v4 b) { v4i mask = a > b; return (v4)((mask & (v4i)a) | (~mask & (v4i)b)); }
INLINE v4 size_of(v4 a) { return (v4)((v4i)a & 0x7fffffff); }

// The cube root of positive numbers: a guess from the exponent, and two steps of Halley.
INLINE v4 cube_root(v4 x) {
    v4i guess = __builtin_convertvector(__builtin_convertvector((v4i)x, v4) * (1.0f / 3), v4i) + 0x2a5137a0;
    v4 y = (v4)guess;
    for (i32 k = 0; k < 2; k++) {
        v4 cube = y * y * y;
        y *= (cube + x + x) / (cube + cube + x);
    }
    return y;
}

// A row of X, Y and B, made positive, from rows of linear colors.
static void to_xyb(float *const *out, const float *const *in, i32 width) {
    for (i32 x = 0; x < width; x += 4) {
        v4 r = load(in[0] + x), g = load(in[1] + x), b = load(in[2] + x), roots[COLORS];
        for (i32 c = 0; c < COLORS; c++) {
            v4 mixed = r * ABSORBED[c][0] + g * ABSORBED[c][1] + b * ABSORBED[c][2] + BIAS;
            roots[c] = cube_root(larger(mixed, both(1e-9f))) - BIAS_ROOT;
        }
        v4 bright = 0.5f * (roots[0] + roots[1]);
        store(out[0] + x, 7.0f * (roots[0] - roots[1]) + 0.42f);
        store(out[1] + x, bright + 0.01f);
        store(out[2] + x, roots[2] - bright + 0.55f);
    }
}

// Blurred along the row; `in` has margins of zeros.
static void across(float *out, const float *in, i32 width) {
    for (i32 x = 0; x < width; x += 4) {
        v4 sum = load(in + x) * TAP[0];
        for (i32 k = 1; k <= REACH; k++) sum += (load(in + x - k) + load(in + x + k)) * TAP[k];
        store(out + x, sum);
    }
}

INLINE v4 down(const float *const *rows, i32 x) {
    v4 sum = load(rows[REACH] + x) * TAP[0];
    for (i32 k = 1; k <= REACH; k++) sum += (load(rows[REACH - k] + x) + load(rows[REACH + k] + x)) * TAP[k];
    return sum;
}

// Errors of structure.
INLINE v4 structure_at(const float *const rows[KINDS][TAPS], i32 x, v4 one, v4 two) {
    v4 apart = one - two, together = 2.0f * (down(rows[PRODUCTS], x) - one * two) + LEAST;
    v4 alone = down(rows[SQUARES], x) - (one * one + two * two) + LEAST;
    return larger(1.0f - (1.0f - apart * apart) * together / alone, both(0));
}

INLINE double total(v4 sum) { return (double)sum[0] + sum[1] + sum[2] + sum[3]; }

// Add the errors of one row and color: of structure, of edges that were not there, of edges that are gone.
static void compare(double *sums, const float *const rows[KINDS][TAPS], const float *first, const float *second, i32 width) {
    v4 found[SUMS] = {0};
    for (i32 x = 0; x < width; x += 4) {
        v4i inside = (v4i){x, x + 1, x + 2, x + 3} < width;
        v4 one = down(rows[FIRST], x), two = down(rows[SECOND], x), structure = structure_at(rows, x, one, two);
        v4 edges = (1.0f + size_of(load(second + x) - two)) / (1.0f + size_of(load(first + x) - one)) - 1.0f;
        v4 errors[3] = {structure, larger(edges, both(0)), larger(-edges, both(0))};
        for (i32 k = 0; k < 3; k++) {
            v4 error = (v4)((v4i)errors[k] & inside), square = error * error;
            found[2 * k] += error;
            found[2 * k + 1] += square * square;
        }
    }
    for (i32 k = 0; k < SUMS; k++) sums[k] += total(found[k]);
}

// Add the errors of structure in one row, each for the pixels of the picture that it stands for, to a row of regions.
static void compare_regions(const Job *job, float *found, const float *const rows[KINDS][TAPS], i32 y, i32 width, i32 scale) {
    i32 side = job->region >> scale;
    double *regions = job->losses + y / side * job->regions_across;
    for (i32 x = 0; x < width; x += 4) store(found + x, structure_at(rows, x, down(rows[FIRST], x), down(rows[SECOND], x)));
    for (i32 x = 0; x < width; x++) regions[x / side] += (double)found[x] * (1 << 2 * scale);
}

static void compare_scale(Job *job, const float *planes, i32 height, i32 width, i32 scale) {
    const i32 colors = job->region ? 1 : COLORS;
    double *sums = job->sums + scale * COLORS * SUMS;
    i32 stride = job->stride, plane = job->stride * job->height, row_size = stride + 2 * MARGIN;
    float *line = job->rows + MARGIN;                  // with margins
    float *xyb = job->rows + row_size;                 // (TAPS, 2, COLORS, stride)
    float *blurred = xyb + TAPS * 2 * COLORS * stride;  // (TAPS, COLORS, KINDS, stride)
    for (i32 y = 0; y < height + REACH; y++) {
        i32 slot = y % TAPS;
        if (y < height) {
            const float *in[2][COLORS];
            float *out[2][COLORS];
            for (i32 side = 0; side < 2; side++) {
                for (i32 c = 0; c < COLORS; c++) {
                    in[side][c] = planes + (side * COLORS + c) * plane + y * stride;
                    out[side][c] = xyb + ((slot * 2 + side) * COLORS + c) * stride;
                }
                if (job->region) __builtin_memcpy(out[side][0], in[side][0], 4 * width);
                else to_xyb(out[side], in[side], width);
            }
            for (i32 c = 0; c < colors; c++) {
                const float *a = out[0][c], *b = out[1][c];
                for (i32 kind = 0; kind < KINDS; kind++) {
                    if (kind == FIRST) for (i32 x = 0; x < width; x++) line[x] = a[x];
                    if (kind == SECOND) for (i32 x = 0; x < width; x++) line[x] = b[x];
                    if (kind == SQUARES) for (i32 x = 0; x < width; x++) line[x] = a[x] * a[x] + b[x] * b[x];
                    if (kind == PRODUCTS) for (i32 x = 0; x < width; x++) line[x] = a[x] * b[x];
                    for (i32 x = width; x < width + MARGIN; x++) line[x] = 0;
                    across(blurred + ((slot * COLORS + c) * KINDS + kind) * stride, line, width);
                }
            }
        }
        i32 middle = y - REACH;
        if (middle < 0) continue;
        for (i32 c = 0; c < colors; c++) {
            const float *rows[KINDS][TAPS];
            for (i32 kind = 0; kind < KINDS; kind++)
                for (i32 k = 0; k < TAPS; k++) {
                    i32 at = middle - REACH + k;
                    at = at < 0 ? -1 - at : at >= height ? 2 * height - 1 - at : at;  // as in a mirror
                    rows[kind][k] = blurred + ((at % TAPS * COLORS + c) * KINDS + kind) * stride;
                }
            if (job->region) {
                compare_regions(job, line, rows, middle, width, scale);
                continue;
            }
            const float *first = xyb + (middle % TAPS * 2 * COLORS + c) * stride;
            compare(sums + c * SUMS, rows, first, first + COLORS * stride, width);
        }
    }
}

// Means of two by two pixels, in place; of fewer at the right and lower border.
static void halve(const Job *job, float *plane, i32 height, i32 width) {
    i32 stride = job->stride, half = (width + 1) / 2;
    for (i32 y = 0; y < (height + 1) / 2; y++) {
        const float *upper = plane + 2 * y * stride, *lower = 2 * y + 1 < height ? upper + stride : upper;
        float *out = plane + y * stride;
        for (i32 x = 0; x < width / 2; x++)
            out[x] = 0.25f * (upper[2 * x] + upper[2 * x + 1] + lower[2 * x] + lower[2 * x + 1]);
        if (width & 1) out[half - 1] = 0.5f * (upper[width - 1] + lower[width - 1]);
    }
}

static void to_linear(const Job *job, const u16 *pixels, float *planes) {
    i32 plane = job->stride * job->height, channels = job->channels;
    for (i32 y = 0; y < job->height; y++)
        for (i32 x = 0; x < job->width; x++, pixels += channels)
            for (i32 c = 0; c < COLORS; c++)
                planes[c * plane + y * job->stride + x] = job->linear[pixels[channels == 1 ? 0 : c]];
}

// Brightness, in the plane of the first color.
static void to_bright(const Job *job, const u16 *pixels, float *plane) {
    for (i32 y = 0; y < job->height; y++)
        for (i32 x = 0; x < job->width; x++, pixels += job->channels)
            plane[y * job->stride + x] = job->channels == 1 ? job->linear[*pixels] : 0.25f * (job->linear[pixels[0]] + 2 * job->linear[pixels[1]] + job->linear[pixels[2]]);
}

EXPORT(run) void run(void) {
    Job *job = &the_job;
    i32 height = job->height, width = job->width, plane = job->stride * job->height, most = job->region ? REGION_SCALES : SCALES;
    (job->region ? to_bright : to_linear)(job, job->original, job->planes);
    (job->region ? to_bright : to_linear)(job, job->decoded, job->planes + COLORS * plane);
    for (job->scales = 0; job->scales < most && height >= SMALLEST && width >= SMALLEST; job->scales++) {
        compare_scale(job, job->planes, height, width, job->scales);
        for (i32 k = 0; k < 2 * COLORS; k += job->region ? COLORS : 1) halve(job, job->planes + k * plane, height, width);
        height = (height + 1) / 2, width = (width + 1) / 2;
    }
}
