// One walk over the components of a block without learning: quick to read, for a few more bytes.
//
// The order of components, their classes and the tables of the format are those of `walk`; bits are not mixed, colors
// do not follow brightness, and signs are raw. All values of a component and phase are read at once.

#include "streams.h"

// What a magnitude of this class stands for in a tile.
INLINE double tabled_value(const Line *line, i32 place, i32 class, i64 q, i32 negative) {
    double size = (q - offset_at(line, place, class, q) / 256.0) * quantum_at(line, place);
    return __builtin_floor((negative ? -size : size) + 0.5);
}

// Nearest, one less or zero, whichever costs least in error and bits, by the tables of the format: what is decided
// does not depend on those that were fitted to it.
INLINE i64 decide_tabled(const Job *job, const Line *line, i32 place, i32 class, double ratio) {
    i64 nearest = __builtin_floor(ratio + 0.5), best = 0;
    if (!nearest) return 0;
    i32 shift = shift_of(class);
    const double *prices = job->prices + (line->family * CLASSES + class) * TOKENS;
    double heed = line->heed[line->grade[place] * line->apart], least_cost = ratio * ratio * heed + prices[0];
    for (i64 q = nearest > 1 ? nearest - 1 : 1; q <= nearest; q++) {
        double error = ratio - q + offset_at(line, place, class, q) / 256.0;
        double cost = error * error * heed + prices[q >> shift < STAGES ? q >> shift : STAGES];
        if (cost < least_cost) least_cost = cost, best = q;
    }
    return best;
}

// What lies beyond the tokens: its length, in ones, then its digits after the first.
static i64 read_beyond(Job *job, Streams *streams) {
    i32 length = 0;
    i64 digits = 1;
    while (read_raw(streams)) {
        if (++length > LONGEST) {
            job->damaged = 1;
            return 1;
        }
    }
    for (i32 k = 0; k < length; k++) digits = 2 * digits + read_raw(streams);
    return digits;
}

static void write_beyond(Job *job, Streams *streams, i64 beyond) {
    i32 length = 0;
    while (beyond >> (length + 1)) length++;
    job->damaged |= length > LONGEST;
    for (i32 k = 0; k < length; k++) write_raw(streams, 1);
    write_raw(streams, 0);
    for (i32 k = length - 1; k >= 0; k--) write_raw(streams, beyond >> k & 1);
}

// The magnitude of a token: with what goes out raw, if it is large.
INLINE i64 read_rest(Job *job, Streams *streams, i32 class, i64 token) {
    if (token < STAGES && class < ROWS) return token;
    i64 found = token == STAGES ? STAGES - 1 + read_beyond(job, streams) : token;
    for (i32 k = shift_of(class); k > 0; k--) found = 2 * found + read_raw(streams);
    return found;
}

// Note the magnitude of a value for a later turn, and write what goes out raw.
INLINE void write_size(Job *job, Streams *streams, const Line *line, i32 class, i64 q) {
    i32 shift = shift_of(class);
    i64 token = q >> shift;
    i32 known = token < STAGES ? token : STAGES;
    note_token(streams, token_spans[job->own_set[line->row]][class].spans[known]);
    if (job->counting) job->counts[(line->row * ROWS + row_of(class)) * TOKENS + known]++;
    if (token >= STAGES) write_beyond(job, streams, token - STAGES + 1);
    for (i32 k = shift - 1; k >= 0; k--) write_raw(streams, q >> k & 1);
}

// The encoder's value at a place: what it wants to say, by its class.
INLINE i64 wanted_size(const Job *job, const Line *line, i32 place, i32 class, double rest) {
    return job->mode == DECIDE ? decide_tabled(job, line, place, class, absolute(rest) / quantum_at(line, place)) : (i64)absolute(rest);
}

INLINE void note_size(const Line *line, i32 place, i64 q) { line->own[place] = q < LARGEST ? q : LARGEST; }

// Where a walk puts the values of a row.
typedef struct {
    i32 *values;   // of the pictures, or 0
    double *data;  // of the job, or 0
    i32 symbols, wide;
} Target;

static Target target_of(Job *job, i32 row) {
    return (Target){job->picture_count ? slot_values(job, slot_of(job, row)) : 0, job->direct ? 0 : job->data + row * job->size, job->symbols, 0};
}

INLINE void put_value(Target *target, i32 place, i64 symbol, double value) {
    if (target->values) target->wide |= put(target->values, place, value);
    if (target->data) target->data[place] = target->symbols ? symbol : value;
}

// A value that is not zero, for those that come later and for the pictures.
INLINE void settle_value(const Line *line, Target *target, i32 place, i32 class, i64 q, i32 negative) {
    note_size(line, place, q);
    put_value(target, place, negative ? -q : q, tabled_value(line, place, class, q, negative));
}

// Whether any of these values may differ from zero. Beyond the last are others, which do no harm.
INLINE i32 any_hits(const u8 *tokens, const u8 *classes, i32 count) {
    v128_t some = wasm_i8x16_splat(0), largest = some;
    for (i32 k = 0; k < count; k += 16) some = wasm_v128_or(some, BYTES(tokens + k)), largest = wasm_u8x16_max(largest, BYTES(classes + k));
    return wasm_v128_any_true(wasm_v128_or(some, wasm_u8x16_ge(largest, wasm_i8x16_splat(ROWS))));
}

// The values of a row whose tokens were taken, with what goes out raw.
APART void settle_tokens(Job *job, Streams *outer, const Line *outer_line, const i32 *places, const u8 *classes, i32 count, const u8 *tokens) {
    if (!any_hits(tokens, classes, count)) return;
    Streams streams = *outer;
    const Line line = *outer_line;
    Target target = target_of(job, line.row);
    const v128_t none = wasm_i8x16_splat(0), tall = wasm_i8x16_splat(ROWS);
    for (i32 first = 0; first < count; first += 16) {
        v128_t found = wasm_v128_or(wasm_i8x16_ne(BYTES(tokens + first), none), wasm_u8x16_ge(BYTES(classes + first), tall));
        for (u32 mask = wasm_i8x16_bitmask(found); mask; mask &= mask - 1) {
            i32 k = first + __builtin_ctz(mask), class = classes[k];
            if (k >= count) break;
            i64 q = tokens[k];
            if (q == STAGES || class >= ROWS) {
                GUESSED;
                Streams own = streams;  // its address must not be known where it should be quick
                q = read_rest(job, &own, class, q);
                streams = own;
                if (!q) continue;
            }
            settle_value(&line, &target, places[k], class, q, read_raw(&streams));
        }
    }
    job->wide |= target.wide;
    *outer = streams;
}

// The same for a writer, which decides, notes tokens and writes the rest.
static void decide_values(Job *job, Streams *streams, const Line *line, const i32 *places, const u8 *classes, i32 count) {
    Target target = target_of(job, line->row);
    const double *data = job->data + line->row * job->size;
    for (i32 k = 0; k < count; k++) {
        double rest = data[places[k]];
        i64 q = wanted_size(job, line, places[k], classes[k], rest);
        write_size(job, streams, line, classes[k], q);
        if (!q) continue;
        write_raw(streams, rest < 0);
        settle_value(line, &target, places[k], classes[k], q, rest < 0);
    }
    job->wide |= target.wide;
}

static void tabled_row(Job *job, Streams *streams, i32 row, const u8 *classes, const i32 *places, i32 count) {
    const Line line = line_of(job, row, row >= job->colored);
    if (job->mode != DECODE) {
        decide_values(job, streams, &line, places, classes, count);
        return;
    }
    read_tokens(streams, job->own_set[row], classes, count, job->closest);
    settle_tokens(job, streams, &line, places, classes, count, job->closest);
}

// A flag for each live tile: whether anything follows in this zone or later. Returns how many stay live.
APART i32 tabled_flags(Job *job, Streams *streams, i32 index, const Step *step, i32 phase, i32 *places, i32 count) {
    const i64 *weights = job->flag_weights + (index * 2 + phase) * FLAG_FEATURES;
    i32 size = job->size, kept = 0;
    u8 *opened = job->opened + step->zone * size;
    for (i32 k = 0; k < count; k++) {
        i32 place = places[k], p = job->flag_tables[signs_of_flag(job, step, weights, phase, place).class * 2 + 1], flag;
        if (job->mode == DECODE) flag = take_flag(streams, streams->states + streams->turn++ % STATES, p);
        else flag = job->wanted[step->zone * size + place], note_token(streams, flag_span(p, flag));
        opened[place] = flag;
        places[kept] = place, kept += flag;
    }
    return kept;
}

// The lowest components, level by level: each level is predicted from the ones before.
APART void tabled_lowest(Job *job, Streams *streams) {
    u8 *classes = job->classes, *tokens = job->closest;
    double *means = job->worth;
    for (i32 channel = 0; channel < job->channels; channel++) {
        i32 row = job->lowest_rows[channel];
        if (row < 0) continue;
        const i32 *places = job->level_places, *around = job->level_around;
        const Line line = line_of(job, row, 2);
        Target target = target_of(job, row);
        double *low = job->low + channel * job->size;
        const double *data = job->data + row * job->size;
        for (i32 l = 0; l < job->level_count; l++) {
            i32 count = job->levels[l].count;
            for (i32 k = 0; k < count; k++, around += 4) {
                const Foreseen foreseen = foresee_lowest(job, &line, channel, job->levels[l].fineness, places[k], around);
                classes[k] = foreseen.class, means[k] = foreseen.mean;
            }
            if (job->mode == DECODE) read_tokens(streams, job->own_set[row], classes, count, tokens);
            for (i32 k = 0; k < count; k++) {
                i32 place = places[k], negative = 0;
                i64 q;
                double value = means[k];
                if (job->mode == DECODE) {
                    q = read_rest(job, streams, classes[k], tokens[k]);
                    negative = q && read_raw(streams);
                } else {
                    double rest = job->mode == DECIDE ? data[place] - means[k] : data[place];
                    q = wanted_size(job, &line, place, classes[k], rest), negative = rest < 0;
                    write_size(job, streams, &line, classes[k], q);
                    if (q) write_raw(streams, negative);
                }
                note_size(&line, place, q);
                if (q) value += tabled_value(&line, place, classes[k], q, negative);
                low[place] = value;
                put_value(&target, place, negative ? -q : q, value);
            }
            places += count;
        }
        job->wide |= target.wide;
    }
}

// The grades of regions are few, and learned as ever: their length, then what the range coder makes of them.
static u32 tabled_grades(Job *job) {
    i32 writing = job->mode != DECODE;
    u32 length = 0, room = job->capacity > WORD ? job->capacity - WORD : 0;
    u8 *bytes = job->bytes + WORD;
    if (!writing && room) __builtin_memcpy(&length, job->bytes, WORD);
    if (length > room) job->damaged = 1, length = 0;
    Range range = open_range(bytes, writing ? room : length, writing);
    code_grades(job, &range);
    u32 used = close_range(&range, bytes, &job->damaged);
    if (writing && room) __builtin_memcpy(job->bytes, &used, WORD);
    job->damaged |= !writing && used != length;
    return used + WORD;
}

static void tabled_walk(Job *job) {
    if (!paces[0]) make_tables();
    make_spans(job);
    u32 used = job->grades > 1 ? tabled_grades(job) : 0;
    u8 *first = job->bytes + (used < job->capacity ? used : job->capacity), *end = job->bytes + job->capacity;
    Streams streams = {.at = first, .first = first, .end = end, .records = job->records};
    if (job->mode == DECODE) streams = open_to_read(first, end, &job->damaged);
    for (i32 c = 0; c < job->channels; c++)
        if (job->lowest_rows[c] >= 0) __builtin_memset(job->own + job->lowest_rows[c] * job->size, 0, 2 * job->size);
    tabled_lowest(job, &streams);
    i32 counts[4], size = job->size;
    for (i32 k = 0; k < 4; k++) {
        counts[k] = k & 1 ? job->odd_count : job->even_count;
        __builtin_memcpy(job->live + k * size, job->phases + (k & 1 ? job->even_count : 0), 4 * counts[k]);
    }
    for (i32 index = 0; index < job->step_count && !job->damaged; index++) {
        const Step *step = job->steps + index;
        __builtin_memset(job->own + step->start * size, 0, 2 * (step->stop - step->start) * size);
        for (i32 phase = 0; phase < 2; phase++) {
            i32 which = step->color * 2 + phase, *places = job->live + which * size;
            if (step->opens && !phase) add_up(job, step);
            if (step->opens) counts[which] = tabled_flags(job, &streams, index, step, phase, places, counts[which]);
            expect_all(job, step, phase, places, counts[which]);
            for (i32 row = step->start; row < step->stop && counts[which]; row++)
                tabled_row(job, &streams, row, job->classes + (row - step->start) * job->room, places, counts[which]);
        }
    }
    if (job->mode == DECODE) job->damaged |= !ended_well(&streams), job->length = job->capacity;
    else job->length = used + close_writing(&streams);
}
