// One walk over the components of a block, the same for encoder and decoder.
//
// The encoder decides and writes, the decoder reads; since everything else is this one function, the two cannot
// drift apart. docs/FORMAT.md, sections 5 to 8, says the same in words.

#include "tabled.h"

// The rows of a `Near`: those at (i-1, j), (i, j-1), a third near one, one of the channel before, (i-2, j),
// (i, j-2), a fourth near one (-1 where there is none).
enum { UP, LEFT, THIRD, BEFORE, UP2, LEFT2, FOURTH, NEAR_ROWS };

static i32 rank(i32 count) {  // 0 .. 15
    return count < 8 ? count : count < 16 ? 8 + (count - 8) / 2 : count < 40 ? 12 + (count - 16) / 8 : 15;
}

enum { FEW = 8 };

#define LESS_OF wasm_u8x16_min
#define SUM wasm_i8x16_add

INLINE v128_t fourfold(v128_t bytes) {
    bytes = SUM(bytes, bytes);
    return SUM(bytes, bytes);
}

// What surrounds the values of a row, for all places at once: those of one phase see only the other phase beside
// them, so nothing changes while the row is coded. The closest magnitudes, two bits each; then how much there is
// inside the tile, and outside.
static void look_around(const Job *job, i32 row, i32 phase, const i32 *places, i32 count) {
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
    for (i32 n = 0; n < count && count < size / FEW; n++) {  // one by one takes less time for few
        i32 k = places[n], up = rows[UP][k], left = rows[LEFT][k], third = rows[THIRD][k];
        closest[k] = least(up, 3) | least(left, 3) << 2 | least(third, 3) << 4 | least(other[k], 3) << 6;
        crowded[k] = least(up + left + third + rows[UP2][k] + rows[LEFT2][k] + rows[FOURTH][k], 15) << 4 | least(beside[k] + above[k] + before[k], 15);
        if (phase) turns[k] = 3 * clipped(signs[k - 1] + signs[k + 1], -1, 1) + clipped(signs[k - stride] + signs[k + stride], -1, 1);
    }
    for (i32 k = 0; k < size && count >= size / FEW; k += 16) {
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
INLINE void line_up_as(const Job *job, Spot *spots, i32 row, i32 family, i32 phase, const i32 *places, const u8 *classes, i32 count, i32 rich) {
    const u8 *closest = job->closest, *crowded = job->crowded;
    const i8 *turns = job->turns;
    Counter *nearest = near_by + (family * 2 + phase) * 256 * MIXED, *crowds = crowd + (family * 2 + phase) * 256 * MIXED;
    const u8 *grade = job->grade;
    Counter *placed = job->placed + row * OCTAVES * MIXED;
    for (i32 k = 0; k < count; k++) {
        i32 place = places[k];
        Spot *spot = spots + k;
        *spot = spot_of(grade, placed, family, family * 2 + phase, classes[k], nearest + closest[place] * MIXED, crowds + crowded[place] * MIXED, place, phase ? turns[place] : 0, rich);
    }
}

static void line_up(const Job *job, Spot *spots, i32 row, i32 family, i32 phase, const i32 *places, const u8 *classes, i32 count) {
    if (job->rich) line_up_as(job, spots, row, family, phase, places, classes, count, 1);
    else line_up_as(job, spots, row, family, phase, places, classes, count, 0);
}

// Code the values of a row. Returns how many are not zero: these are listed.
INLINE i32 code_row_as(Job *job, Range *outer, i32 writing, i32 rich, const Line *line, const Spot *spots, i32 count, const double *data, Hit *list) {
    Range range = *outer;
    range.writing = writing;
    Hit *hit = list;
    const i32 smooth = rich && job->edge_room > 0 && !line->family;
    const Borders borders = smooth ? borders_of(job, line) : (Borders){0};
    for (const Spot *spot = spots, *end = spots + count; spot < end; spot++) {
        double rest = writing ? data[spot->place] : 0;
        i64 q = code_size(job, line, &range, spot, rest, rich);
        if (!q) continue;
        i32 negative = smooth ? code_smooth_sign(line, &borders, &range, spot->turn, spot->place, rest < 0) : code_sign(line, &range, spot->turn, slope_at(line, spot->place), rest < 0);
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

// What was coded in a row, for those that come later: nobody in this row looks at it. Whatever is asked for every value
// is taken out of the job first, since bytes that are written might be anything of it, for all that a compiler knows.
static void note_hits(Job *job, i32 row, i32 phase, i32 count, i32 leader, u8 *busy) {
    const Line line = line_of(job, row, row >= job->colored);
    const Edge edge = job->row_edges[row];
    const Hit *hits = job->hits;
    i32 size = job->size, first = row < job->colored, *values = count && job->picture_count ? slot_values(job, slot_of(job, row)) : 0;
    i32 *light = job->led && first ? job->light + row * size : 0, *lit = light ? lit_places(job, row, phase) : 0;
    i32 *edges = job->edge_room && first ? job->edges : 0, *guesses = job->guesses, symbols = job->symbols, wide = 0;
    double *data = job->direct ? 0 : job->data + row * size;
    if (light) job->lit_counts[2 * row + phase] = count;
    for (i32 k = 0; k < count; k++) {
        Hit hit = hits[k];
        i32 place = hit.place;
        double value = keep(&line, place, hit.class, hit.symbol);
        if (leader >= 0) value += guesses[place], learn_led(job, row, leader, place, value);
        if (light) light[place] = within_reach(value), lit[k] = place;
        if (edges) extend_edges(edges + place, size, &edge, value);
        if (values) wide |= put(values, place, value);
        if (data) data[place] = symbols ? hit.symbol : value;
        busy[place] = least(busy[place] + (hit.symbol > 1 || hit.symbol < -1 ? 2 : 1), 255);
    }
    job->wide |= wide;
}

// `leader` is the row of brightness that the values follow, or -1.
static void code_row(Job *job, Range *range, i32 row, const Step *step, i32 phase, const i32 *places, i32 count, i32 leader) {
    const Line line = line_of(job, row, row >= job->colored);
    Spot *spots = (Spot *)job->spots;
    double *data = job->data + row * job->size;
    u8 *busy = job->busy + step->color * job->size;
    const double *wanted = leader >= 0 && job->mode == DECIDE ? less_guessed(job, data) : data;
    const u8 *classes = job->classes + (row - step->start) * job->room;
    i32 hits = 0;
    for (i32 first = 0; first < count; first += CHUNK) {
        i32 some = least(CHUNK, count - first);
        line_up(job, spots, row, line.family, phase, places + first, classes + first, some);
        Hit *list = job->hits + hits;
        hits += range->writing ? (job->rich ? write_rich_row : write_row)(job, range, &line, spots, some, wanted, list) : (job->rich ? read_rich_row : read_row)(job, range, &line, spots, some, list);
    }
    note_hits(job, row, phase, hits, leader, busy);
}

// A flag for each live tile: whether anything follows in this zone or later. Returns how many stay live.
INLINE i32 code_flags_as(Job *job, Range *outer, i32 writing, i32 index, const Step *step, i32 phase, i32 *places, i32 count) {
    Range range = *outer;
    range.writing = writing;
    const i64 *weights = job->flag_weights + (index * 2 + phase) * FLAG_FEATURES;
    i32 size = job->size, stride = job->stride, kept = 0, zone = least(step->zone, 15);
    for (i32 k = 0; k < count; k++) {
        i32 place = places[k];
        const Signs signs = signs_of_flag(job, step, weights, phase, place);
        const u8 *busy = job->busy + step->color * size + place;
        i32 near = busy[-1] + busy[1] + busy[-stride] + busy[stride];
        near = near < 8 ? near / 2 : near < 40 ? 4 + (near - 8) / 4 : least(12 + (near - 40) / 32, 15);
        Counter *counters[3] = {
            &flag_counters[0][zone * 16 + (phase ? signs.beside : 5) * 2 + signs.first],
            &flag_counters[1][zone * 16 + rank(*busy)],
            &flag_counters[2][zone * 32 + near * 2 + phase],
        };
        i32 logit = stretch(least(job->flag_tables[signs.class * 2 + 1], ONE - 1));
        if (code_mixed(&range, job->wanted[step->zone * size + place], logit, counters, 3, flag_weights[zone][phase], slowness(job->rich))) {
            job->opened[step->zone * size + place] = 1;
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

// What coding a value saves, in squared steps, less what it costs beyond a zero: `ratio` is its size in steps.
INLINE double gain_of(const Job *job, double ratio, double heed, double more) {
    double q = __builtin_floor(ratio + 0.5);
    return q < 1 ? 0 : heed * (2 * ratio - q) * q - more - (q < 2 ? 0 : job->log_prices[q < LOG_PRICES - 1 ? (i32)q : LOG_PRICES - 1]);
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
            const double *heeds = job->heed + row;
            for (i32 g = 1; g < job->grades; g++) finest = inverses[g] > finest ? inverses[g] : finest;
            for (i32 k = 0; k < size; k++) {
                while (k + 8 < size && all_small(data + k, CLEARLY / finest)) k += 8;
                double gain = gain_of(job, absolute(data[k]) * inverses[job->grade[k]], heeds[job->grade[k] * job->rows], more);
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

// A tile of color that is not coded is what brightness says of it. By now that is known, and where it is so wrong that
// saying better is worth the bits, the tile is coded after all.
static void open_misled(Job *job, i32 index, i32 phase) {
    const Step *step = job->steps + index;
    i32 size = job->size, known = 0, stop = step->stop;
    const i32 *phases = job->phases + (phase ? job->even_count : 0), count = phase ? job->odd_count : job->even_count;
    u8 *wanted = job->wanted + step->zone * size;
    double *worth = job->worth, zeros = 2.5 * job->log_prices[0];
    for (i32 k = 0; k < count; k++) worth[phases[k]] = 0;
    for (i32 s = 0; s < index; s++) known = job->steps[s].color ? known : job->steps[s].stop;
    for (i32 s = index; s < job->step_count; s++) stop = job->steps[s].zone == step->zone ? job->steps[s].stop : stop;
    for (i32 row = step->start; row < stop; row++) {
        const double *prices = job->prices + class_of(job->expected[row]) * TOKENS, *data = job->data + row * size;
        zeros += prices[0] / 2;
        i32 leader = leader_of(job, row);
        if (leader < 0 || leader >= known) continue;
        const i32 *light = job->light + leader * size, *places = lit_places(job, leader, phase);
        for (i32 k = 0; k < job->lit_counts[2 * leader + phase]; k++) {
            i32 place = places[k];
            if (wanted[place]) continue;
            i32 guess = guess_of(light[place], slope_of(job, job->near[row].channel, place, OWN_SHARE), job->shares[row]);
            i32 at = job->grade[place] * job->rows + row;
            double gain = gain_of(job, absolute(data[place] - guess) / job->quanta[at], job->heed[at], prices[1] - prices[0]);
            if (gain > 0) worth[place] += gain;
        }
    }
    for (i32 k = 0; k < count; k++)
        if (worth[phases[k]] > zeros) wanted[phases[k]] = 1;
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
    if (job->led && start < job->colored) __builtin_memset(job->light + at, 0, 4 * count);
}

static void learning_walk(Job *job) {
    start_learning(job);
    clear_rows(job, job->rows, job->rows + 1);
    for (i32 c = 0; c < job->channels; c++)
        if (job->lowest_rows[c] >= 0) clear_rows(job, job->lowest_rows[c], job->lowest_rows[c] + 1);
    Range range = open_range(job->bytes, job->capacity, job->mode != DECODE);
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
            i32 which = step->color * 2 + phase, *places = job->live + which * job->size, led = job->led && step->color;
            if (led && !phase) forget_some(job);
            if (step->opens && led && job->mode == DECIDE) open_misled(job, index, phase);
            if (step->opens && !phase) add_up(job, step);
            if (step->opens) counts[which] = (range.writing ? write_flags : read_flags)(job, &range, index, step, phase, places, counts[which]);
            expect_all(job, step, phase, places, counts[which]);
            for (i32 row = step->start; row < step->stop && (led || counts[which]); row++) {
                i32 leader = led ? leader_of(job, row) : -1;
                if (leader >= 0) guess_row(job, row, leader, phase, 2 * index + phase + 1);
                if (leader >= 0 && job->mode == DECIDE) compare_guesses(job, row, leader, phase);
                if (counts[which]) {
                    look_around(job, row, phase, places, counts[which]);
                    code_row(job, &range, row, step, phase, places, counts[which], leader);
                }
                if (leader >= 0) settle_row(job, row, leader, phase);
            }
        }
    }
    job->length = close_range(&range, job->bytes, &job->damaged);
}

static void walk(Job *job) {
    if (job->mode == DECIDE) choose_flags(job);
    if (job->model == TABLED) tabled_walk(job);
    else learning_walk(job);
    if (job->mode != DECODE && !job->picture_count) clear_uncoded(job);  // of pictures nobody looks at them
}

static void to_pictures(Job *job) {
    u8 *out = job->decoded;
    i32 can = prepare_quick(job);
    for (i32 k = 0; k < job->picture_count; k++) {
        const Shape *shape = job->shapes + k;
        start_making(can);
        if (can) finish(job, shape, 1, out);
        if (!made_well()) {
            synthesize(job, shape);
            finish(job, shape, 0, out);
        }
        out += shape->height * shape->width * job->colors;
    }
}

static void from_pictures(Job *job, const u8 *in) {
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

// What the filter adds to the values need not be said by them: from now on they are wanted so that, with what it added
// this time, pictures are as they were. Nothing is known of the block that comes.
static void aim_again(Job *job) {
    i32 size = job->size;
    const double push = job->push / 8.0;
    from_pictures(job, job->decoded);
    for (i32 row = 0; row < job->rows; row++) {
        double *data = job->data + row * size;
        const double *aims = job->aims + row * size;
        i32 slot = slot_of(job, row);
        const i32 *values = job->tiles + slot * job->apart;
        if (job->touched[slot])
            for (i32 k = 0; k < size; k++) data[k] = aims[k] - push * (data[k] - values[k]);
        else
            for (i32 k = 0; k < size; k++) data[k] = aims[k] - push * data[k];
    }
    __builtin_memset(job->touched, 0, job->colors * job->side * job->side);
    __builtin_memset(job->opened, 0, job->zones * size);
    __builtin_memset(job->busy, 0, 2 * size);
    if (job->led) __builtin_memset(job->when_found, 0, 4 * size);
}

// Coefficients or pictures to bytes and back, whatever the job has.
EXPORT(run) void run(void) {
    Job *job = &the_job;
    i32 pictured = job->mode == DECIDE && job->picture_count, passes = pictured ? job->passes : 1;
    if (pictured) from_pictures(job, job->pixels);
    if (passes > 1) __builtin_memcpy(job->aims, job->data, 8 * job->rows * job->size);
    for (i32 pass = 1;; pass++) {
        walk(job);
        if (job->damaged || job->wide || !job->picture_count) return;
        to_pictures(job);
        if (pass >= passes) break;
        aim_again(job);
    }
    if (pictured) measure(job);
}
