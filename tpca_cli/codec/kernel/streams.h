// Tokens by tables alone: four states that take turns (range asymmetric numeral systems), and raw bits.
//
// A state is a number of 64 bits from which a token is taken, and into which a word of 32 bits is moved when it gets
// small. What one token leaves is not needed for the next three, so a processor works at four of them at once. A
// writer goes backward: it notes all tokens, and codes the last one first. Words are read forward, raw bits
// from the end of the block back, and where both meet the block ends.

#include "expect.h"

enum { STATES = 4, SPAN_BITS = 16, WORD = 4 };
#define STATE_START (1ull << 32)

// Where the tokens of a class begin in 0 .. 2^16 - 1: less 2^15, for comparisons; and with their lengths above.
typedef struct {
    i16 starts[TOKENS];
    u32 spans[TOKENS];
} Spans;

// The row of the tables that a class has.
INLINE i32 row_of(i32 class) { return class < ROWS ? class : ROWS - CYCLE + class % CYCLE; }

static Spans token_spans[SETS][CLASSES];

static void make_spans(const Job *job) {
    for (i32 set = 0; set < job->sets; set++)
        for (i32 class = 0; class < CLASSES; class++) {
            const i32 *row = job->tables + (set * ROWS + row_of(class)) * TOKENS;
            Spans *found = &token_spans[set][class];
            for (u32 k = 0, start = 0; k < TOKENS; start += row[k++]) found->starts[k] = (i32)start - (1 << 15), found->spans[k] = start | (u32)row[k] << SPAN_BITS;
        }
}

typedef struct {
    u64 states[STATES];
    u32 turn;   // tokens so far
    u32 bits;   // raw bits so far
    u8 *at;     // the next word
    u8 *first;  // of what a writer may fill
    u8 *end;    // of the block, or of the room for it
    u32 *records;
} Streams;

INLINE u64 next_word(Streams *streams) {
    u32 word = 0;
    if (streams->at + WORD <= streams->end) __builtin_memcpy(&word, streams->at, WORD);
    streams->at += WORD;
    return word;
}

// What is left of a state that a token was taken from.
INLINE u64 after_token(Streams *streams, u64 state, u32 span) {
    state = (span >> SPAN_BITS) * (state >> SPAN_BITS) + (state & (ONE - 1)) - (span & (ONE - 1));
    if (!(state >> 32)) {
        GUESSED;
        state = state << 32 | next_word(streams);
    }
    return state;
}

INLINE i32 take_token(Streams *streams, u64 *state, const Spans *spans) {
    v128_t point = wasm_i16x8_splat((i16)(*state ^ 1 << 15));
    v128_t beyond = wasm_i8x16_narrow_i16x8(wasm_i16x8_gt(wasm_v128_load(spans->starts), point), wasm_i16x8_gt(wasm_v128_load(spans->starts + 8), point));
    i32 token = TOKENS - 1 - __builtin_popcount(wasm_i8x16_bitmask(beyond));
    *state = after_token(streams, *state, spans->spans[token]);
    return token;
}

// The span of a flag that is 1 with probability p of 2^16.
INLINE u32 flag_span(i32 p, i32 flag) {
    u32 zeros = ONE - clipped(p, 1, ONE - 1);
    return flag ? zeros | (ONE - zeros) << SPAN_BITS : zeros << SPAN_BITS;
}

INLINE i32 take_flag(Streams *streams, u64 *state, i32 p) {
    i32 flag = (i32)(*state & (ONE - 1)) >= ONE - clipped(p, 1, ONE - 1);
    *state = after_token(streams, *state, flag_span(p, flag));
    return flag;
}

// Tokens of values with these classes. States are kept in registers, in the order of their turns.
APART void read_tokens(Streams *outer, i32 set, const u8 *classes, i32 count, u8 *tokens) {
    Streams streams = *outer;
    const Spans *spans = token_spans[set];
    u64 a = streams.states[streams.turn % STATES], b = streams.states[(streams.turn + 1) % STATES];
    u64 c = streams.states[(streams.turn + 2) % STATES], d = streams.states[(streams.turn + 3) % STATES];
    i32 k = 0;
    for (; k + STATES <= count; k += STATES) {
        tokens[k] = take_token(&streams, &a, spans + classes[k]), tokens[k + 1] = take_token(&streams, &b, spans + classes[k + 1]);
        tokens[k + 2] = take_token(&streams, &c, spans + classes[k + 2]), tokens[k + 3] = take_token(&streams, &d, spans + classes[k + 3]);
    }
    if (k < count) tokens[k] = take_token(&streams, &a, spans + classes[k]);
    if (k + 1 < count) tokens[k + 1] = take_token(&streams, &b, spans + classes[k + 1]);
    if (k + 2 < count) tokens[k + 2] = take_token(&streams, &c, spans + classes[k + 2]);
    streams.states[streams.turn % STATES] = a, streams.states[(streams.turn + 1) % STATES] = b;
    streams.states[(streams.turn + 2) % STATES] = c, streams.states[(streams.turn + 3) % STATES] = d;
    streams.turn += count;
    *outer = streams;
}

INLINE void note_token(Streams *streams, u32 span) { streams->records[streams->turn++] = span; }

// Raw bits, of which the last byte of a block has the first ones, the lowest first. Beyond a block all are 0.
INLINE i32 read_raw(Streams *streams) {
    u32 at = streams->bits++, back = (at >> 3) + 1;
    return back > (u32)(streams->end - streams->first) ? 0 : streams->end[-(i32)back] >> (at & 7) & 1;
}

INLINE void write_raw(Streams *streams, i32 bit) {
    u32 at = streams->bits++, back = (at >> 3) + 1;
    if (back > (u32)(streams->end - streams->first)) return;
    u8 *byte = streams->end - back;
    *byte = (at & 7 ? *byte : 0) | bit << (at & 7);
}

// No writer begins with a smaller state: with it the same tokens would have another block.
static Streams open_to_read(u8 *first, u8 *end, i32 *damaged) {
    Streams streams = {.at = first, .first = first, .end = end};
    for (i32 k = 0; k < STATES; k++) {
        u64 low = next_word(&streams);
        streams.states[k] = low | next_word(&streams) << 32;
        *damaged |= streams.states[k] < STATE_START;
    }
    return streams;
}

// Whether everything ends where it should.
static i32 ended_well(const Streams *streams) {
    u32 raw = (streams->bits + 7) / 8;
    i32 well = streams->at + raw == streams->end;
    for (i32 k = 0; k < STATES; k++) well &= streams->states[k] == STATE_START;
    return well && !(streams->bits % 8 && streams->end[-(i32)raw] >> streams->bits % 8);
}

// Put a word before all others, if there is room. Returns how far back from the end it begins.
INLINE u32 put_word(const Streams *streams, u32 back, u32 word) {
    back += WORD;
    if (back <= (u32)(streams->end - streams->first)) __builtin_memcpy(streams->end - back, &word, WORD);
    return back;
}

// Code what was noted, from the last to the first, before the raw bits. Returns how many bytes there are in all; they
// are moved to the beginning, if there was room for them.
static u32 close_writing(Streams *streams) {
    u32 back = (streams->bits + 7) / 8;
    u64 *states = streams->states;
    for (i32 k = 0; k < STATES; k++) states[k] = STATE_START;
    for (u32 k = streams->turn; k-- > 0;) {
        u64 state = states[k % STATES], length = streams->records[k] >> SPAN_BITS, start = streams->records[k] & (ONE - 1);
        if (state >= length << 48) back = put_word(streams, back, state), state >>= 32;
        states[k % STATES] = (state / length << SPAN_BITS) + state % length + start;
    }
    for (i32 k = STATES - 1; k >= 0; k--) back = put_word(streams, back, states[k] >> 32), back = put_word(streams, back, states[k]);
    if (back <= (u32)(streams->end - streams->first)) __builtin_memmove(streams->first, streams->end - back, back);
    return back;
}
