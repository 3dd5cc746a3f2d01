// Lines of decoded samples in 1/SUBPIXEL of a pixel value, with margins: what all filters begin with.

#include "forward.h"

enum { SUBPIXEL_BITS = 3 };
_Static_assert(1 << SUBPIXEL_BITS == SUBPIXEL, "as in Python");

#define SHORTS(pointer) wasm_v128_load(pointer)

// A line of a channel where doubles made it.
INLINE const double *exact_line(const Job *job, const Shape *shape, i32 c, i32 y) {
    return job->planes + (c * shape->down * job->side + y) * shape->right * job->side;
}

// Lines have margins beside them that repeat their edges.
INLINE void pad_line(i16 *line, i32 width) {
    line[-2] = line[-1] = line[0];
    line[width] = line[width + 1] = line[width - 1];
}

// All margins of a line of a picture, to the end of its vectors.
static void fill_margins(const Shape *shape, i16 *line) {
    pad_line(line, shape->width);
    for (i32 x = shape->width + 2; x < shape->stride - 2; x++) line[x] = line[shape->width];
}

// A line of a plane in 1/SUBPIXEL, with its margins.
static void to_shorts(const Job *job, const Shape *shape, i32 quick, i32 c, i32 y, i16 *out) {
    i32 width = shape->width;
    const double *plane = exact_line(job, shape, c, y);
    const i16 *shorts = quick ? quick_line(job, shape, c, y) : 0;
    const i32 shift = SCALE_BITS - SUBPIXEL_BITS;
    const v128_t grey = wasm_i16x8_splat(GREY + (1 << (shift - 1))), dark = wasm_i16x8_splat(DARKEST), bright = wasm_i16x8_splat(BRIGHTEST);
    for (i32 x = 0; x < width && quick; x += 8) {  // lines are whole tiles; what does not fit is beyond the brightest
        v128_t found = wasm_i16x8_shr(wasm_i16x8_add_sat(SHORTS(shorts + x), grey), shift);
        wasm_v128_store(out + x, wasm_i16x8_max(wasm_i16x8_min(found, bright), dark));
    }
    for (i32 x = 0; x < width && !quick; x++) {
        double value = __builtin_floor(plane[x] * ((double)SUBPIXEL / (1 << SCALE_BITS)) + 0.5);
        out[x] = value < DARKEST ? DARKEST : value > BRIGHTEST ? BRIGHTEST : (i32)value;
    }
    fill_margins(shape, out);
}
