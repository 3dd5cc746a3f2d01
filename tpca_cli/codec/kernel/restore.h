// Planes to pixels, through the filter that takes back part of the quantisation error (restore.py).

#include "learned.h"

static void round_pixels(const Job *job, const Shape *shape, i32 quick, u8 *pixels) {
    i32 colors = job->colors;
    for (i32 y = 0; y < shape->height; y++)
        for (i32 c = 0; c < colors; c++) {
            const i16 *shorts = quick ? quick_line(job, shape, c, y) : 0;
            const double *plane = exact_line(job, shape, c, y);
            u8 *out = pixels + y * shape->width * colors + c;
            for (i32 x = 0; x < shape->width && quick; x++)
                out[x * colors] = clipped((shorts[x] + GREY + (1 << (SCALE_BITS - 1))) >> SCALE_BITS, 0, 255);
            for (i32 x = 0; x < shape->width && !quick; x++) {
                double value = __builtin_floor(plane[x] * power(-SCALE_BITS) + 0.5);
                out[x * colors] = value < 0 ? 0 : value > 255 ? 255 : (i32)value;
            }
        }
}

enum { KEPT = 6, NEAREST = 4 };  // pairs of which neighbours touch the pixel

#define INTS(pointer) wasm_v128_load(pointer)
#define ADD wasm_i32x4_add

#define LOW_HALVES(a, b) wasm_i16x8_shuffle(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define HIGH_HALVES(a, b) wasm_i16x8_shuffle(a, b, 4, 12, 5, 13, 6, 14, 7, 15)

INLINE void add_to(i32 *sums, v128_t low, v128_t high) {
    wasm_v128_store(sums, ADD(INTS(sums), low));
    wasm_v128_store(sums + 4, ADD(INTS(sums + 4), high));
}

// Sums over five lines of each plane: how the brightness bends across and down, itself, and two colors; then of
// the square of brightness and of its products with the colors.
enum { ACROSS, DOWN, LIGHT, FIRST, SECOND, SUMMED, PRODUCTS = SUMMED - LIGHT, SUMS = SUMMED + PRODUCTS };

// One line comes in and one goes out, if there are so many: samples of both lie side by side, so that a product
// and the one to take away are one instruction.
INLINE void move_line(i32 *sums, const i16 *const *planes, i32 in, i32 out, i32 stride, i32 follow) {
    const v128_t none = wasm_i32x4_splat(0), both = wasm_i32x4_splat(0xffff0001);
    for (i32 x = 0; x < stride; x += 8) {
        for (i32 k = 0; k < LIGHT; k++) {
            v128_t own = wasm_i16x8_sub(SHORTS(planes[k] + in + x), out < 0 ? none : SHORTS(planes[k] + out + x));
            add_to(sums + k * stride + x, wasm_i32x4_extend_low_i16x8(own), wasm_i32x4_extend_high_i16x8(own));
        }
        if (!follow) continue;
        v128_t light = SHORTS(planes[LIGHT] + in + x), gone = wasm_i16x8_neg(out < 0 ? none : SHORTS(planes[LIGHT] + out + x));
        v128_t low_light = LOW_HALVES(light, gone), high_light = HIGH_HALVES(light, gone);
        for (i32 k = LIGHT; k < SUMMED; k++) {
            v128_t come = SHORTS(planes[k] + in + x), go = out < 0 ? none : SHORTS(planes[k] + out + x);
            v128_t low = LOW_HALVES(come, go), high = HIGH_HALVES(come, go);
            add_to(sums + k * stride + x, wasm_i32x4_dot_i16x8(low, both), wasm_i32x4_dot_i16x8(high, both));
            add_to(sums + (k + PRODUCTS) * stride + x, wasm_i32x4_dot_i16x8(low, low_light), wasm_i32x4_dot_i16x8(high, high_light));
        }
    }
}

INLINE v128_t five(const i32 *sums) {
    FROM(sums);
    return ADD(ADD(ADD(INTS(sums), INTS(sums + 1)), ADD(INTS(sums + 2), INTS(sums + 3))), INTS(sums + 4));
}

INLINE v128_t doubles(v128_t ints, i32 high) {
    return wasm_f64x2_convert_low_i32x4(high ? wasm_i32x4_shuffle(ints, ints, 2, 3, 2, 3) : ints);
}

INLINE v128_t scaled(v128_t values, double factor) { return TIMES(values, wasm_f64x2_splat(factor)); }

INLINE v128_t bounded(v128_t ints, i32 most) {
    return wasm_i32x4_max(wasm_i32x4_min(ints, wasm_i32x4_splat(most)), wasm_i32x4_splat(-most));
}

// Of n numbers, n times the sum of their products less the product of their sums is at most MOST_PAIRS times the product
// of their ranges. Brightness and colors that are not farther than this from the middle make it fit 32 bits.
enum { MIDDLE = 1020, FAR_LIGHT = 1300, FAR_COLOR = 2647, MOST_PAIRS = WINDOW / 2 * (WINDOW - WINDOW / 2) };
_Static_assert(4ll * MOST_PAIRS * FAR_LIGHT * FAR_COLOR < 1ll << 31, "products of a light and a color");
_Static_assert(4ll * MOST_PAIRS * FAR_LIGHT * FAR_LIGHT + FLATNESS < 1ll << 31, "squares of a light");

// 2^8 together / variance, rounded down, by about its inverse; what is beyond the limit is rounded to somewhere beyond it.
INLINE v128_t narrow_slopes(v128_t together, v128_t variance, v128_t inverse) {
    const v128_t most = wasm_f32x4_splat(SLOPE_LIMIT + 1), whole = wasm_f32x4_splat(3 << 22);  // so large that it has no fraction
    v128_t about = wasm_f32x4_mul(wasm_f32x4_convert_i32x4(together), inverse);
    about = wasm_f32x4_pmin(wasm_f32x4_pmax(about, wasm_f32x4_neg(most)), most);
    v128_t nearest = wasm_i32x4_sub(wasm_f32x4_add(about, whole), whole);  // the quotient or one more
    v128_t left = wasm_i32x4_sub(wasm_i32x4_shl(together, RESTORE_BITS), wasm_i32x4_mul(nearest, variance));
    return ADD(nearest, wasm_i32x4_shr(left, 31));
}

INLINE v128_t wide_slopes(v128_t products, v128_t color, v128_t light, const v128_t *variance) {
    v128_t slopes[2];
    for (i32 h = 0; h < 2; h++) {
        v128_t together = wasm_f64x2_sub(scaled(doubles(products, h), WINDOW), TIMES(doubles(color, h), doubles(light, h)));
        slopes[h] = wasm_i32x4_trunc_sat_f64x2_zero(wasm_f64x2_floor(wasm_f64x2_div(scaled(together, 1 << RESTORE_BITS), variance[h])));
    }
    return wasm_i32x4_shuffle(slopes[0], slopes[1], 0, 1, 4, 5);
}

// How far two colors are from the line through colors against brightness within 5 x 5 pixels, in steps of 16/25.
static void follow_wide(const i32 *sums, const i16 *const *planes, i32 at, i32 width, i32 stride, i16 *out) {
    const i16 *own_planes[3] = {planes[LIGHT] + at, planes[FIRST] + at, planes[SECOND] + at};
    for (i32 x = 0; x < width; x += 4) {
        v128_t light = five(sums + LIGHT * stride + x), squares = five(sums + SUMMED * stride + x), variance[2];
        for (i32 h = 0; h < 2; h++) {
            v128_t lights = doubles(light, h);
            variance[h] = PLUS(wasm_f64x2_sub(scaled(doubles(squares, h), WINDOW), TIMES(lights, lights)), wasm_f64x2_splat(FLATNESS));
        }
        v128_t ahead = wasm_i32x4_sub(wasm_i32x4_mul(wasm_i32x4_load16x4(own_planes[0] + x), wasm_i32x4_splat(WINDOW)), light);
        for (i32 k = 1; k < 3; k++) {
            v128_t color = five(sums + (LIGHT + k) * stride + x), products = five(sums + (SUMMED + k) * stride + x);
            v128_t slope = wide_slopes(products, color, light, variance);
            v128_t own = wasm_i32x4_mul(wasm_i32x4_load16x4(own_planes[k] + x), wasm_i32x4_splat(WINDOW << RESTORE_BITS));
            v128_t line = ADD(wasm_i32x4_shl(color, RESTORE_BITS), wasm_i32x4_mul(bounded(slope, SLOPE_LIMIT), ahead));
            v128_t away = bounded(wasm_i32x4_shr(wasm_i32x4_sub(line, own), FOLLOW_SHIFT), FOLLOW_LIMIT);
            wasm_v128_store64_lane(out + (k - 1) * stride + x, wasm_i16x8_narrow_i32x4(away, away), 0);
        }
    }
}

enum { SOME = 64 };

// The same where all fits 32 bits, some pixels at a time, in steps that each need few registers: a compiler of
// WebAssembly loads all that leads to a store before it computes any of it.
static void follow_narrow(const i32 *sums, const i16 *const *planes, i32 at, i32 width, i32 stride, i16 *out) {
    static i32 lights[SOME], ahead[SOME], variances[SOME], inverses[SOME], levels[SOME], together[SOME];
    const v128_t most = wasm_i16x8_splat(FOLLOW_LIMIT), least_away = wasm_i16x8_splat(-FOLLOW_LIMIT), window = SPLAT(WINDOW);
    for (i32 first = 0; first < width; first += SOME) {
        i32 some = least(SOME, (width - first + 3) & ~3);
        const i16 *own = planes[LIGHT] + at + first;
        const i32 *here = sums + first;
        for (i32 x = 0; x < some; x += 4) {
            v128_t light = five(here + LIGHT * stride + x);
            wasm_v128_store(lights + x, light);
            v128_t variance = ADD(wasm_i32x4_sub(wasm_i32x4_mul(five(here + SUMMED * stride + x), window), wasm_i32x4_mul(light, light)), SPLAT(FLATNESS));
            wasm_v128_store(variances + x, variance);
            wasm_v128_store(inverses + x, wasm_f32x4_div(wasm_f32x4_splat(1 << RESTORE_BITS), wasm_f32x4_convert_i32x4(variance)));
            wasm_v128_store(ahead + x, wasm_i32x4_sub(wasm_i32x4_mul(wasm_i32x4_load16x4(own + x), window), light));
        }
        for (i32 k = 1; k < 3; k++) {
            const i32 *colors = here + (LIGHT + k) * stride, *products = here + (SUMMED + k) * stride;
            const i16 *color_plane = planes[LIGHT + k] + at + first;
            i16 *away = out + (k - 1) * stride + first;
            for (i32 x = 0; x < some; x += 4) {
                v128_t color = five(colors + x);
                wasm_v128_store(levels + x, wasm_i32x4_sub(color, wasm_i32x4_mul(wasm_i32x4_load16x4(color_plane + x), window)));
                wasm_v128_store(together + x, wasm_i32x4_sub(wasm_i32x4_mul(five(products + x), window), wasm_i32x4_mul(color, INTS(lights + x))));
            }
            for (i32 x = 0; x < some; x += 4) {
                v128_t slope = narrow_slopes(INTS(together + x), INTS(variances + x), INTS(inverses + x));
                v128_t line = ADD(wasm_i32x4_shl(INTS(levels + x), RESTORE_BITS), wasm_i32x4_mul(bounded(slope, SLOPE_LIMIT), INTS(ahead + x)));
                v128_t found = wasm_i32x4_shr(line, FOLLOW_SHIFT);
                found = wasm_i16x8_max(wasm_i16x8_min(wasm_i16x8_narrow_i32x4(found, found), most), least_away);
                wasm_v128_store64_lane(away + x, found, 0);
            }
        }
    }
}

// Opposite neighbours minus twice the pixel, for eight pixels and every pair. With a bound also what eight neighbours are
// away from the pixel, each within the bound, and what those two pixels away are.
INLINE void differ_as(v128_t *out, const i16 *at, i32 stride, i32 bound) {
    const i16 *lines[5];
    for (i32 k = 0; k < 5; k++) {
        lines[k] = at + (k - 2) * stride - 2;
        FROM(lines[k]);
    }
    const i16 *const pairs[PAIRS][2] = {
        {lines[2] + 3, lines[2] + 1}, {lines[3] + 2, lines[1] + 2}, {lines[3] + 3, lines[1] + 1},
        {lines[3] + 1, lines[1] + 3}, {lines[2] + 4, lines[2]},     {lines[4] + 2, lines[0] + 2},
    };
    v128_t own = SHORTS(lines[2] + 2), twice = wasm_i16x8_shl(own, 1);
    v128_t most = wasm_i16x8_add(own, wasm_i16x8_splat(bound)), least = wasm_i16x8_sub(own, wasm_i16x8_splat(bound));
    for (i32 k = 0; k < PAIRS; k++) {
        v128_t one = SHORTS(pairs[k][0]), two = SHORTS(pairs[k][1]);
        out[k] = wasm_i16x8_sub(wasm_i16x8_add(one, two), twice);
        if (!bound) continue;
        v128_t near = wasm_i16x8_add(wasm_i16x8_max(wasm_i16x8_min(one, most), least), wasm_i16x8_max(wasm_i16x8_min(two, most), least));
        v128_t *sum = out + PAIRS + (k >= NEAREST);
        *sum = k == 0 || k == NEAREST ? wasm_i16x8_sub(near, twice) : wasm_i16x8_add(*sum, wasm_i16x8_sub(near, twice));
    }
}

INLINE void differ(v128_t *out, const i16 *at, i32 stride) { differ_as(out, at, stride, 0); }

enum { MOST_FEATURES = PAIRS * COLORS + 2 };

typedef struct {
    i32 colors, features, stride, area;  // of planes with their margins
    const i16 *fine, *follows;           // planes; a line of each color that follows brightness
    v128_t weights[MOST_FEATURES / 2][COLORS];  // of two features at a time
} Mixing;

// Two features of eight pixels to the corrections of every channel.
INLINE void add_features(v128_t *first, v128_t *second, v128_t one, v128_t two, const v128_t *weights, i32 colors) {
    v128_t low = LOW_HALVES(one, two), high = HIGH_HALVES(one, two);
    for (i32 c = 0; c < colors; c++) {
        first[c] = ADD(first[c], wasm_i32x4_dot_i16x8(low, weights[c]));
        second[c] = ADD(second[c], wasm_i32x4_dot_i16x8(high, weights[c]));
    }
}

// Eight pixels of a line: corrections by brightness, and by all channels, to every channel.
INLINE void mix_pixels_as(const Mixing *mixing, i32 at, i32 x, const i32 *line, i32 count, u8 *pixels, i32 colors, i32 features) {
    v128_t first[COLORS], second[COLORS];
    u8 out[COLORS][8];
    for (i32 c = 0; c < colors; c++) {
        i32 alpha = features && colors % 2 == 0 && c == colors - 1;
        first[c] = alpha ? wasm_i32x4_splat(0) : INTS(line + x), second[c] = alpha ? first[c] : INTS(line + x + 4);
    }
    for (i32 c = 0; c < colors && features; c++) {
        v128_t found[PAIRS];
        differ(found, mixing->fine + c * mixing->area + at + x, mixing->stride);
        for (i32 k = 0; k < PAIRS; k += 2) add_features(first, second, found[k], found[k + 1], mixing->weights[(c * PAIRS + k) / 2], colors);
    }
    if (features > PAIRS * colors)
        add_features(first, second, SHORTS(mixing->follows + x), SHORTS(mixing->follows + mixing->stride + x), mixing->weights[features / 2 - 1], colors);
    for (i32 c = 0; c < colors; c++) {
        v128_t half = wasm_i32x4_splat(1 << (RESTORE_BITS - 1)), fine = SHORTS(mixing->fine + c * mixing->area + at + x);
        v128_t change = wasm_i16x8_narrow_i32x4(wasm_i32x4_shr(ADD(first[c], half), RESTORE_BITS), wasm_i32x4_shr(ADD(second[c], half), RESTORE_BITS));
        v128_t found = wasm_i16x8_add_sat(wasm_i16x8_add_sat(fine, change), wasm_i16x8_splat(SUBPIXEL / 2));
        found = wasm_i16x8_shr(found, SUBPIXEL_BITS);
        wasm_v128_store64_lane(out[c], wasm_u8x16_narrow_i16x8(found, found), 0);
    }
    if (colors == 3 && count == 8) {
        v128_t two = wasm_v128_load(out[0]), last = wasm_v128_load64_zero(out[2]);
        wasm_v128_store(pixels, wasm_i8x16_shuffle(two, last, 0, 8, 16, 1, 9, 17, 2, 10, 18, 3, 11, 19, 4, 12, 20, 5));
        two = wasm_i8x16_shuffle(two, last, 13, 21, 6, 14, 22, 7, 15, 23, 0, 0, 0, 0, 0, 0, 0, 0);
        wasm_v128_store64_lane(pixels + 16, two, 0);
        return;
    }
    for (i32 c = 0; c < colors; c++)
        for (i32 k = 0; k < count; k++) pixels[k * colors + c] = out[c][k];
}

static void mix_line(const Mixing *mixing, i32 at, const i32 *line, i32 width, u8 *pixels) {
    i32 colors = mixing->colors, features = mixing->features;
    if (colors == 3 && features == 3 * PAIRS + 2)
        for (i32 x = 0; x < width; x += 8) mix_pixels_as(mixing, at, x, line, least(8, width - x), pixels + x * 3, 3, 3 * PAIRS + 2);
    else if (colors == 3 && features == 3 * PAIRS)
        for (i32 x = 0; x < width; x += 8) mix_pixels_as(mixing, at, x, line, least(8, width - x), pixels + x * 3, 3, 3 * PAIRS);
    else
        for (i32 x = 0; x < width; x += 8) mix_pixels_as(mixing, at, x, line, least(8, width - x), pixels + x * colors, colors, features);
}

// Eight vectors of eight become those of their first, second, .. entries.
INLINE void transpose(v128_t *v) {
    v128_t a[8], b[8];
    for (i32 k = 0; k < 4; k++) a[2 * k] = LOW_HALVES(v[2 * k], v[2 * k + 1]), a[2 * k + 1] = HIGH_HALVES(v[2 * k], v[2 * k + 1]);
    for (i32 k = 0; k < 8; k += 4)
        for (i32 h = 0; h < 2; h++) {
            b[k + 2 * h] = wasm_i32x4_shuffle(a[k + h], a[k + h + 2], 0, 4, 1, 5);
            b[k + 2 * h + 1] = wasm_i32x4_shuffle(a[k + h], a[k + h + 2], 2, 6, 3, 7);
        }
    for (i32 k = 0; k < 4; k++) {
        v[2 * k] = wasm_i64x2_shuffle(b[k], b[k + 4], 0, 2);
        v[2 * k + 1] = wasm_i64x2_shuffle(b[k], b[k + 4], 1, 3);
    }
}

// Sums of the four entries of four vectors.
INLINE v128_t totals(const v128_t *v) {
    v128_t a = ADD(wasm_i32x4_shuffle(v[0], v[1], 0, 4, 1, 5), wasm_i32x4_shuffle(v[0], v[1], 2, 6, 3, 7));
    v128_t b = ADD(wasm_i32x4_shuffle(v[2], v[3], 0, 4, 1, 5), wasm_i32x4_shuffle(v[2], v[3], 2, 6, 3, 7));
    return ADD(wasm_i64x2_shuffle(a, b, 0, 2), wasm_i64x2_shuffle(a, b, 1, 3));
}

// The class of four pixels, by how much brightness bends around them and which way.
INLINE v128_t classes(const v128_t *borders, v128_t across, v128_t down) {
    v128_t level = wasm_i32x4_splat(0), activity = ADD(across, down);
    for (i32 k = 0; k < LEVELS - 1; k++) level = wasm_i32x4_sub(level, wasm_i32x4_gt(activity, borders[k]));
    v128_t twice = wasm_i32x4_shl(across, 1), thrice = ADD(wasm_i32x4_shl(down, 1), down);
    v128_t found = wasm_i32x4_sub(ADD(wasm_i32x4_shl(level, 1), level), wasm_i32x4_gt(twice, thrice));
    twice = wasm_i32x4_shl(down, 1), thrice = ADD(wasm_i32x4_shl(across, 1), across);
    v128_t other = wasm_i32x4_gt(twice, thrice);
    return wasm_u32x4_min(wasm_i32x4_sub(found, ADD(other, other)), wasm_i32x4_splat(3 * LEVELS - 1));  // beside the picture it may be any
}

// The correction of a line by brightness, by the filter of the class of every pixel.
INLINE void by_brightness_as(const Job *job, const i16 (*filters)[8], const i16 *light, const i32 *sums, i32 stride, i32 width, i32 *line, i32 bound) {
    static i32 class[SOME];
    static v128_t features[SOME];
    v128_t borders[LEVELS - 1];
    for (i32 k = 0; k < LEVELS - 1; k++) borders[k] = wasm_i32x4_splat(job->borders[k]);
    for (i32 first = 0; first < width; first += SOME) {
        i32 some = least(SOME, (width - first + 7) & ~7);
        for (i32 x = 0; x < some; x += 4)
            wasm_v128_store(class + x, classes(borders, five(sums + ACROSS * stride + first + x), five(sums + DOWN * stride + first + x)));
        for (i32 x = 0; x < some; x += 8) {
            v128_t pixels[8];
            differ_as(pixels, light + first + x, stride, bound);
            if (!bound) pixels[6] = pixels[7] = wasm_i32x4_splat(0);
            transpose(pixels);
            for (i32 k = 0; k < 8; k++) features[x + k] = pixels[k];
        }
        for (i32 x = 0; x < some; x += 4) {
            v128_t found[4];
            for (i32 k = 0; k < 4; k++) found[k] = wasm_i32x4_dot_i16x8(features[x + k], SHORTS(filters[class[x + k]]));
            wasm_v128_store(line + first + x, totals(found));
        }
    }
}

static void by_brightness(const Job *job, const i16 (*filters)[8], const i16 *light, const i32 *sums, i32 stride, i32 width, i32 *line) {
    if (job->bound) by_brightness_as(job, filters, light, sums, stride, width, line, job->bound);
    else by_brightness_as(job, filters, light, sums, stride, width, line, 0);
}

// The planes that the filter looks at.
typedef struct {
    i32 colors, height, width, stride, area;
    i16 *fine, *bent, *light, *away;
} Views;

// A line of all planes, counted with the two above: channels, brightness, and how far two colors are from it. Whether
// brightness or colors are far from the middle.
static i32 prepare_line(const Job *job, const Shape *shape, i32 quick, const Views *views, i32 y, i32 gone) {
    i32 area = views->area, at = (y - gone) * views->stride;
    const i32 line = clipped(y - 2, 0, views->height - 1);
    for (i32 c = 0; c < views->colors && !job->networked; c++) to_shorts(job, shape, quick, c, line, views->fine + c * area + at + 2);
    for (i32 c = 0; c < views->colors && job->networked; c++)
        __builtin_memcpy(views->fine + c * area + at, learned_line(job, shape, quick, c, line) - 2, 2 * views->stride);
    const i16 *red = views->fine + at, *green = red + area, *blue = green + area;
    i16 *light = views->light + at, *away = views->away + at;
    v128_t far_light = wasm_i16x8_splat(0), far_color = far_light;
    if (views->colors < 3) __builtin_memcpy(light, red, 2 * views->stride);
    else
        for (i32 x = 0; x < views->stride; x += 8) {
            v128_t one = SHORTS(red + x), three = SHORTS(blue + x), twice = wasm_i16x8_shl(SHORTS(green + x), 1);
            v128_t mean = wasm_i16x8_shr(wasm_i16x8_add(wasm_i16x8_add(one, three), twice), 2);
            v128_t first = wasm_i16x8_sub(one, mean), second = wasm_i16x8_sub(three, mean);
            wasm_v128_store(light + x, mean);
            wasm_v128_store(away + x, first);
            wasm_v128_store(away + area + x, second);
            far_light = wasm_i16x8_max(far_light, wasm_i16x8_abs(wasm_i16x8_sub(mean, wasm_i16x8_splat(MIDDLE))));
            far_color = wasm_i16x8_max(far_color, wasm_i16x8_max(wasm_i16x8_abs(first), wasm_i16x8_abs(second)));
        }
    return wasm_v128_any_true(wasm_v128_or(wasm_i16x8_gt(far_light, wasm_i16x8_splat(FAR_LIGHT)), wasm_i16x8_gt(far_color, wasm_i16x8_splat(FAR_COLOR))));
}

// How brightness bends across and down, in a line whose neighbours are known; edges are repeated.
static void bend_line(const Views *views, i32 y, i32 gone) {
    i32 stride = views->stride, area = views->area, own = clipped(y, 2, views->height + 1);
    for (i32 k = 0; k < 2; k++) {
        i16 *out = views->bent + k * area + (y - gone) * stride + 2;
        const i16 *light = views->light + (own - gone) * stride + 2;
        i32 step = k ? stride : 1;
        for (i32 x = 0; x < views->width; x += 8) {
            v128_t both = wasm_i16x8_add(SHORTS(light + x + step), SHORTS(light + x - step));
            wasm_v128_store(out + x, wasm_i16x8_abs(wasm_i16x8_sub(both, wasm_i16x8_shl(SHORTS(light + x), 1))));
        }
        pad_line(out, views->width);
    }
}

// The last lines of all planes go to the front: there is room for few of them, so that they stay in the cache.
static i32 forget_lines(const Views *views) {
    i32 size = KEPT * views->stride;
    for (i32 k = 0; k < views->colors + 5; k++) __builtin_memcpy(views->fine + k * views->area, views->fine + (k + 1) * views->area - size, 2 * size);
    return LINES - KEPT;
}

// Whether any channel is corrected by how far colors are from following brightness: the last two features of many.
static i32 follows_count(const Job *job) {
    i32 features = PAIRS * job->colors + 2, found = 0;
    for (i32 c = 0; c < job->colors; c++) found |= job->mixing[(c + 1) * features - 2] | job->mixing[(c + 1) * features - 1];
    return found != 0;
}

// Line after line, each plane only as far as the next line of pixels needs it: all of it is in the cache.
static void restore_pixels(const Job *job, const Shape *shape, i32 quick, u8 *pixels) {
    static i16 filters[3 * LEVELS][8] __attribute__((aligned(16)));
    static Mixing mixing;
    i32 colors = job->colors, height = shape->height, width = shape->width, stride = shape->stride;
    i32 area = least(height + 4, LINES) * stride, follow = job->restored > 1 && colors >= 3 && follows_count(job);
    i16 *fine = job->shorts, *bent = fine + colors * area, *light = bent + 2 * area, *away = light + area, *follows = away + 2 * area;
    i32 *line = job->ints, *sums = line + stride;
    const i16 *const planes[SUMMED] = {bent, bent + area, light, away, away + area};
    const Views views = {colors, height, width, stride, area, fine, bent, light, away};
    mixing.colors = colors, mixing.features = job->restored > 1 ? PAIRS * colors + 2 * follow : 0;
    mixing.stride = stride, mixing.area = area, mixing.fine = fine, mixing.follows = follows;
    const i32 size = PAIRS + (job->bound ? 2 : 0), stored = PAIRS * colors + (colors >= 3 ? 2 : 0);
    for (i32 k = 0; k < 3 * LEVELS * size; k++) filters[k / size][k % size] = job->weights[k];
    for (i32 c = 0; c < colors; c++)
        for (i32 k = 0; k < mixing.features; k += 2) {
            const i32 *weights = job->mixing + c * stored + k;
            mixing.weights[k / 2][c] = wasm_i32x4_splat((weights[0] & 0xffff) | (i32)((u32)weights[1] << 16));
        }
    __builtin_memset(sums, 0, SUMS * 4 * stride);
    i32 ready = 0, far = -1, gone = 0;  // the last line with anything far from the middle; lines that are no longer there
    for (i32 y = -4; y < height; y++) {
        for (; ready < least(y < -2 ? 4 : y + 6, height + 4); ready++) {
            if (ready - gone == LINES) gone += forget_lines(&views);
            if (prepare_line(job, shape, quick, &views, ready, gone)) far = ready;
        }
        bend_line(&views, y + 4, gone);
        move_line(sums, planes, (y + 4 - gone) * stride, y < 1 ? -1 : (y - 1 - gone) * stride, stride, follow);
        if (y < 0) continue;
        i32 at = (y + 2 - gone) * stride + 2;
        by_brightness(job, filters, light + at, sums, stride, width, line);
        if (follow && far < y) follow_narrow(sums, planes, at, width, stride, follows);
        else if (follow) follow_wide(sums, planes, at, width, stride, follows);
        mix_line(&mixing, at, line, width, pixels + y * width * colors);
    }
}

static void finish(const Job *job, const Shape *shape, i32 quick, u8 *out) {
    if (job->networked) start_network(job, shape);
    if (job->restored) restore_pixels(job, shape, quick, out);
    else round_pixels(job, shape, quick, out);
}
