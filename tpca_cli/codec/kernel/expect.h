// What is expected of the values of a step, and of a flag, from magnitudes that are known: the same for every model.

#include "restore.h"

#define BYTES(pointer) wasm_v128_load(pointer)

// Magnitudes that a step sees, for its live places: pairs of sights side by side, so that two products are
// one instruction.
static void look(const Job *job, const Step *step, i32 phase, const i32 *places, i32 count) {
    for (i32 s = step->sights[phase]; s < step->sights_stop[phase]; s++) {
        const i16 *row = (const i16 *)job->own + job->sights[2 * s + 1] * job->size;
        i32 index = s - step->sights[phase];
        i16 *seen = job->seen + (index >> 1) * 2 * CHUNK + (index & 1);
        i32 kind = job->sights[2 * s], away = kind == 1 ? job->stride : 1;
        if (kind == 0 || kind == 3)
            for (i32 k = 0; k < count; k++) seen[2 * k] = row[places[k]];
        else
            for (i32 k = 0; k < count; k++) seen[2 * k] = row[places[k] - away] + row[places[k] + away];
    }
}

// The class of some values of a row by what is expected there.
static void expect(const Job *job, i32 row, i32 phase, u8 *classes, i32 count) {
    const i32 *looks = job->looks + 2 * row + phase;
    const u8 *map = job->maps + row * CODES;
    v128_t base = wasm_i32x4_splat(job->bases[2 * row + phase]);
    for (i32 k = 0; k < count; k += 8) {
        v128_t first = base, second = base;
        for (i32 at = looks[0]; at < looks[1]; at++) {
            const i16 *seen = job->seen + job->look_pairs[at] * 2 * CHUNK + 2 * k;
            v128_t weights = wasm_v128_load32_splat(job->look_weights + 2 * at);
            first = wasm_i32x4_add(first, wasm_i32x4_dot_i16x8(wasm_v128_load(seen), weights));
            second = wasm_i32x4_add(second, wasm_i32x4_dot_i16x8(wasm_v128_load(seen + 8), weights));
        }
        u32 codes[8];
        wasm_v128_store(codes, four_codes(first)), wasm_v128_store(codes + 4, four_codes(second));
        for (i32 h = 0; h < 8; h++) classes[k + h] = map[codes[h]];
    }
}

// The classes of all values of a step, a chunk of places after the other: what they see is in the cache then.
static void expect_all(const Job *job, const Step *step, i32 phase, const i32 *places, i32 count) {
    for (i32 first = 0; first < count; first += CHUNK) {
        i32 some = least(CHUNK, count - first);
        look(job, step, phase, places + first, some);
        for (i32 row = step->start; row < step->stop; row++) expect(job, row, phase, job->classes + (row - step->start) * job->room + first, some);
    }
}

// What each tile holds in the rows that a flag looks at.
static void add_up(const Job *job, const Step *step) {
    i32 size = job->size, *totals = job->totals;
    for (i32 k = 0; k < size; k += 8) {
        v128_t low = wasm_i32x4_splat(0), high = low;
        const u16 *own = job->own + step->before * size + k;
        for (i32 row = step->before; row < step->before_stop; row++, own += size) {
            v128_t found = wasm_v128_load(own);
            low = wasm_i32x4_add(low, wasm_u32x4_extend_low_u16x8(found)), high = wasm_i32x4_add(high, wasm_u32x4_extend_high_u16x8(found));
        }
        wasm_v128_store(totals + k, low), wasm_v128_store(totals + k + 4, high);
    }
}

// What speaks for a flag: flags beside it, in the second phase, that of the first channel, and the class of all together.
typedef struct {
    i32 beside, first, class;
} Signs;

INLINE Signs signs_of_flag(const Job *job, const Step *step, const i64 *weights, i32 phase, i32 place) {
    i32 stride = job->stride;
    const i32 *totals = job->totals + place;
    const u8 *opened = job->opened + step->zone * job->size + place;
    i64 inside = totals[0], outside = totals[-1] + totals[1] + totals[-stride] + totals[stride];
    i32 beside = phase ? opened[-1] + opened[1] + opened[-stride] + opened[stride] : 0;
    i32 first = step->color && step->first >= 0 ? job->opened[step->first * job->size + place] : 0;
    i64 total = weights[0] + weights[1] * inside + weights[2] * outside + weights[3] * beside + weights[4] * first;
    return (Signs){beside, first, class_of(total / UNIT)};
}
