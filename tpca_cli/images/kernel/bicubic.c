/* Bicubic resizing of 8-bit pictures of one or three channels, in integers: the same bits on every machine.
 *
 * Rows are combined first, into 16-bit numbers with FRACTION binary places and no clipping, then columns. Taps
 * are integers that add up to 1 << UNIT, so a picture of one value stays what it is. Behind the picture a line more
 * may be read, which counts nothing; behind the others the caller leaves some bytes to be read or overwritten.
 */
#include "job.h"

#include <wasm_simd128.h>

#define UNIT 14
#define FRACTION 6
#define EIGHTS(n) (((n) + 7) & ~7)

/* What one line of results needs of the old ones: position and number of the taps, padded by zeros to eights. */
typedef struct {
    int stride;
    int32_t *first, *count;
    int16_t *taps;
} Plan;

static double cubic(double x) {
    x = __builtin_fabs(x);
    if (x < 1) return (1.5 * x - 2.5) * x * x + 1;
    return x < 2 ? ((2.5 - 0.5 * x) * x - 4) * x + 2 : 0;
}

/* Taps of the results 0 .. after - 1 of a line; answers where free memory goes on. */
static uint8_t *plan(int before, double extent, int after, uint8_t *at, Plan *p) {
    double scale = extent / after, stretch = scale > 1 ? scale : 1, reach = 2 * stretch, shrink = 1 / stretch;
    p->stride = EIGHTS((int)(2 * reach) + 3);
    double *weights = (double *)at;
    p->first = (int32_t *)(weights + p->stride);
    p->count = p->first + after;
    p->taps = (int16_t *)(p->count + after);
    for (int i = 0; i < after; i++) {
        double center = (i + 0.5) * scale, sum = 0;
        int low = (int)(center - reach + 0.5), high = (int)(center + reach + 0.5);
        if (low < 0) low = 0;
        if (high > before) high = before;
        int count = high - low, rest = 1 << UNIT, largest = 0;
        for (int j = 0; j < count; j++) {
            weights[j] = cubic((low + j + 0.5 - center) * shrink);
            sum += weights[j];
        }
        int16_t *taps = p->taps + i * p->stride;
        double unit = (1 << UNIT) / sum;
        for (int j = 0; j < p->stride; j++) taps[j] = 0;
        for (int j = 0; j < count; j++) {
            taps[j] = (int16_t)__builtin_floor(weights[j] * unit + 0.5);
            rest -= taps[j];
            if (taps[j] > taps[largest]) largest = j;
        }
        taps[largest] += rest;
        p->first[i] = low;
        p->count[i] = count;
    }
    return (uint8_t *)(p->taps + after * p->stride);
}

static v128_t rounded(v128_t sum, int places) {
    return wasm_i32x4_shr(wasm_i32x4_add(sum, wasm_i32x4_splat(1 << (places - 1))), places);
}

/* Lines of `size` bytes to new lines of `size` 16-bit numbers: two lines at a time, sixteen bytes of each. */
static void down(const uint8_t *from, int size, int16_t *to, int lines, const Plan *p) {
    for (int i = 0; i < lines; i++, to += size) {
        const uint8_t *top = from + p->first[i] * size;
        for (int x = 0; x < size; x += 16) {
            v128_t a = wasm_i32x4_splat(0), b = a, c = a, d = a;
            const uint8_t *line = top + x;
            const int16_t *taps = p->taps + i * p->stride;
            for (int n = p->count[i]; n > 0; n -= 2, line += 2 * size, taps += 2) {
                v128_t t = wasm_v128_load32_splat(taps);
                v128_t u = wasm_v128_load(line), v = wasm_v128_load(line + size);
                v128_t low = wasm_i8x16_shuffle(u, v, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
                v128_t high =
                    wasm_i8x16_shuffle(u, v, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
                a = wasm_i32x4_add(a, wasm_i32x4_dot_i16x8(wasm_u16x8_extend_low_u8x16(low), t));
                b = wasm_i32x4_add(b, wasm_i32x4_dot_i16x8(wasm_u16x8_extend_high_u8x16(low), t));
                c = wasm_i32x4_add(c, wasm_i32x4_dot_i16x8(wasm_u16x8_extend_low_u8x16(high), t));
                d = wasm_i32x4_add(d, wasm_i32x4_dot_i16x8(wasm_u16x8_extend_high_u8x16(high), t));
            }
            int places = UNIT - FRACTION;
            wasm_v128_store(to + x, wasm_i16x8_narrow_i32x4(rounded(a, places), rounded(b, places)));
            wasm_v128_store(to + x + 8, wasm_i16x8_narrow_i32x4(rounded(c, places), rounded(d, places)));
        }
    }
}

static v128_t bytes(v128_t a, v128_t b, v128_t c, v128_t d) {
    int places = UNIT + FRACTION;
    return wasm_u8x16_narrow_i16x8(wasm_i16x8_narrow_i32x4(rounded(a, places), rounded(b, places)),
                                   wasm_i16x8_narrow_i32x4(rounded(c, places), rounded(d, places)));
}

/* Gray: eight neighbours at a time. */
static void across_one(const int16_t *from, int width, uint8_t *to, int new_width, int lines, const Plan *p) {
    for (; lines > 0; lines--, from += width, to += new_width) {
        for (int i = 0; i < new_width; i++) {
            const int16_t *at = from + p->first[i], *taps = p->taps + i * p->stride;
            v128_t sum = wasm_i32x4_splat(0);
            for (int j = 0; j < p->count[i]; j += 8)
                sum = wasm_i32x4_add(sum, wasm_i32x4_dot_i16x8(wasm_v128_load(at + j), wasm_v128_load(taps + j)));
            sum = wasm_i32x4_add(sum, wasm_i32x4_shuffle(sum, sum, 2, 3, 0, 1));
            sum = wasm_i32x4_add(sum, wasm_i32x4_shuffle(sum, sum, 1, 0, 3, 2));
            to[i] = wasm_u8x16_extract_lane(bytes(sum, sum, sum, sum), 0);
        }
    }
}

/* Colors: two neighbours at a time, all three channels of them. */
static v128_t two(const int16_t *at) {
    v128_t v = wasm_v128_load(at);
    return wasm_i16x8_shuffle(v, v, 0, 3, 1, 4, 2, 5, 6, 7);
}

static void put(uint8_t *to, uint32_t color) {
    *(uint16_t *)to = (uint16_t)color;
    to[2] = (uint8_t)(color >> 16);
}

/* Four lines at a time; where there are fewer, the last one several times. */
static void across_three(const int16_t *from, int width, uint8_t *to, int new_width, int lines, const Plan *p) {
    int row = 3 * width, new_row = 3 * new_width;
    for (int y = 0; y < lines; y += 4) {
        const int16_t *line = from + y * row;
        uint8_t *out = to + y * new_row;
        int left = lines - y - 1, first = left > 0, second = left > 1 ? 2 : first, third = left > 2 ? 3 : second;
        for (int i = 0; i < new_width; i++, out += 3) {
            const int16_t *at = line + 3 * p->first[i], *taps = p->taps + i * p->stride;
            v128_t a = wasm_i32x4_splat(0), b = a, c = a, d = a;
            for (int n = p->count[i]; n > 0; n -= 2, at += 6, taps += 2) {
                v128_t t = wasm_v128_load32_splat(taps);
                a = wasm_i32x4_add(a, wasm_i32x4_dot_i16x8(two(at), t));
                b = wasm_i32x4_add(b, wasm_i32x4_dot_i16x8(two(at + first * row), t));
                c = wasm_i32x4_add(c, wasm_i32x4_dot_i16x8(two(at + second * row), t));
                d = wasm_i32x4_add(d, wasm_i32x4_dot_i16x8(two(at + third * row), t));
            }
            v128_t all = bytes(a, b, c, d);
            put(out, wasm_u32x4_extract_lane(all, 0));
            put(out + first * new_row, wasm_u32x4_extract_lane(all, 1));
            put(out + second * new_row, wasm_u32x4_extract_lane(all, 2));
            put(out + third * new_row, wasm_u32x4_extract_lane(all, 3));
        }
    }
}

EXPORT(run) void run(void) {
    const Job *job = &the_job;
    Plan rows, columns;
    uint8_t *free = plan(job->height, job->tall, job->new_height, job->scratch, &rows);
    free = (uint8_t *)(((uint32_t)free + 15) & ~15u);
    plan(job->width, job->wide, job->new_width, free, &columns);
    down(job->pixels, job->channels * job->width, job->between, job->new_height, &rows);
    if (job->channels == 1)
        across_one(job->between, job->width, job->resized, job->new_width, job->new_height, &columns);
    else
        across_three(job->between, job->width, job->resized, job->new_width, job->new_height, &columns);
}
