// One walk over the components of a block, the same for encoder and decoder.
//
// The encoder decides and writes, the decoder reads; since everything else is this one function, the two cannot
// drift apart. docs/FORMAT.md, sections 5 to 8, says the same in words.

#include "restore.h"

// The rows of a `Near`: those at (i-1, j), (i, j-1), a third near one, one of the channel before, (i-2, j),
// (i, j-2), a fourth near one (-1 where there is none).
enum { UP, LEFT, THIRD, BEFORE, UP2, LEFT2, FOURTH, NEAR_ROWS };

static i32 rank(i32 count) {  // 0 .. 15
    return count < 8 ? count : count < 16 ? 8 + (count - 8) / 2 : count < 40 ? 12 + (count - 16) / 8 : 15;
}

// Magnitudes that a step sees, for its live places: pairs of sights side by side, so that two products are
// one instruction.
static void look(const Job *job, const Step *step, i32 phase, const i32 *places, i32 count) {
    for (i32 s = step->sights[phase]; s < step->sights_stop[phase]; s++) {
        const i16 *row = (const i16 *)job->own + job->sights[2 * s + 1] * job->size;
        i32 index = s - step->sights[phase];
        i16 *seen = job->seen + (index >> 1) * 2 * job->room + (index & 1);
        i32 kind = job->sights[2 * s], away = kind == 1 ? job->stride : 1;
        if (kind == 0 || kind == 3)
            for (i32 k = 0; k < count; k++) seen[2 * k] = row[places[k]];
        else
            for (i32 k = 0; k < count; k++) seen[2 * k] = row[places[k] - away] + row[places[k] + away];
    }
}

// The class of each value of a row by what is expected there.
static void expect(const Job *job, i32 row, i32 phase, i32 count) {
    const i32 *looks = job->looks + 2 * row + phase;
    const u8 *map = job->maps + row * CODES;
    u8 *classes = job->classes;
    v128_t base = wasm_i32x4_splat(job->bases[2 * row + phase]);
    for (i32 k = 0; k < count; k += 8) {
        v128_t first = base, second = base;
        for (i32 at = looks[0]; at < looks[1]; at++) {
            const i16 *seen = job->seen + job->look_pairs[at] * 2 * job->room + 2 * k;
            v128_t weights = wasm_v128_load32_splat(job->look_weights + 2 * at);
            first = wasm_i32x4_add(first, wasm_i32x4_dot_i16x8(wasm_v128_load(seen), weights));
            second = wasm_i32x4_add(second, wasm_i32x4_dot_i16x8(wasm_v128_load(seen + 8), weights));
        }
        u32 total[8];
        wasm_v128_store(total, first), wasm_v128_store(total + 4, second);
        for (i32 h = 0; h < 8; h++) classes[k + h] = map[log_code(total[h])];
    }
}

INLINE i32 four(const u16 *own, i32 stride) { return own[-1] + own[1] + own[-stride] + own[stride]; }

#define BYTES(pointer) wasm_v128_load(pointer)
#define LESS_OF wasm_u8x16_min
#define SUM wasm_i8x16_add

INLINE v128_t fourfold(v128_t bytes) {
    bytes = SUM(bytes, bytes);
    return SUM(bytes, bytes);
}

// What surrounds the values of a row, for all places at once: those of one phase see only the other phase beside
// them, so nothing changes while the row is coded. The closest magnitudes, two bits each; then how much there is
// inside the tile, and outside.
static void look_around(const Job *job, i32 row, i32 phase) {
    const Near *near = job->near + row;
    i32 size = job->size;
    const u8 *rows[NEAR_ROWS], *beside = job->around + row * size;  // a row of zeros, after all others, where there is none
    for (i32 k = 0; k < NEAR_ROWS; k++) rows[k] = job->small + (near->rows[k] < 0 ? job->rows : near->rows[k]) * size;
    const u8 *above = rows[UP] - job->small + job->around, *before = rows[LEFT] - job->small + job->around;
    const u8 *other = phase ? beside : rows[BEFORE];
    u8 *closest = job->closest, *crowded = job->crowded;
    i8 *turns = job->turns;
    const i8 *signs = job->signs + row * size;
    i32 stride = job->stride;
    const v128_t one = wasm_i8x16_splat(1), none = wasm_i8x16_splat(-1), three = wasm_i8x16_splat(3), most = wasm_i8x16_splat(15);
    for (i32 k = 0; k < size; k += 16) {
        v128_t up = BYTES(rows[UP] + k), left = BYTES(rows[LEFT] + k), third = BYTES(rows[THIRD] + k);
        v128_t found = fourfold(LESS_OF(BYTES(other + k), three));
        found = fourfold(SUM(found, LESS_OF(third, three)));
        found = fourfold(SUM(found, LESS_OF(left, three)));
        wasm_v128_store(closest + k, SUM(found, LESS_OF(up, three)));
        v128_t inside = SUM(SUM(SUM(up, left), SUM(third, BYTES(rows[UP2] + k))), SUM(BYTES(rows[LEFT2] + k), BYTES(rows[FOURTH] + k)));
        v128_t outside = SUM(BYTES(beside + k), SUM(BYTES(above + k), BYTES(before + k)));
        wasm_v128_store(crowded + k, SUM(fourfold(fourfold(LESS_OF(inside, most))), LESS_OF(outside, most)));
        if (!phase) continue;
        v128_t across = SUM(BYTES(signs + k - 1), BYTES(signs + k + 1)), along = SUM(BYTES(signs + k - stride), BYTES(signs + k + stride));
        across = wasm_i8x16_max(wasm_i8x16_min(across, one), none), along = wasm_i8x16_max(wasm_i8x16_min(along, one), none);
        wasm_v128_store(turns + k, SUM(SUM(across, across), SUM(across, along)));
    }
}

// Every value of a row with what predicts it.
INLINE void line_up_as(const Job *job, Spot *spots, i32 row, i32 family, i32 phase, const i32 *places, i32 count, i32 rich) {
    const u8 *classes = job->classes, *closest = job->closest, *crowded = job->crowded;
    const i8 *turns = job->turns;
    Counter *nearest = near_by + (family * 2 + phase) * 256 * MIXED, *crowds = crowd + (family * 2 + phase) * 256 * MIXED;
    for (i32 k = 0; k < count; k++) {
        i32 place = places[k];
        spots[k] = spot_of(job, row, family, family * 2 + phase, classes[k], nearest + closest[place] * MIXED, crowds + crowded[place] * MIXED, place, phase ? turns[place] : 0, rich);
    }
}

static void line_up(const Job *job, Spot *spots, i32 row, i32 family, i32 phase, const i32 *places, i32 count) {
    if (job->rich) line_up_as(job, spots, row, family, phase, places, count, 1);
    else line_up_as(job, spots, row, family, phase, places, count, 0);
}

// Code the values of a row. Returns how many are not zero: these are listed.
INLINE i32 code_row_as(Job *job, Range *outer, i32 writing, i32 rich, const Line *line, const Spot *spots, i32 count, const double *data, Hit *list) {
    Range range = *outer;
    range.writing = writing;
    Hit *hit = list;
    const i32 smooth = job->edge_room > 0 && !line->family;
    for (const Spot *spot = spots, *end = spots + count; spot < end; spot++) {
        double rest = writing ? data[spot->place] : 0;
        i64 q = code_size(job, line, &range, spot, rest, rich);
        if (!q) continue;
        i32 negative = rich && smooth ? code_smooth_sign(job, line, &range, spot->turn, spot->place, rest < 0) : code_sign(line, &range, spot->turn, slope_at(line, spot->place), rest < 0);
        q = negative ? -q : q;
        *hit++ = (Hit){spot->place, spot->class, q};
    }
    *outer = range;
    return hit - list;
}

APART i32 read_row(Job *job, Range *range, const Line *line, const Spot *spots, i32 count, Hit *list) {
    return code_row_as(job, range, 0, 0, line, spots, count, 0, list);
}

APART i32 read_rich_row(Job *job, Range *range, const Line *line, const Spot *spots, i32 count, Hit *list) {
    return code_row_as(job, range, 0, 1, line, spots, count, 0, list);
}

APART i32 write_row(Job *job, Range *range, const Line *line, const Spot *spots, i32 count, const double *data, Hit *list) {
    return code_row_as(job, range, 1, 0, line, spots, count, data, list);
}

APART i32 write_rich_row(Job *job, Range *range, const Line *line, const Spot *spots, i32 count, const double *data, Hit *list) {
    return code_row_as(job, range, 1, 1, line, spots, count, data, list);
}

// `leader` is the row of brightness that the values follow, or -1.
static void code_row(Job *job, Range *range, i32 row, const Step *step, i32 phase, const i32 *places, i32 count, i32 leader) {
    const Line line = line_of(job, row, row >= job->colored);
    Spot *spots = (Spot *)job->spots;
    double *data = job->data + row * job->size;
    u8 *busy = job->busy + step->color * job->size;
    line_up(job, spots, row, line.family, phase, places, count);
    const double *wanted = leader >= 0 && job->mode == DECIDE ? less_guessed(job, data) : data;
    i32 hits = range->writing ? (job->rich ? write_rich_row : write_row)(job, range, &line, spots, count, wanted, job->hits) : (job->rich ? read_rich_row : read_row)(job, range, &line, spots, count, job->hits);
    i32 pictures = job->picture_count > 0, slot = pictures ? slot_of(job, row) : 0;
    i32 *light = job->led && row < job->colored ? job->light + row * job->size : 0, *lit = light ? lit_places(job, row, phase) : 0;
    if (light) job->lit_counts[2 * row + phase] = hits;
    for (i32 k = 0; k < hits; k++) {  // nobody in this row looks at them
        Hit hit = job->hits[k];
        double value = keep(&line, hit.place, hit.class, hit.symbol);
        if (leader >= 0) value += job->guesses[hit.place], learn_led(job, row, leader, hit.place, value);
        if (light) light[hit.place] = within_reach(value), lit[k] = hit.place;
        if (job->edge_room && row < job->colored) extend_edges(job, row, hit.place, value);
        if (pictures) put(job, slot, hit.place, value);
        if (!job->direct) data[hit.place] = job->symbols ? hit.symbol : value;
        busy[hit.place] = least(busy[hit.place] + (hit.symbol > 1 || hit.symbol < -1 ? 2 : 1), 255);
    }
}

// A flag for each live tile: whether anything follows in this zone or later. Returns how many stay live.
INLINE i32 code_flags_as(Job *job, Range *outer, i32 writing, i32 index, const Step *step, i32 phase, i32 *places, i32 count) {
    Range range = *outer;
    range.writing = writing;
    const i64 *weights = job->flag_weights + (index * 2 + phase) * FLAG_FEATURES;
    i32 size = job->size, stride = job->stride, kept = 0, zone = least(step->zone, 15);
    for (i32 k = 0; k < count; k++) {
        i32 place = places[k];
        i64 inside = 0, outside = 0;
        for (i32 row = step->before; row < step->before_stop; row++) {
            const u16 *own = job->own + row * size + place;
            inside += own[0];
            outside += four(own, stride);
        }
        u8 *opened = job->opened + step->zone * size + place;
        i32 beside_open = phase ? opened[-1] + opened[1] + opened[-stride] + opened[stride] : 0;
        i32 first = step->color && step->first >= 0 ? job->opened[step->first * size + place] : 0;
        i64 total = weights[0] + weights[1] * inside + weights[2] * outside + weights[3] * beside_open + weights[4] * first;
        const u8 *busy = job->busy + step->color * size + place;
        i32 near = busy[-1] + busy[1] + busy[-stride] + busy[stride];
        near = near < 8 ? near / 2 : near < 40 ? 4 + (near - 8) / 4 : least(12 + (near - 40) / 32, 15);
        Counter *counters[3] = {
            &flag_counters[0][zone * 16 + (phase ? beside_open : 5) * 2 + first],
            &flag_counters[1][zone * 16 + rank(*busy)],
            &flag_counters[2][zone * 32 + near * 2 + phase],
        };
        i32 logit = stretch(least(job->flag_tables[class_of(total / UNIT) * 2 + 1], ONE - 1));
        if (code_mixed(&range, job->wanted[step->zone * size + place], logit, counters, 3, flag_weights[zone][phase], slowness(job->rich))) {
            *opened = 1;
            places[kept++] = place;
        }
    }
    *outer = range;
    return kept;
}

APART i32 read_flags(Job *job, Range *range, i32 index, const Step *step, i32 phase, i32 *places, i32 count) {
    return code_flags_as(job, range, 0, index, step, phase, places, count);
}

APART i32 write_flags(Job *job, Range *range, i32 index, const Step *step, i32 phase, i32 *places, i32 count) {
    return code_flags_as(job, range, 1, index, step, phase, places, count);
}

#define CLEARLY 0.499  // of a step: what is less becomes zero

// Whether eight values are below a size.
INLINE i32 all_small(const double *values, double size) {
    v128_t largest = wasm_f64x2_splat(0);
    for (i32 k = 0; k < 8; k += 2) largest = wasm_f64x2_pmax(largest, wasm_f64x2_abs(PAIR(values + k)));
    return !wasm_v128_any_true(wasm_f64x2_ge(largest, wasm_f64x2_splat(size)));
}

// For each zone, from the last: is what coding saves in error more than what it costs in bits?
static void choose_flags(Job *job) {
    i32 size = job->size;
    if (job->led) foresee(job);
    double *later = job->worth, *worth = later + size;
    for (i32 zone = job->zones - 1, color = -1; zone >= 0; zone--) {
        i32 start = job->rows, stop = 0, here = 0;
        for (i32 s = 0; s < job->step_count; s++) {
            if (job->steps[s].zone != zone) continue;
            start = least(start, job->steps[s].start), stop = job->steps[s].stop, here = job->steps[s].color;
        }
        for (i32 k = 0; k < size; k++) later[k] = here == color ? later[k] : 0, worth[k] = later[k];
        color = here;
        double zeros = 2.5 * job->log_prices[0];  // and the flag, with what its own contexts lose
        for (i32 row = start; row < stop; row++) {
            const double *prices = job->prices + class_of(job->expected[row]) * TOKENS, *data = foreseen(job, row);
            zeros += prices[0] / 2;  // those that contexts foresee cost next to nothing
            double more = prices[1] - prices[0], inverses[GRADES];
            for (i32 g = 0; g < job->grades; g++) inverses[g] = 1 / job->quanta[g * job->rows + row];
            double finest = inverses[0];
            for (i32 g = 1; g < job->grades; g++) finest = inverses[g] > finest ? inverses[g] : finest;
            for (i32 k = 0; k < size; k++) {
                while (k + 8 < size && all_small(data + k, CLEARLY / finest)) k += 8;
                double ratio = absolute(data[k]) * inverses[job->grade[k]], q = __builtin_floor(ratio + 0.5);
                if (q < 1) continue;
                double gain = (2 * ratio - q) * q - more - (q < 2 ? 0 : job->log_prices[q < LOG_PRICES - 1 ? (i32)q : LOG_PRICES - 1]);
                if (gain > 0) worth[k] += gain;
            }
        }
        for (i32 k = 0; k < size; k++) {
            double left = worth[k] - zeros;
            later[k] = left > 0 ? left : 0;
            job->wanted[zone * size + k] = left > 0;
        }
    }
}

static void clear_uncoded(Job *job) {
    for (i32 row = 0; row < job->rows; row++) {
        i32 lowest = 0;
        for (i32 c = 0; c < job->channels; c++) lowest |= job->lowest_rows[c] == row;
        i32 leader = job->led ? leader_of(job, row) : -1;
        for (i32 k = 0; k < job->size && !lowest; k++) {
            i32 guessed = leader >= 0 && job->light[leader * job->size + k];
            if (!job->own[row * job->size + k] && !guessed) job->data[row * job->size + k] = 0;
        }
    }
}

// Nothing is known of some rows yet. This is done just before they are coded, so that they are in the cache then.
static void clear_rows(Job *job, i32 start, i32 stop) {
    i32 at = start * job->size, count = (stop - start) * job->size;
    __builtin_memset(job->own + at, 0, 2 * count);
    __builtin_memset(job->small + at, 0, count);
    __builtin_memset(job->around + at, 0, count);
    if (start < job->rows) __builtin_memset(job->signs + at, 0, count);
}

static void walk(Job *job) {
    start_learning(job);
    clear_rows(job, job->rows, job->rows + 1);
    for (i32 c = 0; c < job->channels; c++)
        if (job->lowest_rows[c] >= 0) clear_rows(job, job->lowest_rows[c], job->lowest_rows[c] + 1);
    if (job->picture_count) __builtin_memset(job->tiles, 0, 4 * job->size * job->colors * job->side * job->side);
    Range range = open_range(job->bytes, job->capacity, job->mode != DECODE);
    if (job->mode == DECIDE) choose_flags(job);
    if (job->grades > 1) code_grades(job, &range);
    if (range.writing) write_lowest(job, &range);
    else read_lowest(job, &range);
    if (job->led) start_leading(job);
    i32 counts[4];
    for (i32 k = 0; k < 4; k++) {
        counts[k] = k & 1 ? job->odd_count : job->even_count;
        __builtin_memcpy(job->live + k * job->size, job->phases + (k & 1 ? job->even_count : 0), 4 * counts[k]);
    }
    for (i32 index = 0; index < job->step_count && !job->damaged; index++) {
        const Step *step = job->steps + index;
        clear_rows(job, step->start, step->stop);
        for (i32 phase = 0; phase < 2; phase++) {
            i32 which = step->color * 2 + phase, *places = job->live + which * job->size;
            if (step->opens) counts[which] = (range.writing ? write_flags : read_flags)(job, &range, index, step, phase, places, counts[which]);
            i32 led = job->led && step->color;
            if (led && !phase) forget_some(job);
            if (counts[which]) look(job, step, phase, places, counts[which]);
            for (i32 row = step->start; row < step->stop && (led || counts[which]); row++) {
                i32 leader = led ? leader_of(job, row) : -1;
                if (leader >= 0) guess_row(job, row, leader, phase, 2 * index + phase + 1);
                if (leader >= 0 && job->mode == DECIDE) compare_guesses(job, row, leader, phase);
                if (counts[which]) {
                    expect(job, row, phase, counts[which]);
                    look_around(job, row, phase);
                    code_row(job, &range, row, step, phase, places, counts[which], leader);
                }
                if (leader >= 0) settle_row(job, row, leader, phase);
            }
        }
    }
    if (job->mode != DECODE && !job->picture_count) clear_uncoded(job);  // of pictures nobody looks at them
    job->length = close_range(&range, job->bytes, &job->damaged);
}

static void to_pictures(Job *job) {
    u8 *out = job->decoded;
    i32 can = prepare_quick(job);
    for (i32 k = 0; k < job->picture_count; k++) {
        const Shape *shape = job->shapes + k;
        i32 quick = can && synthesize_quick(job, shape);
        if (!quick) synthesize(job, shape);
        if (job->restored) restore_pixels(job, shape, quick, out);
        else round_pixels(job, shape, quick, out);
        out += shape->height * shape->width * job->colors;
    }
}

static void from_pictures(Job *job) {
    const u8 *in = job->pixels;
    i32 can = prepare_forward(job);
    for (i32 k = 0; k < job->picture_count; k++) {
        const Shape *shape = job->shapes + k;
        if (!can || !analyze_quick(job, shape, in)) {
            spread(job, shape, in);
            analyze(job, shape);
        }
        in += shape->height * shape->width * job->colors;
    }
}

static void measure(Job *job) {
    const u8 *in = job->pixels, *out = job->decoded;
    for (i32 k = 0; k < job->picture_count; k++) {
        i32 count = job->shapes[k].height * job->shapes[k].width * job->colors;
        i64 sum = 0;
        for (i32 x = 0; x < count; x++) sum += (in[x] - out[x]) * (in[x] - out[x]);
        job->errors[k] = sum;
        in += count, out += count;
    }
}

// Coefficients or pictures to bytes and back, whatever the job has.
EXPORT(run) void run(void) {
    Job *job = &the_job;
    if (job->mode == DECIDE && job->picture_count) from_pictures(job);
    walk(job);
    if (job->damaged || job->wide || !job->picture_count) return;
    to_pictures(job);
    if (job->mode == DECIDE) measure(job);
}
