// A JPEG file as its coefficients and everything else, and back.
//
// Everything else, the skeleton, is the file without its scans. Parsing walks over the file: segments are copied
// to the skeleton, scans become coefficients. Rebuilding walks over the skeleton: segments are copied to the file,
// scans are written from the coefficients with the tables that hold there. What a scan may have besides, the
// value of padding bits, is noted once for the file. Whatever is not foreseen makes the file foreign: it is
// then kept as it is. Offsets are checked before each read, so that hostile bytes cost nothing but themselves.

enum { MOST_PLANES = 4, ZIGZAG_END = 80, BUFFERED_BITS = 1 << 16 };

static const u8 ZIGZAG[ZIGZAG_END] = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6,  7,  14, 21, 28,
    35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
    63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63,
};

static const u8 ORDER[64] = {  // where each stands in it
    0, 1, 5, 6, 14, 15, 27, 28, 2, 4, 7, 13, 16, 26, 29, 42, 3, 8, 12, 17, 25, 30, 41, 43, 9, 11, 18, 24, 31, 40, 44, 53,
    10, 19, 23, 32, 39, 45, 52, 54, 20, 22, 33, 38, 46, 51, 55, 60, 21, 34, 37, 47, 50, 56, 59, 61, 35, 36, 48, 49, 57, 58, 62, 63,
};

typedef struct {
    i32 id, across, down;        // sampling factors
    i32 quantizer;               // which table
    i32 blocks_wide, blocks_high;  // as many as units of all planes have
    i32 own_wide, own_high;        // as many as the plane itself has
    i16 *data;                   // (blocks_high, blocks_wide, 64), rows of frequencies
    i32 dc_table, ac_table;      // of the scan
} Plane;

typedef struct {
    i32 known;
    u8 lengths[256];   // of the code of a symbol, 0 for none
    u16 codes[256];
    i16 fast[512];     // symbol << 4 | length by the next 9 bits, 0 where it is longer
    i32 first[18], last[18], base[18];  // by length: codes from first below last, at base among the symbols
    u8 symbols[256];
} Huffman;

typedef struct {
    i32 foreign;  // why it is no file that can be taken apart; 0 if it is one
    i32 progressive, height, width, planes;
    Plane plane[MOST_PLANES];
    u16 quantizers[4][64];  // as in the file: zigzag order
    Huffman dc[4], ac[4];
    i32 restart_interval, units_wide, units_high, most_across, most_down;
    i32 padding;  // bits after the last of a scan: -1 unknown, else 0 or 1
    i32 scans;
} File;

static File file;

#define FOREIGN(why) do { file.foreign = (why); return; } while (0)

INLINE i32 two(const u8 *at) { return at[0] << 8 | at[1]; }

static void define_huffman(Huffman *table, const u8 *counts, const u8 *symbols, i32 total) {
    __builtin_memset(table, 0, sizeof *table);
    i32 next = 0, at = 0;
    for (i32 length = 1; length <= 16; length++) {
        table->first[length] = next, table->base[length] = at;
        for (i32 k = 0; k < counts[length - 1]; k++, at++, next++) {
            if (at >= total || next >= 1 << length) FOREIGN(2);
            i32 symbol = symbols[at];
            if (table->lengths[symbol]) FOREIGN(3);  // the same symbol twice: writing could not choose
            table->lengths[symbol] = length, table->codes[symbol] = next, table->symbols[at] = symbol;
            if (length > 9) continue;
            i32 low = next << (9 - length);
            for (i32 fill = 0; fill < 1 << (9 - length); fill++) table->fast[low + fill] = symbol << 4 | length;
        }
        table->last[length] = next;
        next <<= 1;
    }
    table->known = 1;
}

static void read_tables(const u8 *at, const u8 *end) {
    while (at < end) {
        i32 which = *at++, total = 0;
        if (end - at < 16 || (which & 0xef) > 3) FOREIGN(4);
        for (i32 k = 0; k < 16; k++) total += at[k];
        if (total > 256 || end - at < 16 + total) FOREIGN(5);
        define_huffman((which >> 4 ? file.ac : file.dc) + (which & 3), at, at + 16, total);
        if (file.foreign) return;
        at += 16 + total;
    }
}

static void read_quantizers(const u8 *at, const u8 *end) {
    while (at < end) {
        i32 which = *at++, wide = which >> 4;
        if ((which & 15) > 3 || wide > 1 || end - at < 64 << wide) FOREIGN(6);
        for (i32 k = 0; k < 64; k++, at += 1 + wide) {
            i32 step = wide ? two(at) : *at;
            file.quantizers[which & 3][k] = step ? step : 1;
        }
    }
}

static void read_frame(const u8 *at, const u8 *end, i16 *room, i64 capacity) {
    if (file.planes || end - at < 6 || at[0] != 8) FOREIGN(7);
    file.height = two(at + 1), file.width = two(at + 3);
    i32 planes = at[5];
    at += 6;
    if (planes < 1 || planes > MOST_PLANES || end - at != 3 * planes || !file.height || !file.width) FOREIGN(8);
    file.most_across = file.most_down = 1;
    for (i32 p = 0; p < planes; p++, at += 3) {
        Plane *plane = file.plane + p;
        plane->id = at[0], plane->across = at[1] >> 4, plane->down = at[1] & 15, plane->quantizer = at[2];
        if (plane->across < 1 || plane->across > 4 || plane->down < 1 || plane->down > 4 || at[2] > 3) FOREIGN(9);
        for (i32 q = 0; q < p; q++) if (file.plane[q].id == plane->id) FOREIGN(10);
        file.most_across = most(file.most_across, plane->across), file.most_down = most(file.most_down, plane->down);
    }
    if (planes == 1) file.plane[0].across = file.plane[0].down = file.most_across = file.most_down = 1;
    file.units_wide = (file.width + 8 * file.most_across - 1) / (8 * file.most_across);
    file.units_high = (file.height + 8 * file.most_down - 1) / (8 * file.most_down);
    i64 used = 0;
    for (i32 p = 0; p < planes; p++) {
        Plane *plane = file.plane + p;
        i32 wide = (file.width * plane->across + file.most_across - 1) / file.most_across;
        i32 high = (file.height * plane->down + file.most_down - 1) / file.most_down;
        plane->own_wide = (wide + 7) / 8, plane->own_high = (high + 7) / 8;
        plane->blocks_wide = file.units_wide * plane->across, plane->blocks_high = file.units_high * plane->down;
        plane->data = room + used;
        used += 64 * (i64)plane->blocks_wide * plane->blocks_high;
        if (used > capacity) FOREIGN(11);
    }
    file.planes = planes;
    __builtin_memset(room, 0, 2 * used);
}

// The planes, tables and spectral range of one scan.
typedef struct {
    i32 planes, which[MOST_PLANES], first, last, high, low;
} Scan;

static Scan read_scan(const u8 *at, const u8 *end) {
    Scan scan = {0};
    if (!file.planes || end - at < 1 || at[0] < 1 || at[0] > MOST_PLANES || end - at != 4 + 2 * at[0]) {
        file.foreign = 12;
        return scan;
    }
    scan.planes = *at++;
    i32 total = 0;
    for (i32 k = 0; k < scan.planes; k++, at += 2) {
        i32 found = -1;
        for (i32 p = 0; p < file.planes; p++) if (file.plane[p].id == at[0]) found = p;
        if (found < 0 || at[1] >> 4 > 3 || (at[1] & 15) > 3) {
            file.foreign = 13;
            return scan;
        }
        scan.which[k] = found;
        for (i32 j = 0; j < k; j++) if (scan.which[j] == found) file.foreign = 13;
        file.plane[found].dc_table = at[1] >> 4, file.plane[found].ac_table = at[1] & 15;
        total += file.plane[found].across * file.plane[found].down;
    }
    scan.first = at[0], scan.last = at[1], scan.high = at[2] >> 4, scan.low = at[2] & 15;
    if (file.progressive) {
        if (scan.first > scan.last || scan.last > 63 || scan.low > 13 || (scan.high && scan.high != scan.low + 1)) file.foreign = 14;
        if (scan.first ? scan.planes != 1 : scan.last != 0) file.foreign = 14;
    } else if (scan.first != 0 || scan.last != 63 || scan.high || scan.low) file.foreign = 14;
    if (scan.planes > 1 && total > 10) file.foreign = 14;
    return scan;
}

// Bits of a scan: read with stuffing removed, written with stuffing added.
typedef struct {
    const u8 *at, *end;
    u8 *out, *out_end;
    u64 held;
    i32 count, ended;
} Bits;

static Bits bits;

INLINE void fill_bits(void) {
    while (bits.count <= 48 && !bits.ended) {
        if (bits.at >= bits.end) {
            bits.ended = 1;
            return;
        }
        i32 byte = *bits.at;
        if (byte == 0xff) {
            if (bits.at + 1 >= bits.end || bits.at[1] != 0) {
                bits.ended = 1;
                return;
            }
            bits.at++;
        }
        bits.at++;
        bits.held = bits.held << 8 | byte;
        bits.count += 8;
    }
}

INLINE i32 get_bits(i32 count) {
    if (bits.count < count) {
        fill_bits();
        if (bits.count < count) {
            file.foreign = 20;
            return 0;
        }
    }
    bits.count -= count;
    return bits.held >> bits.count & ((1u << count) - 1);
}

INLINE i32 get_symbol(const Huffman *table) {
    if (bits.count < 16) fill_bits();
    i32 seen = bits.count >= 9 ? bits.held >> (bits.count - 9) & 511 : (bits.held << (9 - bits.count)) & 511;
    i32 found = table->fast[seen];
    if (found) {
        if ((found & 15) > bits.count) {
            file.foreign = 20;
            return 0;
        }
        bits.count -= found & 15;
        return found >> 4;
    }
    i32 so_far = 0;
    for (i32 length = 1; length <= 16; length++) {
        so_far = so_far << 1 | get_bits(1);
        if (file.foreign) return 0;
        if (so_far < table->last[length] && so_far >= table->first[length]) return table->symbols[table->base[length] + so_far - table->first[length]];
    }
    file.foreign = 21;
    return 0;
}

INLINE void put_out(i32 byte) {
    if (bits.out < bits.out_end) *bits.out = byte;
    bits.out++;
}

INLINE void put_bits(u32 value, i32 count) {
    bits.held = bits.held << count | value;
    bits.count += count;
    while (bits.count >= 8) {
        bits.count -= 8;
        i32 byte = bits.held >> bits.count & 255;
        put_out(byte);
        if (byte == 0xff) put_out(0);
    }
}

INLINE void put_symbol(const Huffman *table, i32 symbol) {
    if (!table->lengths[symbol]) file.foreign = 22;
    put_bits(table->codes[symbol], table->lengths[symbol]);
}

INLINE i32 extended(i32 value, i32 size) { return size && value < 1 << (size - 1) ? value - (1 << size) + 1 : value; }
INLINE u32 shortened(i32 value, i32 size) { return (value < 0 ? value + (1 << size) - 1 : value) & ((1u << size) - 1); }

// What goes on from block to block of a scan.
static struct {
    i32 before[MOST_PLANES];  // the last DC of each plane
    i32 run;                  // blocks without anything more
    i32 held_bits;            // correction bits that wait for the end of a run
    u8 held[BUFFERED_BITS];
    const Huffman *table;
} state;

static void read_block(i16 *block, i32 plane) {
    const Huffman *dc = file.dc + file.plane[plane].dc_table, *ac = file.ac + file.plane[plane].ac_table;
    i32 size = get_symbol(dc);
    if (size > 11) file.foreign = 23;
    if (file.foreign) return;
    block[0] = state.before[plane] += extended(get_bits(size), size);
    for (i32 k = 1; k < 64; k++) {
        i32 symbol = get_symbol(ac), size = symbol & 15;
        if (file.foreign) return;
        if (!size) {
            if (symbol >> 4 < 15) {
                if (symbol) file.foreign = 24;
                return;
            }
            k += 15;
            continue;
        }
        k += symbol >> 4;
        if (k > 63 || size > 10) FOREIGN(25);
        block[ZIGZAG[k]] = extended(get_bits(size), size);
    }
}

// The coefficients that are not zero, bit k for the k-th in the order of a scan.
INLINE u64 occupied(const i16 *block) {
    u64 found = 0, ordered = 0;
    v128_t none = wasm_i32x4_splat(0);
    for (i32 u = 0; u < 8; u += 2) {
        v128_t low = wasm_i16x8_ne(wasm_v128_load(block + 8 * u), none), high = wasm_i16x8_ne(wasm_v128_load(block + 8 * u + 8), none);
        found |= (u64)(u32)wasm_i8x16_bitmask(wasm_i8x16_narrow_i16x8(low, high)) << (8 * u);
    }
    for (; found; found &= found - 1) ordered |= (u64)1 << ORDER[__builtin_ctzll(found)];
    return ordered;
}

static void write_block(const i16 *block, i32 plane) {
    const Huffman *dc = file.dc + file.plane[plane].dc_table, *ac = file.ac + file.plane[plane].ac_table;
    i32 difference = block[0] - state.before[plane], size = digits_of(size_of(difference)), last = 0;
    state.before[plane] = block[0];
    if (size > 11) FOREIGN(26);
    put_symbol(dc, size);
    put_bits(shortened(difference, size), size);
    for (u64 left = occupied(block) & ~(u64)1; left; left &= left - 1) {
        i32 k = __builtin_ctzll(left), value = block[ZIGZAG[k]], run = k - last - 1;
        last = k;
        for (; run > 15; run -= 16) put_symbol(ac, 0xf0);
        size = digits_of(size_of(value));
        if (size > 10) FOREIGN(27);
        put_symbol(ac, run << 4 | size);
        put_bits(shortened(value, size), size);
    }
    if (last < 63) put_symbol(ac, 0);
}

// The four kinds of progressive scans, each read and written.
static void dc_first(i16 *block, i32 plane, const Scan *scan, i32 writing) {
    const Huffman *dc = file.dc + file.plane[plane].dc_table;
    if (writing) {
        i32 value = block[0] >> scan->low, difference = value - state.before[plane], size = digits_of(size_of(difference));
        state.before[plane] = value;
        if (size > 11) FOREIGN(28);
        put_symbol(dc, size);
        put_bits(shortened(difference, size), size);
        return;
    }
    i32 size = get_symbol(dc);
    if (size > 11) file.foreign = 28;
    if (file.foreign) return;
    block[0] = (state.before[plane] += extended(get_bits(size), size)) * (1 << scan->low);
}

static void dc_refine(i16 *block, const Scan *scan, i32 writing) {
    if (writing) put_bits(block[0] >> scan->low & 1, 1);
    else if (get_bits(1)) block[0] |= 1 << scan->low;
}

static void flush_run(void) {
    if (state.run) {
        i32 size = digits_of(state.run) - 1;
        put_symbol(state.table, size << 4);
        put_bits(state.run & ((1 << size) - 1), size);
        state.run = 0;
    }
    for (i32 k = 0; k < state.held_bits; k++) put_bits(state.held[k], 1);
    state.held_bits = 0;
}

static void ac_first(i16 *block, const Scan *scan, i32 writing, const Huffman *ac) {
    if (writing) {
        i32 run = 0;
        state.table = ac;
        for (i32 k = scan->first; k <= scan->last; k++) {
            i32 value = block[ZIGZAG[k]], magnitude = size_of(value) >> scan->low;
            if (!magnitude) {
                run++;
                continue;
            }
            flush_run();
            for (; run > 15; run -= 16) put_symbol(ac, 0xf0);
            i32 size = digits_of(magnitude);
            if (size > 10) FOREIGN(29);
            put_symbol(ac, run << 4 | size);
            put_bits(shortened(value < 0 ? -magnitude : magnitude, size), size);
            run = 0;
        }
        if (run && ++state.run == 0x7fff) flush_run();
        return;
    }
    if (state.run) {
        state.run--;
        return;
    }
    for (i32 k = scan->first; k <= scan->last; k++) {
        i32 symbol = get_symbol(ac), run = symbol >> 4, size = symbol & 15;
        if (file.foreign) return;
        if (!size) {
            if (run < 15) {
                state.run = (1 << run) - 1 + (run ? get_bits(run) : 0);
                return;
            }
            k += 15;
            continue;
        }
        k += run;
        if (k > scan->last || size > 10) FOREIGN(30);
        block[ZIGZAG[k]] = extended(get_bits(size), size) * (1 << scan->low);
    }
}

static void ac_refine_write(const i16 *block, const Scan *scan, const Huffman *ac) {
    i32 final = 0, run = 0, begun = state.held_bits;
    state.table = ac;
    for (i32 k = scan->first; k <= scan->last; k++) if (size_of(block[ZIGZAG[k]]) >> scan->low == 1) final = k;
    for (i32 k = scan->first; k <= scan->last; k++) {
        i32 value = block[ZIGZAG[k]], magnitude = size_of(value) >> scan->low;
        if (!magnitude) {
            run++;
            continue;
        }
        while (run > 15 && k <= final) {
            i32 own = state.held_bits - begun;
            u8 kept[64];
            __builtin_memcpy(kept, state.held + begun, own);
            state.held_bits = begun;
            flush_run();
            put_symbol(ac, 0xf0);
            run -= 16;
            for (i32 b = 0; b < own; b++) put_bits(kept[b], 1);
            begun = 0;
        }
        if (magnitude > 1) {
            state.held[state.held_bits++] = magnitude & 1;
            continue;
        }
        i32 own = state.held_bits - begun;
        u8 kept[64];
        __builtin_memcpy(kept, state.held + begun, own);
        state.held_bits = begun;
        flush_run();
        put_symbol(ac, run << 4 | 1);
        put_bits(value >= 0, 1);
        for (i32 b = 0; b < own; b++) put_bits(kept[b], 1);
        begun = 0, run = 0;
    }
    if (run || state.held_bits > begun) {
        state.run++;
        if (state.run == 0x7fff || state.held_bits > 1000 - 63) flush_run();
    }
}

static void refine(i16 *value, i32 unit) {
    if (get_bits(1) && !(size_of(*value) & unit)) *value += *value < 0 ? -unit : unit;
}

static void ac_refine_read(i16 *block, const Scan *scan, const Huffman *ac) {
    i32 k = scan->first, unit = 1 << scan->low;
    if (!state.run) {
        for (; k <= scan->last; k++) {
            i32 symbol = get_symbol(ac), run = symbol >> 4, size = symbol & 15, fresh = 0;
            if (file.foreign) return;
            if (size) {
                if (size != 1) FOREIGN(31);
                fresh = get_bits(1) ? unit : -unit;
            } else if (run < 15) {
                state.run = (1 << run) + (run ? get_bits(run) : 0);
                break;
            }
            for (; k <= scan->last; k++) {
                i16 *value = block + ZIGZAG[k];
                if (*value) refine(value, unit);
                else if (run-- == 0) break;
                if (file.foreign) return;
            }
            if (fresh) {
                if (k > scan->last) FOREIGN(32);
                block[ZIGZAG[k]] = fresh;
            }
        }
    }
    if (!state.run) return;
    for (; k <= scan->last && !file.foreign; k++) if (block[ZIGZAG[k]]) refine(block + ZIGZAG[k], unit);
    state.run--;
}

static void one_block(i32 p, i32 row, i32 column, const Scan *scan, i32 writing) {
    Plane *plane = file.plane + p;
    i16 *block = plane->data + 64 * (row * (i64)plane->blocks_wide + column);
    if (!file.progressive) {
        if (writing) write_block(block, p);
        else read_block(block, p);
    } else if (!scan->first) {
        if (scan->high) dc_refine(block, scan, writing);
        else dc_first(block, p, scan, writing);
    } else if (!scan->high) ac_first(block, scan, writing, file.ac + plane->ac_table);
    else if (writing) ac_refine_write(block, scan, file.ac + plane->ac_table);
    else ac_refine_read(block, scan, file.ac + plane->ac_table);
}

// The end of a scan, or of a part of it before a restart marker: bits up to the next byte, all alike.
static void end_part(i32 writing) {
    if (writing) {
        flush_run();
        i32 missing = -bits.count & 7;
        if (missing) put_bits(file.padding > 0 ? (1u << missing) - 1 : 0, missing);
    } else {
        if (state.run) FOREIGN(33);
        fill_bits();
        i32 left = bits.count & 7;
        if (left) {
            i32 padding = get_bits(left);
            if (padding && padding != (1 << left) - 1) FOREIGN(34);
            if (file.padding >= 0 && file.padding != (padding > 0)) FOREIGN(35);
            file.padding = padding > 0;
        }
        if (bits.count) FOREIGN(36);  // more than the picture needs
    }
    __builtin_memset(state.before, 0, sizeof state.before);
    state.run = 0;
    bits.held = 0, bits.count = 0, bits.ended = 0;
}

static void run_scan(const Scan *scan, i32 writing) {
    const Plane *only = file.plane + scan->which[0];
    i32 wide = scan->planes > 1 ? file.units_wide : only->own_wide, high = scan->planes > 1 ? file.units_high : only->own_high;
    for (i32 k = 0; k < scan->planes; k++) {
        const Plane *plane = file.plane + scan->which[k];
        i32 needs_dc = !scan->first && !scan->high, needs_ac = scan->last > 0;
        if ((needs_dc && !file.dc[plane->dc_table].known) || (needs_ac && !file.ac[plane->ac_table].known)) FOREIGN(37);
    }
    __builtin_memset(state.before, 0, sizeof state.before);
    state.run = state.held_bits = 0;
    bits.held = 0, bits.count = 0, bits.ended = 0;
    i32 until_restart = file.restart_interval, marker = 0;
    for (i32 row = 0; row < high; row++)
        for (i32 column = 0; column < wide; column++) {
            if (file.restart_interval && !until_restart--) {
                end_part(writing);
                if (file.foreign) return;
                if (writing) put_out(0xff), put_out(0xd0 + marker);
                else {
                    if (bits.end - bits.at < 2 || bits.at[0] != 0xff || bits.at[1] != 0xd0 + marker) FOREIGN(38);
                    bits.at += 2;
                }
                marker = (marker + 1) & 7;
                until_restart = file.restart_interval - 1;
            }
            if (scan->planes == 1) one_block(scan->which[0], row, column, scan, writing);
            else for (i32 k = 0; k < scan->planes; k++) {
                const Plane *plane = file.plane + scan->which[k];
                for (i32 y = 0; y < plane->down; y++)
                    for (i32 x = 0; x < plane->across; x++)
                        one_block(scan->which[k], row * plane->down + y, column * plane->across + x, scan, writing);
            }
            if (file.foreign) return;
        }
    end_part(writing);
}

// Walk over segments from `at`. PARSE: a file, to coefficients and skeleton. HEADERS: a skeleton, up to its first
// scan. REBUILD: a skeleton, to a file. What is copied goes to `out`; returns where it ended.
enum { PARSE, HEADERS, REBUILD };

static u8 *walk(i32 what, const u8 *at, const u8 *end, u8 *out, u8 *out_end, i16 *room, i64 capacity) {
    i32 padding = file.padding;
    if (what != REBUILD) {
        __builtin_memset(&file, 0, offsetof(File, dc));
        for (i32 k = 0; k < 4; k++) file.dc[k].known = file.ac[k].known = 0;
    }
    file.restart_interval = file.scans = 0, file.padding = what == PARSE ? -1 : padding;
#define COPY(count) do { \
        i64 copied = (count); \
        if (copied > out_end - out) { file.foreign = 40; return out; } \
        __builtin_memcpy(out, at, copied), out += copied, at += copied; \
    } while (0)
#define REFUSE(why) do { file.foreign = (why); return out; } while (0)
    if (end - at < 2 || two(at) != 0xffd8) REFUSE(41);
    COPY(2);
    while (!file.foreign) {
        if (end - at < 2 || at[0] != 0xff) REFUSE(42);
        i32 marker = at[1];
        if (marker == 0xd9) break;
        if (marker == 0xff || marker == 0 || marker == 1 || (marker >= 0xd0 && marker <= 0xd8)) REFUSE(43);
        if (end - at < 4) REFUSE(44);
        i32 length = two(at + 2);
        if (length < 2 || end - at < 2 + length) REFUSE(45);
        const u8 *body = at + 4, *stop = at + 2 + length;
        if (marker == 0xc4) read_tables(body, stop);
        else if (marker == 0xdb) read_quantizers(body, stop);
        else if (marker == 0xdd && length == 4) file.restart_interval = two(body);
        else if (marker == 0xc0 || marker == 0xc1 || marker == 0xc2) {
            if (what != REBUILD) {
                file.progressive = marker == 0xc2;
                read_frame(body, stop, room, capacity);
            }
        } else if ((marker >= 0xc3 && marker <= 0xcf) || marker == 0xdc || marker == 0xde || marker == 0xdf) REFUSE(46);
        if (file.foreign) return out;
        if (marker != 0xda) {
            COPY(2 + length);
            continue;
        }
        Scan scan = read_scan(body, stop);
        if (file.foreign || what == HEADERS) return out;
        COPY(2 + length);
        if (what == PARSE) {
            bits.at = at, bits.end = end;
            run_scan(&scan, 0);
            at = bits.at;
        } else {
            bits.out = out, bits.out_end = out_end;
            run_scan(&scan, 1);
            if (bits.out > out_end) REFUSE(47);
            out = bits.out;
        }
        file.scans++;
        if (file.scans > 1000) REFUSE(48);
    }
    if (!file.foreign && !file.scans && what != HEADERS) REFUSE(49);
    if (!file.foreign) COPY(end - at);
    return out;
}
