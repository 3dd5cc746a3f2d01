// Bits to bytes and back: a binary range coder, and the tables that probabilities are computed with. All integers.

#define INLINE static inline __attribute__((always_inline))
#define NOINLINE __attribute__((noinline))

enum { ONE = 1 << 16, CERTAIN = (1 << 15) - 1, STEEPEST = 2047, SURE = 20, ZERO = 1 << 15 };

// 65536 / (1 + exp(-x)) at x = -8, -7.75, .. 8.
static const i32 KNOTS[65] = {
    22,    28,    36,    47,    60,    77,    98,    126,   162,   208,   267,   342,   439,
    562,   720,   922,   1179,  1506,  1921,  2446,  3108,  3938,  4971,  6249,  7812,  9702,
    11955, 14595, 17625, 21025, 24743, 28693, 32768, 36843, 40793, 44511, 47911, 50941, 53581,
    55834, 57724, 59287, 60565, 61598, 62428, 63090, 63615, 64030, 64357, 64614, 64816, 64974,
    65097, 65194, 65269, 65328, 65374, 65410, 65438, 65459, 65476, 65489, 65500, 65508, 65514,
};

INLINE i32 least(i32 a, i32 b) { return a < b ? a : b; }
INLINE i32 most(i32 a, i32 b) { return a > b ? a : b; }
INLINE i32 size_of(i32 x) { return x < 0 ? -x : x; }
INLINE i32 digits_of(u32 x) { return x ? 32 - __builtin_clz(x) : 0; }
INLINE i32 clipped(i32 x, i32 low, i32 high) { return x < low ? low : x > high ? high : x; }

static u16 squashed[2 * ZERO];  // probability by logit in 1/256, which is never beyond STEEPEST; 0 is at ZERO
static i16 stretched[4096];     // logit by probability in 1/4096

static void make_tables(void) {
    if (squashed[0]) return;
    for (i32 at = 0; at < 2 * ZERO; at++) {
        i32 x = clipped(at - ZERO, -STEEPEST, STEEPEST) + STEEPEST + 1, knot = x >> 6, between = x & 63;
        squashed[at] = (KNOTS[knot] * (64 - between) + KNOTS[knot + 1] * between + 32) >> 6;
    }
    for (i32 p = 0, x = -STEEPEST; p < 4096; p++) {
        while (x < STEEPEST && squashed[ZERO + x] < 16 * p + 8) x++;
        stretched[p] = x;
    }
}

// The interval low .. high shrinks with every bit; bytes that its ends share are done.
typedef struct {
    u32 low, high, point;
    u8 *at, *end;
    i32 writing;
} Range;

INLINE u32 next_byte(Range *range) {
    u32 byte = range->at < range->end ? *range->at : 0;
    range->at++;
    return byte;
}

INLINE void put_byte(Range *range, u32 byte) {
    if (range->at < range->end) *range->at = byte;
    range->at++;
}

static Range open_range(u8 *bytes, u32 length, i32 writing) {
    Range range = {0, 0xffffffffu, 0, bytes, bytes + length, writing};
    for (i32 i = 0; i < 4 && !writing; i++) range.point = range.point << 8 | next_byte(&range);
    return range;
}

// Code a bit that is 1 with probability p of 2^16.
INLINE i32 code(Range *range, i32 bit, u32 p) {
    u32 width = range->high - range->low;
    u32 middle = range->low + (u32)((u64)width * p >> 16);
    if (!range->writing) bit = range->point <= middle;
    u32 mask = -bit;  // no branch: half of them would be guessed wrong
    range->high ^= (range->high ^ middle) & mask;
    range->low += (middle + 1 - range->low) & ~mask;
    u32 differ = range->low ^ range->high;
    if (!range->writing && differ >> 16 && range->at < range->end) {  // nearly always: one byte or none, without a branch
        u32 done = differ >> 24 ? 0 : 8, rest = (1 << done) - 1;
        range->point = range->point << done | (*range->at & rest);
        range->at += done >> 3;
        range->low <<= done;
        range->high = range->high << done | rest;
        return bit;
    }
    while (!((range->low ^ range->high) >> 24)) {
        if (range->writing) put_byte(range, range->high >> 24);
        else range->point = range->point << 8 | next_byte(range);
        range->low <<= 8;
        range->high = range->high << 8 | 255;
    }
    return bit;
}

// The fewest bytes that, with zeros after them, lie in the interval. Returns how many there are in all.
static u32 close_range(Range *range, const u8 *bytes, i32 *damaged) {
    u32 tail = 0, count = 0;
    if (!range->writing) range->at -= 4;
    if (range->low) {
        for (count = 1; count < 4; count++) {
            u32 rest = 0xffffffffu >> (8 * count);
            tail = (range->low + rest) & ~rest;
            if (tail >= range->low && tail <= range->high) break;
        }
        if (count == 4) tail = range->low;
    }
    for (u32 i = 0; i < count; i++) {
        u32 byte = tail >> (24 - 8 * i) & 255;
        if (range->writing) put_byte(range, byte);
        else if (next_byte(range) != byte) *damaged = 1;
    }
    return range->at - bytes;
}
