// Written by `make kernel` from the list in codec/kernel_job.py: change it there.
//
// The kernel works on `the_job`; Python finds it through `job`, and compares `layout` with its own list.

#include "../../kernel/types.h"

enum {
    DECODE = 0,
    DECIDE = 1,
    REPLAY = 2,
    TABLED = 4,
    GRADES = 16,
    FAMILIES = 3,
    ROWS = 48,
    TOKENS = 16,
    SETS = 12,
    CYCLE = 4,
    CLASSES = 112,
    CODES = 256,
    UNIT = 1024,
    CHUNK = 512,
    FINENESSES = 4,
    FLAG_FEATURES = 5,
    LOWEST_FEATURES = 5,
    LOG_PRICES = 64,
    PRICE_SHIFT = 4,
    LARGEST_TILE = 32,
    COLORS = 4,
    SCALE_BITS = 6,
    REACH = 4,
    LAP_BITS = 14,
    SUBPIXEL = 8,
    PAIRS = 6,
    LEVELS = 8,
    RESTORE_BITS = 8,
    LINES = 24,
    WINDOW = 25,
    FLATNESS = 800000,
    DARKEST = -1024,
    BRIGHTEST = 3071,
    SLOPE_LIMIT = 1024,
    FOLLOW_SHIFT = 12,
    FOLLOW_LIMIT = 4095,
    INPUTS = 4,
    MAPS = 16,
    PHASES = 4,
    LEARNED_MIDDLE = 1024,
    MOST_CHANGE = 16383,
    HELD = 4,
    HELD_LINES = 12,
    MOST_INNER = 3,
    MARGIN_PLACES = 8,
};

typedef struct {
    i32 start;
    i32 stop;
    i32 color;
    i32 zone;
    i32 opens;
    i32 before;
    i32 before_stop;
    i32 first;
    i32 sights[2];
    i32 sights_stop[2];
} Step;

typedef struct {
    i32 count;
    i32 fineness;
} Level;

typedef struct {
    i32 place;
    i32 down;
    i32 right;
    i32 left;
    i32 above;
} Region;

typedef struct {
    i32 axis;
    i32 channel;
    i32 sign_spot;
    i32 rows[7];
} Near;

typedef struct {
    i32 at[4];
    i32 weight[4];
} Edge;

typedef struct {
    i32 place;
    i32 class;
    i64 symbol;
} Hit;

typedef struct {
    i32 height;
    i32 width;
    i32 down;
    i32 right;
    i32 place;
    i32 stride;
} Shape;

typedef struct {
    i32 mode;                    // DECODE, DECIDE or REPLAY
    i32 symbols;                 // whether symbols go out in place of the values that they stand for
    i32 rows;                    // components, in the scan order
    i32 size;                    // places on the canvas of tiles
    i32 room;                    // the size in whole vectors
    i32 stride;                  // places from a tile to the one below
    i32 colored;                 // the first row of color
    i32 channels;
    i32 zones;
    u32 capacity;                // of `bytes`
    u32 length;                  // of the block, out
    i32 damaged;                 // out
    i32 wide;                    // out: a value is too large for `tiles`, so no pictures were made
    i32 model;                   // what values are predicted from
    i32 rich;                    // whether from more than the first model has
    i32 led;                     // whether color is predicted from brightness
    i32 edge_room;               // numbers of the borders of a tile, 0 where no sign is predicted from them
    i32 direct;                  // whether values go to `tiles` only
    i32 step_count;
    i32 level_count;
    i32 even_count;              // tiles of the first phase
    i32 odd_count;               // tiles of the second phase
    i32 grades;                  // 1 where all regions have the same step
    i32 region_count;
    const Region *regions;
    const i32 *phases;           // places of the even tiles, then of the odd ones
    const Level *levels;
    const i32 *level_places;     // one after another
    const i32 *level_around;     // four for each place
    const Step *steps;
    const i32 *sights;           // (kind, row) of each sight
    const i32 *looks;            // (2 rows + 1,) where the looks of a row and phase begin
    const i32 *look_pairs;       // the pair of sights of each look, from the first of step and phase
    const Near *near;            // (rows,)
    const Edge *row_edges;       // (rows,)
    const i32 *shares;           // (rows,) how far a component of color follows brightness, in 1/64
    const u8 *inside;            // (size,) whether there is a tile
    const i32 *lowest_rows;      // (channels,)
    const i16 *look_weights;     // two for each look
    const u32 *bases;            // (rows, 2)
    const u8 *maps;              // (rows, CODES)
    const double *quanta;        // (grades, rows) quantiser steps
    const u8 *whole;             // (grades, rows) whether values are whole multiples of their step
    const double *heed;          // (grades, rows) what an error of a squared step counts
    const double *expected;      // (rows,)
    const i64 *lowest_priors;    // (channels, FINENESSES)
    const i64 *centers;          // (channels,)
    const i64 *flag_weights;     // (steps, 2, FLAG_FEATURES)
    const i64 *lowest_weights;   // (2, LOWEST_FEATURES)
    i32 sets;                    // of tables
    const u8 *own_set;           // (rows,) the set of each component, its family where there is learning
    const i32 *tables;           // (sets, ROWS, TOKENS)
    const i32 *flag_tables;      // (CLASSES, 2)
    const i32 *offsets;          // (CLASSES, 4)
    const double *prices;        // (FAMILIES, CLASSES, TOKENS) squared steps that a token costs
    const double *log_prices;    // (LOG_PRICES,), the first is the price of one bit
    const double *bit_prices;    // of a bit, by its probability >> PRICE_SHIFT
    double *data;                // (rows, size) coefficients or symbols in, values or symbols out
    u8 *grade;                   // (size,) in and out
    u8 *wanted;                  // (zones, size) flags in
    u8 *opened;                  // (zones, size) flags out
    u16 *own;                    // (rows + 1, size) magnitudes; the last are zeros
    u8 *small;                   // (rows + 1, size) magnitudes up to 15
    u8 *around;                  // (rows + 1, size) their sums over the four tiles beside
    i8 *signs;                   // (rows, size)
    u8 *busy;                    // (2, size) how much a tile holds so far
    double *low;                 // (channels, size)
    i32 *totals;                 // (size,) what a tile holds in the rows that its flag looks at
    double *worth;               // (3, size)
    u8 *classes;                 // (most rows of a step, room) of the values of its rows
    u8 *closest;                 // (size,) what surrounds the values of a row
    u8 *crowded;                 // (size,) what surrounds the values of a row
    i8 *turns;                   // (size,) the signs beside them
    i32 *spots;                  // (CHUNK, 8) values of a row with what predicts them
    u32 *placed;                 // counters of the first stages by component and class: (rows, 16, 2)
    u32 *tall;                   // counters of the later stages by component: (rows, TOKENS - 1)
    i32 *light;                  // (colored, size) values of the first channel, if colors are led by it
    i32 *lit;                    // (colored, size) where they are not 0, by phase
    i32 *lit_counts;             // (colored, 2)
    i32 *when_found;             // (size,) in which step and phase slopes were found
    double *together;            // (channels, size, 2) sums of squares, and of products with a color
    i32 *slopes;                 // (channels, size) how much of a color goes with brightness
    double *fit;                 // (rows, 2) out: coefficients times what brightness says, squares of this
    i32 *guesses;                // (size,) of the values of a row
    i32 *edges;                  // (edge_room, size) samples along the borders of tiles
    u32 *records;                // (values and flags,) what is written when all is known, without learning
    i32 counting;                // whether tokens are counted
    u32 *counts;                 // (rows, ROWS, TOKENS) out: tokens of each component by row of the tables
    Hit *hits;                   // (room,) what was coded in a row and is not zero
    i16 *seen;                   // (most pairs of a step, CHUNK, 2)
    i32 *live;                   // (4, size)
    u8 *bytes;                   // the block
    i32 picture_count;           // 0 for a job on coefficients: what follows is then not read
    i32 side;                    // of a tile
    i32 apart;                   // numbers of `tiles` from a component to the next
    i32 colors;
    i32 lapped;
    i32 restored;                // 0 without the filter, 1 by brightness, 2 also between channels
    i32 bound;                   // of what the filter knows of differences within it, 0 for nothing
    i32 networked;               // layers of the network before the filter from maps to maps, 0 for no network
    i32 passes;                  // how often an encoder codes pictures, each time by what came back the time before
    i32 push;                    // how much of what the filter added is taken off what is wanted, in 1/8
    i32 basis_bits;
    const Shape *shapes;
    const i32 *indices;          // (rows, 3)
    const double *factors;       // matrices of analysis: down, across, colors
    const double *factors_back;  // matrices of synthesis
    const double *lap_before;    // (2, 4, 4) even and odd halves
    const double *lap_after;     // (2, 4, 4)
    const i32 *borders;          // of the filter's classes
    const i32 *weights;          // of the filter, for each class
    const i32 *mixing;           // of the filter, between channels
    const i16 *network;          // its numbers
    const i32 *scales;           // (grades,) steps as the network knows them
    const i32 *inverses;         // (grades,) of these
    const u8 *pixels;            // of all pictures, in
    u8 *decoded;                 // pixels out
    double *aims;                // (rows, size) coefficients of the pictures, where there are several passes
    i64 *errors;                 // (pictures,) squared, out
    i32 *tiles;                  // (colors, side, side, apart) values by channel, column, row and tile
    u8 *touched;                 // (colors, side, side) whether any of them is written
    double *planes;              // samples of one picture
    i16 *shorts;                 // planes of the filter, and two lines
    i32 *ints;                   // lines of the filter
    i16 *layers;                 // lines of samples and rows of the network
} Job;

_Static_assert(offsetof(Job, mode) == 0, "as in Python");
_Static_assert(offsetof(Job, symbols) == 4, "as in Python");
_Static_assert(offsetof(Job, rows) == 8, "as in Python");
_Static_assert(offsetof(Job, size) == 12, "as in Python");
_Static_assert(offsetof(Job, room) == 16, "as in Python");
_Static_assert(offsetof(Job, stride) == 20, "as in Python");
_Static_assert(offsetof(Job, colored) == 24, "as in Python");
_Static_assert(offsetof(Job, channels) == 28, "as in Python");
_Static_assert(offsetof(Job, zones) == 32, "as in Python");
_Static_assert(offsetof(Job, capacity) == 36, "as in Python");
_Static_assert(offsetof(Job, length) == 40, "as in Python");
_Static_assert(offsetof(Job, damaged) == 44, "as in Python");
_Static_assert(offsetof(Job, wide) == 48, "as in Python");
_Static_assert(offsetof(Job, model) == 52, "as in Python");
_Static_assert(offsetof(Job, rich) == 56, "as in Python");
_Static_assert(offsetof(Job, led) == 60, "as in Python");
_Static_assert(offsetof(Job, edge_room) == 64, "as in Python");
_Static_assert(offsetof(Job, direct) == 68, "as in Python");
_Static_assert(offsetof(Job, step_count) == 72, "as in Python");
_Static_assert(offsetof(Job, level_count) == 76, "as in Python");
_Static_assert(offsetof(Job, even_count) == 80, "as in Python");
_Static_assert(offsetof(Job, odd_count) == 84, "as in Python");
_Static_assert(offsetof(Job, grades) == 88, "as in Python");
_Static_assert(offsetof(Job, region_count) == 92, "as in Python");
_Static_assert(offsetof(Job, regions) == 96, "as in Python");
_Static_assert(offsetof(Job, phases) == 100, "as in Python");
_Static_assert(offsetof(Job, levels) == 104, "as in Python");
_Static_assert(offsetof(Job, level_places) == 108, "as in Python");
_Static_assert(offsetof(Job, level_around) == 112, "as in Python");
_Static_assert(offsetof(Job, steps) == 116, "as in Python");
_Static_assert(offsetof(Job, sights) == 120, "as in Python");
_Static_assert(offsetof(Job, looks) == 124, "as in Python");
_Static_assert(offsetof(Job, look_pairs) == 128, "as in Python");
_Static_assert(offsetof(Job, near) == 132, "as in Python");
_Static_assert(offsetof(Job, row_edges) == 136, "as in Python");
_Static_assert(offsetof(Job, shares) == 140, "as in Python");
_Static_assert(offsetof(Job, inside) == 144, "as in Python");
_Static_assert(offsetof(Job, lowest_rows) == 148, "as in Python");
_Static_assert(offsetof(Job, look_weights) == 152, "as in Python");
_Static_assert(offsetof(Job, bases) == 156, "as in Python");
_Static_assert(offsetof(Job, maps) == 160, "as in Python");
_Static_assert(offsetof(Job, quanta) == 164, "as in Python");
_Static_assert(offsetof(Job, whole) == 168, "as in Python");
_Static_assert(offsetof(Job, heed) == 172, "as in Python");
_Static_assert(offsetof(Job, expected) == 176, "as in Python");
_Static_assert(offsetof(Job, lowest_priors) == 180, "as in Python");
_Static_assert(offsetof(Job, centers) == 184, "as in Python");
_Static_assert(offsetof(Job, flag_weights) == 188, "as in Python");
_Static_assert(offsetof(Job, lowest_weights) == 192, "as in Python");
_Static_assert(offsetof(Job, sets) == 196, "as in Python");
_Static_assert(offsetof(Job, own_set) == 200, "as in Python");
_Static_assert(offsetof(Job, tables) == 204, "as in Python");
_Static_assert(offsetof(Job, flag_tables) == 208, "as in Python");
_Static_assert(offsetof(Job, offsets) == 212, "as in Python");
_Static_assert(offsetof(Job, prices) == 216, "as in Python");
_Static_assert(offsetof(Job, log_prices) == 220, "as in Python");
_Static_assert(offsetof(Job, bit_prices) == 224, "as in Python");
_Static_assert(offsetof(Job, data) == 228, "as in Python");
_Static_assert(offsetof(Job, grade) == 232, "as in Python");
_Static_assert(offsetof(Job, wanted) == 236, "as in Python");
_Static_assert(offsetof(Job, opened) == 240, "as in Python");
_Static_assert(offsetof(Job, own) == 244, "as in Python");
_Static_assert(offsetof(Job, small) == 248, "as in Python");
_Static_assert(offsetof(Job, around) == 252, "as in Python");
_Static_assert(offsetof(Job, signs) == 256, "as in Python");
_Static_assert(offsetof(Job, busy) == 260, "as in Python");
_Static_assert(offsetof(Job, low) == 264, "as in Python");
_Static_assert(offsetof(Job, totals) == 268, "as in Python");
_Static_assert(offsetof(Job, worth) == 272, "as in Python");
_Static_assert(offsetof(Job, classes) == 276, "as in Python");
_Static_assert(offsetof(Job, closest) == 280, "as in Python");
_Static_assert(offsetof(Job, crowded) == 284, "as in Python");
_Static_assert(offsetof(Job, turns) == 288, "as in Python");
_Static_assert(offsetof(Job, spots) == 292, "as in Python");
_Static_assert(offsetof(Job, placed) == 296, "as in Python");
_Static_assert(offsetof(Job, tall) == 300, "as in Python");
_Static_assert(offsetof(Job, light) == 304, "as in Python");
_Static_assert(offsetof(Job, lit) == 308, "as in Python");
_Static_assert(offsetof(Job, lit_counts) == 312, "as in Python");
_Static_assert(offsetof(Job, when_found) == 316, "as in Python");
_Static_assert(offsetof(Job, together) == 320, "as in Python");
_Static_assert(offsetof(Job, slopes) == 324, "as in Python");
_Static_assert(offsetof(Job, fit) == 328, "as in Python");
_Static_assert(offsetof(Job, guesses) == 332, "as in Python");
_Static_assert(offsetof(Job, edges) == 336, "as in Python");
_Static_assert(offsetof(Job, records) == 340, "as in Python");
_Static_assert(offsetof(Job, counting) == 344, "as in Python");
_Static_assert(offsetof(Job, counts) == 348, "as in Python");
_Static_assert(offsetof(Job, hits) == 352, "as in Python");
_Static_assert(offsetof(Job, seen) == 356, "as in Python");
_Static_assert(offsetof(Job, live) == 360, "as in Python");
_Static_assert(offsetof(Job, bytes) == 364, "as in Python");
_Static_assert(offsetof(Job, picture_count) == 368, "as in Python");
_Static_assert(offsetof(Job, side) == 372, "as in Python");
_Static_assert(offsetof(Job, apart) == 376, "as in Python");
_Static_assert(offsetof(Job, colors) == 380, "as in Python");
_Static_assert(offsetof(Job, lapped) == 384, "as in Python");
_Static_assert(offsetof(Job, restored) == 388, "as in Python");
_Static_assert(offsetof(Job, bound) == 392, "as in Python");
_Static_assert(offsetof(Job, networked) == 396, "as in Python");
_Static_assert(offsetof(Job, passes) == 400, "as in Python");
_Static_assert(offsetof(Job, push) == 404, "as in Python");
_Static_assert(offsetof(Job, basis_bits) == 408, "as in Python");
_Static_assert(offsetof(Job, shapes) == 412, "as in Python");
_Static_assert(offsetof(Job, indices) == 416, "as in Python");
_Static_assert(offsetof(Job, factors) == 420, "as in Python");
_Static_assert(offsetof(Job, factors_back) == 424, "as in Python");
_Static_assert(offsetof(Job, lap_before) == 428, "as in Python");
_Static_assert(offsetof(Job, lap_after) == 432, "as in Python");
_Static_assert(offsetof(Job, borders) == 436, "as in Python");
_Static_assert(offsetof(Job, weights) == 440, "as in Python");
_Static_assert(offsetof(Job, mixing) == 444, "as in Python");
_Static_assert(offsetof(Job, network) == 448, "as in Python");
_Static_assert(offsetof(Job, scales) == 452, "as in Python");
_Static_assert(offsetof(Job, inverses) == 456, "as in Python");
_Static_assert(offsetof(Job, pixels) == 460, "as in Python");
_Static_assert(offsetof(Job, decoded) == 464, "as in Python");
_Static_assert(offsetof(Job, aims) == 468, "as in Python");
_Static_assert(offsetof(Job, errors) == 472, "as in Python");
_Static_assert(offsetof(Job, tiles) == 476, "as in Python");
_Static_assert(offsetof(Job, touched) == 480, "as in Python");
_Static_assert(offsetof(Job, planes) == 484, "as in Python");
_Static_assert(offsetof(Job, shorts) == 488, "as in Python");
_Static_assert(offsetof(Job, ints) == 492, "as in Python");
_Static_assert(offsetof(Job, layers) == 496, "as in Python");
_Static_assert(sizeof(Job) == 500, "as in Python");
_Static_assert(sizeof(Step) == 48, "as in Python");
_Static_assert(sizeof(Level) == 8, "as in Python");
_Static_assert(sizeof(Region) == 20, "as in Python");
_Static_assert(sizeof(Near) == 40, "as in Python");
_Static_assert(sizeof(Edge) == 32, "as in Python");
_Static_assert(sizeof(Hit) == 16, "as in Python");
_Static_assert(sizeof(Shape) == 24, "as in Python");

static Job the_job;

EXPORT(job) Job *job_address(void) { return &the_job; }
EXPORT(layout) i32 job_layout(void) { return 0x5293ba78; }
EXPORT(source) i64 source_digest(void) { return SOURCE; }  // the first digits, given by the build
