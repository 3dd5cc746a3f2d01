// Planes to pixels, through the filter that takes back part of the quantisation error (restore.py).

#include "pixels.h"

static void round_pixels(const Job *job, const Shape *shape, u8 *pixels) {
    i32 height = shape->down * job->side, width = shape->right * job->side, colors = job->colors;
    for (i32 c = 0; c < colors; c++)
        for (i32 y = 0; y < shape->height; y++) {
            const double *plane = job->planes + (c * height + y) * width;
            u8 *out = pixels + y * shape->width * colors + c;
            for (i32 x = 0; x < shape->width; x++) {
                double value = __builtin_floor(plane[x] * power(-SCALE_BITS) + 0.5);
                out[x * colors] = value < 0 ? 0 : value > 255 ? 255 : (i32)value;
            }
        }
}

// Sums over 5 x 5 pixels of values (h, w), edges repeated; `tall` is scratch for one line and its margins.
static void box(i32 *out, const i32 *values, i32 height, i32 width, i32 *tall) {
    for (i32 y = 0; y < height; y++) {
        const i32 *lines[5];
        for (i32 k = 0; k < 5; k++) lines[k] = values + clipped(y + k - 2, 0, height - 1) * width;
        for (i32 x = 0; x < width; x++) tall[x + 2] = lines[0][x] + lines[1][x] + lines[2][x] + lines[3][x] + lines[4][x];
        tall[0] = tall[1] = tall[2];
        tall[width + 2] = tall[width + 3] = tall[width + 1];
        for (i32 x = 0; x < width; x++) out[y * width + x] = tall[x] + tall[x + 1] + tall[x + 2] + tall[x + 3] + tall[x + 4];
    }
}

static void restore_pixels(const Job *job, const Shape *shape, u8 *pixels) {
    i32 tall = shape->down * job->side, wide = shape->right * job->side, colors = job->colors;
    i32 height = shape->height, width = shape->width, area = height * width, stride = width + 4;
    i32 *fine = job->ints, *light = fine + colors * area, *down = light + (height + 4) * stride, *across = down + area;
    i32 *sum_across = across + area, *sum_down = sum_across + area, *line = sum_down + area;
    for (i32 c = 0; c < colors; c++)
        for (i32 y = 0; y < height; y++) {
            const double *plane = job->planes + (c * tall + y) * wide;
            for (i32 x = 0; x < width; x++) {
                double value = __builtin_floor(plane[x] * ((double)SUBPIXEL / (1 << SCALE_BITS)) + 0.5);
                fine[c * area + y * width + x] = value < -1024 ? -1024 : value > 3071 ? 3071 : (i32)value;
            }
        }
    for (i32 y = -2; y < height + 2; y++) {
        const i32 *first = fine + clipped(y, 0, height - 1) * width;
        i32 *out = light + (y + 2) * stride + 2;
        for (i32 x = 0; x < width; x++)
            out[x] = colors < 3 ? first[x] : (first[x] + 2 * first[area + x] + first[2 * area + x]) >> 2;
        out[-2] = out[-1] = out[0];
        out[width] = out[width + 1] = out[width - 1];
    }
    for (i32 y = 0; y < height; y++) {
        const i32 *here = light + (y + 2) * stride + 2;
        for (i32 x = 0; x < width; x++) {
            i32 a = here[x + 1] + here[x - 1] - 2 * here[x], d = here[x + stride] + here[x - stride] - 2 * here[x];
            across[y * width + x] = a < 0 ? -a : a;
            down[y * width + x] = d < 0 ? -d : d;
        }
    }
    box(sum_across, across, height, width, line);
    box(sum_down, down, height, width, line);
    for (i32 y = 0; y < height; y++) {
        const i32 *here = light + (y + 2) * stride + 2;
        for (i32 x = 0; x < width; x++) {
            i32 a = sum_across[y * width + x], d = sum_down[y * width + x], level = 0;
            for (i32 k = 0; k < LEVELS - 1; k++) level += a + d > job->borders[k];
            line[x] = 3 * level + (2 * a > 3 * d) + 2 * (2 * d > 3 * a);
        }
        for (i32 x = 0; x < width; x++) {
            const i32 *at = here + x, *weights = job->weights + PAIRS * line[x];
            i32 twice = 2 * at[0];
            i32 change = weights[0] * (at[1] + at[-1] - twice) + weights[1] * (at[stride] + at[-stride] - twice) +
                         weights[2] * (at[stride + 1] + at[-stride - 1] - twice) +
                         weights[3] * (at[stride - 1] + at[1 - stride] - twice) +
                         weights[4] * (at[2] + at[-2] - twice) + weights[5] * (at[2 * stride] + at[-2 * stride] - twice);
            line[x] = (change + 128) >> 8;
        }
        for (i32 c = 0; c < colors; c++)
            for (i32 x = 0; x < width; x++)
                pixels[(y * width + x) * colors + c] =
                    clipped((fine[c * area + y * width + x] + line[x] + SUBPIXEL / 2) >> 3, 0, 255);
    }
}
