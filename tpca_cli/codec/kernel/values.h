// One quantised value: the encoder decides it, both code it, both know what it stands for.

#include "coder.h"

enum { STAGES = TOKENS - 1, ROOM = TOKENS, LARGEST = 4095, LONGEST = 44, SURROUNDINGS = 4, MIXED = 2, KINDS = 64, OCTAVES = 16, WEIGHTS = 8, SURELY_ZERO = -600, FAMILIAR = 30, SMALL = 15, LARGEST_VALUE = 1 << 24, STEEPNESSES = 16, EDGE_BITS = 8, EDGE_FARTHEST = 1 << 20, LIVELY = 250 };

// A row of the tables: logits that the format gives, and counters that start from them.
typedef struct {
    i32 given[ROOM];
    Counter plain[ROOM];
} Tokens;

static Tokens tokens[FAMILIES][ROWS];
static Counter near_by[5 * 256 * MIXED], crowd[5 * 256 * MIXED], graded[5 * GRADES * KINDS * MIXED];
static Counter flag_counters[3][512], sign_near[33 * 8], sign_slope[33 * 8], sign_edges[3][16 * STEEPNESSES], beyond_counters[2][ROOM];
static i32 value_weights[FAMILIES][16][MIXED][WEIGHTS], tall_weights[FAMILIES][STAGES][4], flag_weights[16][2][4], sign_weights[16][4];


static void fill(Counter *counters, u32 count) {
    for (u32 k = 0; k < count; k++) counters[k] = HALF;
}
#define FILL(counters) fill((Counter *)(counters), sizeof(counters) / sizeof(Counter))

static void start_learning(const Job *job) {
    if (!paces[0]) make_tables();
    for (i32 f = 0; f < FAMILIES * ROWS; f++) {
        const i32 *row = job->tables + f * TOKENS;
        i32 rest = ONE;
        for (i32 k = 0; k < STAGES; k++) {
            i32 more = rest - row[k], p = least((i64)more * ONE / (rest > 1 ? rest : 1), ONE - 1);
            tokens[f / ROWS][f % ROWS].given[k] = stretch(p);
            tokens[f / ROWS][f % ROWS].plain[k] = p | FAMILIAR << 16;
            rest = more;
        }
    }
    FILL(near_by), FILL(crowd), FILL(flag_counters), FILL(sign_near), FILL(sign_slope), FILL(sign_edges), FILL(beyond_counters);
    if (job->rich) FILL(graded), fill(job->placed, job->rows * OCTAVES * MIXED), fill(job->tall, job->rows * STAGES);
    i32 first = job->rich ? 30000 : 46000, other = job->rich ? 11000 : 12000;
    for (i32 k = 0; k < (i32)(sizeof value_weights / sizeof(i32)); k++) ((i32 *)value_weights)[k] = k % WEIGHTS ? other : first;
    for (i32 k = 0; k < (i32)(sizeof tall_weights / sizeof(i32)); k++) ((i32 *)tall_weights)[k] = k % 4 == 0 ? 10000 : k % 4 == 1 ? 40000 : 15000;
    for (i32 k = 0; k < (i32)(sizeof sign_weights / sizeof(i32)); k++) ((i32 *)sign_weights)[k] = 22000;
    if (job->edge_room) __builtin_memset(job->edges, 0, 4 * job->edge_room * job->size);
    for (i32 k = 0; k < (i32)(sizeof flag_weights / sizeof(i32)); k++) ((i32 *)flag_weights)[k] = k % 4 ? 10000 : 40000;
}

INLINE double absolute(double x) { return __builtin_fabs(x); }

// 8 log2 in whole eighths of an octave, from the bits of the float.
INLINE i32 log_code(double value) {
    union { double value; u64 bits; } both = {value < 1 ? 1 : value};
    return (i32)(both.bits >> 49) - (1023 << 3);
}

// `log_code` of four numbers: those that begin a double of 2^52 and more, and are then taken from it, are exact.
INLINE v128_t four_codes(v128_t numbers) {
    const v128_t base = wasm_f64x2_splat(0x1p52), high = wasm_i32x4_splat(0x43300000), one = wasm_f64x2_splat(1);
    v128_t low_half = wasm_f64x2_sub(wasm_i32x4_shuffle(numbers, high, 0, 4, 1, 5), base), high_half = wasm_f64x2_sub(wasm_i32x4_shuffle(numbers, high, 2, 6, 3, 7), base);
    low_half = wasm_f64x2_pmax(low_half, one), high_half = wasm_f64x2_pmax(high_half, one);
    v128_t upper = wasm_i32x4_shuffle(low_half, high_half, 1, 3, 5, 7);  // sign, exponent and the first 20 digits
    return wasm_i32x4_sub(wasm_u32x4_shr(upper, 17), wasm_i32x4_splat(1023 << 3));
}

INLINE i32 class_of(i64 expected) {
    i32 found = (log_code(expected) >> 1) - 4;
    return found < 0 ? 0 : least(found, CLASSES - 1);
}

INLINE i32 shift_of(i32 class) { return class < ROWS ? 0 : class / CYCLE - (ROWS / CYCLE - 1); }

// One row of the canvas: what is known there, and what selects the counters of its values.
typedef struct {
    i32 row, family, sign_spot, stride;
    u16 *own;
    u8 *small, *around;
    i8 *signs;
    const double *quanta;  // steps, by grade
    const u8 *whole;       // whether values are whole multiples of them
    const double *heed;    // what the squared error counts
    const u8 *grade;
    i32 apart;             // from the step of a grade to that of the next
    const i32 *offsets;
    i32 axis;           // along which the lowest component slopes, 0 for none
    const double *low;  // of its channel
} Line;

static Line line_of(const Job *job, i32 row, i32 family) {
    const Near *near = job->near + row;
    i32 at = row * job->size;
    return (Line){
        .row = row, .family = family, .sign_spot = near->sign_spot, .stride = job->stride,
        .own = job->own + at, .small = job->small + at, .around = job->around + at, .signs = job->signs + at,
        .quanta = job->quanta + row, .whole = job->whole + row, .heed = job->heed + row, .grade = job->grade, .apart = job->rows, .offsets = job->offsets, .axis = near->axis, .low = job->low + near->channel * job->size,
    };
}

// The step of a component in a tile.
INLINE double quantum_at(const Line *line, i32 place) { return line->quanta[line->grade[place] * line->apart]; }

// By how much a value is less than a whole multiple of the step, in 1/256 of it.
INLINE i32 offset_at(const Line *line, i32 place, i32 class, i64 q) {
    return line->whole[line->grade[place] * line->apart] ? 0 : line->offsets[class * 4 + (q < 3 ? q : 3)];
}

// A value in a row: its class, and whatever predicts it there.
typedef struct {
    Tokens *tokens;
    i32 (*weights)[WEIGHTS];  // of each stage
    Counter *surroundings[SURROUNDINGS];
    i32 place;
    i16 class, turn;
} Spot;

// Two of the surroundings serve only blocks that are predicted from more: `placed` are the counters of the row.
INLINE Spot spot_of(const u8 *grade, Counter *placed, i32 family, i32 set, i32 class, Counter *first, Counter *second, i32 place, i32 turn, i32 rich) {
    return (Spot){
        .tokens = tokens[family] + (class < ROWS ? class : ROWS - CYCLE + class % CYCLE),
        .weights = value_weights[family][least(class >> (rich ? 3 : 2), 15)],
        .surroundings = {
            first, second, rich ? graded + ((set * GRADES + grade[place]) * KINDS + least(class, KINDS - 1)) * MIXED : 0,
            rich ? placed + (class >> 3) * MIXED : 0,
        }, .place = place, .class = class, .turn = turn,
    };
}

INLINE void around_of(Counter **counters, const Spot *spot, i32 stage, i32 rich) {
    for (i32 k = 0; k < (rich ? SURROUNDINGS : 2); k++) counters[k] = spot->surroundings[k] + stage;
}

// Nearest, one less or zero, whichever costs least in error and bits.
INLINE i64 decide(const Job *job, const Line *line, const Spot *spot, double ratio, i32 rich) {
    i64 nearest = __builtin_floor(ratio + 0.5), best = 0;
    if (!nearest) return 0;
    i32 class = spot->class, shift = shift_of(class);
    const double *prices = job->prices + (line->family * CLASSES + class) * TOKENS;
    double zero = prices[0], one = prices[1], more = 0;
    if (!shift) {  // what the first two bits would cost here and now
        const i32 *logits = spot->tokens->given;
        i32 unused[8], p[MIXED];
        for (i32 stage = 0; stage < MIXED; stage++) {
            Counter *counters[SURROUNDINGS];
            around_of(counters, spot, stage, rich);
            p[stage] = mixed(unused, logits[stage], counters, rich ? SURROUNDINGS : 2, spot->weights[stage]);
        }
        if (!rich && logits[0] < SURELY_ZERO) p[0] = clipped(chance(spot->tokens->plain[0]), SURE, ONE - SURE);
        const double *bits = job->bit_prices;
        double some = bits[p[0] >> PRICE_SHIFT] + job->log_prices[0];
        zero = bits[(ONE - p[0]) >> PRICE_SHIFT];
        one = some + bits[(ONE - p[1]) >> PRICE_SHIFT];
        more = some + bits[p[1] >> PRICE_SHIFT] - prices[2];
    }
    double heed = line->heed[line->grade[spot->place] * line->apart], least_cost = ratio * ratio * heed + zero;
    for (i64 q = nearest > 1 ? nearest - 1 : 1; q <= nearest; q++) {
        double error = ratio - q + offset_at(line, spot->place, class, q) / 256.0;
        double price = q >> shift == 1 && !shift ? one : prices[q >> shift < STAGES ? q >> shift : STAGES] + more;
        double cost = error * error * heed + price;
        if (cost < least_cost) least_cost = cost, best = q;
    }
    return best;
}

INLINE i32 code_plain(Range *range, i32 bit, Counter *counter) {
    bit = code(range, bit, clipped(chance(*counter), SURE, ONE - SURE));
    learn(counter, bit, 2 * PATIENCE);
    return bit;
}

INLINE i32 code_stage(Range *range, const Spot *spot, i32 stage, i32 bit, i32 rich) {
    Counter *counters[SURROUNDINGS];
    around_of(counters, spot, stage, rich);
    return code_mixed(range, bit, spot->tokens->given[stage], counters, rich ? SURROUNDINGS : 2, spot->weights[stage], slowness(rich));
}

// A bit of a later stage: by the class, and by the component.
INLINE i32 code_late(const Job *job, Range *range, const Line *line, const Spot *spot, i32 stage, i32 bit, i32 rich) {
    Counter *plain = spot->tokens->plain + stage;
    if (!rich) return code_plain(range, bit, plain);
    Counter *counters[2] = {plain, job->tall + line->row * STAGES + stage};
    return code_mixed(range, bit, spot->tokens->given[stage], counters, 2, tall_weights[line->family][stage], slowness(rich));
}

// What lies beyond the tokens: its length, in ones, then its digits after the first.
static i64 code_beyond(Job *job, Range *range, i64 beyond) {
    i64 digits = 1;
    i32 length = 0, learned = job->model > 2;
    while (learned ? code_plain(range, beyond >> (length + 1) > 0, &beyond_counters[0][least(length, ROOM - 1)]) : code(range, beyond >> (length + 1) > 0, HALF)) {
        if (++length > LONGEST) {
            job->damaged = 1;
            return -1;
        }
    }
    for (i32 k = length - 1; k >= 0; k--) {
        i32 first = learned && k == length - 1, bit = beyond >> k & 1;
        digits = 2 * digits + (first ? code_plain(range, bit, &beyond_counters[1][least(length, ROOM - 1)]) : code(range, bit, HALF));
    }
    return digits;
}

// Is it larger than 0, than 1, ..: one bit each.
INLINE i64 code_magnitude(Job *job, Range *range, const Line *line, const Spot *spot, i64 q, i32 rich) {
    i32 shift = shift_of(spot->class), stage = 0;
    i64 token = q >> shift;
    i32 surely = !rich && spot->tokens->given[0] < SURELY_ZERO;
    i32 more = surely ? code_plain(range, token > 0, spot->tokens->plain) : code_stage(range, spot, 0, token > 0, rich);
    if (!more && !shift) return 0;
    if (more) {
        stage = 1;
        if (code_stage(range, spot, 1, token > 1, rich))
            for (stage = 2; stage < STAGES && code_late(job, range, line, spot, stage, token > stage, rich);) stage++;
    }
    i64 found = stage;
    if (stage == STAGES) {
        Range own = *range;  // its address must not be known where it should be quick
        found = code_beyond(job, &own, token - STAGES + 1) + STAGES - 1;
        own.writing = range->writing;
        *range = own;
        if (job->damaged) return 0;
    }
    for (i32 k = shift - 1; k >= 0; k--) found = 2 * found + code(range, q >> k & 1, HALF);
    return found;
}

// Which way the lowest component slopes along the axis of a row, and how much: -7 .. 7, in octaves of steps.
INLINE i32 slope_at(const Line *line, i32 place) {
    if (!line->axis) return 0;
    const double *low = line->low + place;
    i32 away = line->axis == 1 ? line->stride : 1;
    double slope = low[away] - low[-away];
    union { double value; i64 bits; } steep = {4 * absolute(slope)}, quantum = {quantum_at(line, place)};
    i32 steepness = clipped((i32)((steep.bits - quantum.bits) >> 52) + 1, 0, 7);
    if (low[away] == 0 || low[-away] == 0) return 0;
    return slope < 0 ? -steepness : steepness;
}

// The signs beside a place as one number: of those to the left and right, and of those above and below.
INLINE i32 turn_at(const Line *line, i32 place) {
    const i8 *signs = line->signs + place;
    return 3 * clipped(signs[-1] + signs[1], -1, 1) + clipped(signs[-line->stride] + signs[line->stride], -1, 1);
}

// A sign is like those of neighbouring tiles, or follows the slope of the lowest component.
INLINE i32 code_sign(const Line *line, Range *range, i32 turn, i32 steep, i32 negative) {
    i32 turned = turn < 0, falling = steep < 0;
    Counter *near = sign_near + line->sign_spot * 8 + (turned ? -turn : turn) + 1;
    Counter *slope = sign_slope + line->sign_spot * 8 + (falling ? -steep : steep);
    i32 first = stretch(chance(*near)), second = stretch(chance(*slope));
    i32 p = squashed[place_of(((turned ? -first : first) + (falling ? -second : second)) * 3 >> 2)];
    negative = code(range, negative, p);
    learn(near, negative ^ turned, STEADY);
    learn(slope, negative ^ falling, STEADY);
    return negative;
}

// The lines of samples along the borders of a tile, of what is known of it, as the other direction has them.
INLINE void extend_edges(i32 *edges, i32 size, const Edge *edge, double value) {
    i32 near = value > EDGE_FARTHEST ? EDGE_FARTHEST : value < -EDGE_FARTHEST ? -EDGE_FARTHEST : (i32)value;
    for (i32 k = 0; k < 4; k++) edges[edge->at[k] * size] += near * edge->weight[k] >> EDGE_BITS;
}

// How steep a difference is: by octaves of steps.
INLINE i32 steepness_of(i64 difference, i64 quantum_bits) {
    union { double value; i64 bits; } steep = {absolute(difference)};
    return clipped((i32)((steep.bits - quantum_bits) >> 52) + 5 - EDGE_BITS, 0, STEEPNESSES - 1);
}

// Where the borders of a row are in every tile: its own, then those that they meet; whether there is anything to meet.
typedef struct {
    const i32 *own[4], *other[4];
    const u8 *inside[4];
    i32 weight[4];
    Counter *near, *edges[3];
    i32 *weights;
} Borders;

static Borders borders_of(const Job *job, const Line *line) {
    const Edge *edge = job->row_edges + line->row;
    const i32 beside[4] = {-line->stride, line->stride, -1, 1}, spot = line->sign_spot;
    Borders found = {.near = sign_near + spot * 8, .weights = sign_weights[spot]};
    for (i32 k = 0; k < 3; k++) found.edges[k] = sign_edges[k] + spot * STEEPNESSES;
    for (i32 k = 0; k < 4; k++) {
        found.own[k] = job->edges + edge->at[k] * job->size, found.other[k] = job->edges + edge->at[k ^ 1] * job->size + beside[k];
        found.inside[k] = job->inside + beside[k], found.weight[k] = edge->weight[k];
    }
    return found;
}

// A sign makes the borders to neighbouring tiles smooth: above and below, left and right, and both together.
INLINE i32 code_smooth_sign(const Line *line, const Borders *borders, Range *range, i32 turn, i32 place, i32 negative) {
    i64 jumps[4], smooth[3];
    for (i32 k = 0; k < 4; k++) jumps[k] = (i64)(borders->other[k][place] - borders->own[k][place]) * (borders->weight[k] & -borders->inside[k][place]);
    smooth[0] = jumps[0] + jumps[1], smooth[1] = jumps[2] + jumps[3], smooth[2] = smooth[0] + smooth[1];
    union { double value; i64 bits; } quantum = {quantum_at(line, place)};
    i32 turned[4] = {-(turn < 0), -(smooth[0] < 0), -(smooth[1] < 0), -(smooth[2] < 0)}, logits[4], *weights = borders->weights;
    Counter *counters[4] = {borders->near + (turned[0] ? -turn : turn) + 1};
    for (i32 k = 0; k < 3; k++) counters[k + 1] = borders->edges[k] + steepness_of(smooth[k], quantum.bits);
    i64 sum = 0;
    for (i32 k = 0; k < 4; k++) {
        logits[k] = (stretch(chance(*counters[k])) ^ turned[k]) - turned[k];
        sum += (i64)logits[k] * weights[k];
    }
    i32 p = squashed[place_of(sum >> 16)];
    negative = code(range, negative, p);
    i32 error = (negative ? ONE : 0) - p;
    for (i32 k = 0; k < 4; k++) {
        weights[k] += (logits[k] * error + (1 << 13)) >> 14;
        learn(counters[k], negative ^ (turned[k] & 1), LIVELY);
    }
    return negative;
}

// Code the size of one value; `rest` is what the encoder wants to say.
INLINE i64 code_size(Job *job, const Line *line, Range *range, const Spot *spot, double rest, i32 rich) {
    i64 q = !range->writing ? 0 : job->mode == DECIDE ? decide(job, line, spot, absolute(rest) / quantum_at(line, spot->place), rich) : (i64)absolute(rest);
    return code_magnitude(job, range, line, spot, q, rich);
}

// Where the pictures of a job look for a component of a tile: by channel, column and row, tile after tile.
INLINE i32 slot_of(const Job *job, i32 row) {
    const i32 *index = job->indices + 3 * row;
    return (index[2] * job->side + index[1]) * job->side + index[0];
}

// The values of a component, tile after tile: all are zero before the first of them is put there.
INLINE i32 *slot_values(Job *job, i32 slot) {
    i32 *values = job->tiles + slot * job->apart;
    if (!job->touched[slot]) __builtin_memset(values, 0, 4 * job->apart);
    job->touched[slot] = 1;
    return values;
}

// Whether the value is too large.
INLINE i32 put(i32 *values, i32 place, double value) {
    i32 wide = !(absolute(value) < LARGEST_VALUE);
    if (!wide) values[place] = (i32)value;
    return wide;
}

// Note a symbol for those that come later. Returns the value that it stands for.
INLINE double keep(const Line *line, i32 place, i32 class, i64 symbol) {
    i64 q = symbol < 0 ? -symbol : symbol;
    i32 known = q < LARGEST ? q : LARGEST, small = least(known, SMALL);
    u8 *around = line->around + place;
    line->own[place] = known;
    line->small[place] = small;
    line->signs[place] = symbol < 0 ? -1 : 1;
    around[-1] += small, around[1] += small, around[-line->stride] += small, around[line->stride] += small;
    double size = (q - offset_at(line, place, class, q) / 256.0) * quantum_at(line, place);
    return __builtin_floor((symbol < 0 ? -size : size) + 0.5);
}
