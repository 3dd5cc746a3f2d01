// Bits to bytes and back: a binary range coder, for probabilities that the including file computes. All integers.
// Whatever changes it is inlined, so that it lives in registers: it changes with every bit.

// Probabilities are parts of ONE; logits are in 1/256 and never beyond STEEPEST.
enum { ONE = 1 << 16, STEEPEST = 2047 };

// 65536 / (1 + exp(-x)) at x = -8, -7.75, .. 8.
static const i32 KNOTS[65] = {
    22,    28,    36,    47,    60,    77,    98,    126,   162,   208,   267,   342,   439,
    562,   720,   922,   1179,  1506,  1921,  2446,  3108,  3938,  4971,  6249,  7812,  9702,
    11955, 14595, 17625, 21025, 24743, 28693, 32768, 36843, 40793, 44511, 47911, 50941, 53581,
    55834, 57724, 59287, 60565, 61598, 62428, 63090, 63615, 64030, 64357, 64614, 64816, 64974,
    65097, 65194, 65269, 65328, 65374, 65410, 65438, 65459, 65476, 65489, 65500, 65508, 65514,
};

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

// Where the interval is divided.
INLINE u32 split(const Range *range, u32 p) { return range->low + (u32)((u64)(range->high - range->low) * p >> 16); }

INLINE void refill(Range *range) {
    while (!((range->low ^ range->high) >> 24)) {
        if (range->writing) put_byte(range, range->high >> 24);
        else range->point = range->point << 8 | next_byte(range);
        range->low <<= 8;
        range->high = range->high << 8 | 255;
    }
}

// Code a bit that is 1 with probability p of 2^16.
INLINE i32 code(Range *range, i32 bit, u32 p) {
    u32 middle = split(range, p);
    if (!range->writing) bit = range->point <= middle;
    range->high = bit ? middle : range->high;
    range->low = bit ? range->low : middle + 1;
    refill(range);
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
