// Bits to bytes and back: a binary range coder, and the tables that probabilities are computed with. All integers.

#define INLINE static inline __attribute__((always_inline))

enum { ONE = 1 << 16, STEEPEST = 2047, SURE = 20, LIMIT = 255 };

// 65536 / (1 + exp(-x)) at x = -8, -7.75, .. 8.
static const i32 KNOTS[65] = {
    22,    28,    36,    47,    60,    77,    98,    126,   162,   208,   267,   342,   439,
    562,   720,   922,   1179,  1506,  1921,  2446,  3108,  3938,  4971,  6249,  7812,  9702,
    11955, 14595, 17625, 21025, 24743, 28693, 32768, 36843, 40793, 44511, 47911, 50941, 53581,
    55834, 57724, 59287, 60565, 61598, 62428, 63090, 63615, 64030, 64357, 64614, 64816, 64974,
    65097, 65194, 65269, 65328, 65374, 65410, 65438, 65459, 65476, 65489, 65500, 65508, 65514,
};

static u16 squashed[2 * STEEPEST + 1];  // probability by logit in 1/256
static i16 stretched[4096];             // logit by probability in 1/4096
static u16 paces[256];                  // how far a counter moves, by how often it moved

static void make_tables(void) {
    if (paces[0]) return;
    for (i32 at = 0; at <= 2 * STEEPEST; at++) {
        i32 knot = (at + 1) >> 6, between = (at + 1) & 63;
        squashed[at] = (KNOTS[knot] * (64 - between) + KNOTS[knot + 1] * between + 32) >> 6;
    }
    for (i32 p = 0, at = 0; p < 4096; p++) {
        while (at < 2 * STEEPEST && squashed[at] < 16 * p + 8) at++;
        stretched[p] = at - STEEPEST;
    }
    for (u32 n = 0; n < 256; n++) paces[n] = 327680 / (10 * n + 16);
}

INLINE i32 least(i32 a, i32 b) { return a < b ? a : b; }
INLINE i32 most(i32 a, i32 b) { return a > b ? a : b; }
INLINE i32 size_of(i32 x) { return x < 0 ? -x : x; }
INLINE i32 digits_of(u32 x) { return x ? 32 - __builtin_clz(x) : 0; }
INLINE i32 clipped(i32 x, i32 low, i32 high) { return x < low ? low : x > high ? high : x; }

// The interval low .. high shrinks with every bit; bytes that its ends share are done.
typedef struct {
    u32 low, high, point;
    u8 *at, *end;
    i32 writing;
} Range;

static Range range;

INLINE u32 next_byte(void) {
    u32 byte = range.at < range.end ? *range.at : 0;
    range.at++;
    return byte;
}

INLINE void put_byte(u32 byte) {
    if (range.at < range.end) *range.at = byte;
    range.at++;
}

static void open_range(u8 *bytes, u32 length, i32 writing) {
    range = (Range){0, 0xffffffffu, 0, bytes, bytes + length, writing};
    for (i32 i = 0; i < 4 && !writing; i++) range.point = range.point << 8 | next_byte();
}

// Code a bit that is 1 with probability p of 2^16.
INLINE i32 code(i32 bit, u32 p) {
    u32 width = range.high - range.low;
    u32 middle = range.low + (width >> 16) * p + ((width & 0xffff) * p >> 16);
    if (!range.writing) bit = range.point <= middle;
    if (bit) range.high = middle;
    else range.low = middle + 1;
    while (!((range.low ^ range.high) >> 24)) {
        if (range.writing) put_byte(range.high >> 24);
        else range.point = range.point << 8 | next_byte();
        range.low <<= 8;
        range.high = range.high << 8 | 255;
    }
    return bit;
}

// The fewest bytes that, with zeros after them, lie in the interval. Returns how many there are in all.
static u32 close_range(const u8 *bytes, i32 *damaged) {
    u32 tail = 0, count = 0;
    if (!range.writing) range.at -= 4;
    if (range.low) {
        for (count = 1; count < 4; count++) {
            u32 rest = 0xffffffffu >> (8 * count);
            tail = (range.low + rest) & ~rest;
            if (tail >= range.low && tail <= range.high) break;
        }
        if (count == 4) tail = range.low;
    }
    for (u32 i = 0; i < count; i++) {
        u32 byte = tail >> (24 - 8 * i) & 255;
        if (range.writing) put_byte(byte);
        else if (next_byte() != byte) *damaged = 1;
    }
    return range.at - bytes;
}
