// Written by `make kernel` from the list in exact/jpeg.py: change it there.
//
// The kernel works on `the_job`; Python finds it through `job`, and compares `layout` with its own list.

#include "../../kernel/types.h"

enum {
    TAKE_APART = 0,
    PUT_TOGETHER = 1,
    SKELETONS = 2,
    JPEG_COUNTERS = 502656,
    INPUTS = 4,
    MIXERS = 4096,
    SLOWEST = 200,
    CALM = 3,
};

typedef struct {
    i32 length;
    i32 skeleton;
    i32 padding;
    i32 foreign;
} Item;

typedef struct {
    i32 mode;           // TAKE_APART, PUT_TOGETHER or SKELETONS
    i32 files;
    Item *items;
    const u8 *input;    // files, or skeletons
    u8 *output;         // skeletons, or files
    i32 output_room;
    u8 *coded;
    i32 coded_room;
    i32 coded_length;
    i16 *coefficients;  // of one file
    i64 room;           // for so many coefficients
    i32 damaged;
    const u8 *priors;   // counters and weights to begin with
    i32 given;          // bytes of them, 0 for those that the kernel has of this model
    i32 model;          // the number of these, 0 for none
    i32 missing;        // whether it has none
    i32 tell;           // whether to say what was learned
    u8 *learned;
} Job;

_Static_assert(offsetof(Job, mode) == 0, "as in Python");
_Static_assert(offsetof(Job, files) == 4, "as in Python");
_Static_assert(offsetof(Job, items) == 8, "as in Python");
_Static_assert(offsetof(Job, input) == 12, "as in Python");
_Static_assert(offsetof(Job, output) == 16, "as in Python");
_Static_assert(offsetof(Job, output_room) == 20, "as in Python");
_Static_assert(offsetof(Job, coded) == 24, "as in Python");
_Static_assert(offsetof(Job, coded_room) == 28, "as in Python");
_Static_assert(offsetof(Job, coded_length) == 32, "as in Python");
_Static_assert(offsetof(Job, coefficients) == 36, "as in Python");
_Static_assert(offsetof(Job, room) == 40, "as in Python");
_Static_assert(offsetof(Job, damaged) == 48, "as in Python");
_Static_assert(offsetof(Job, priors) == 52, "as in Python");
_Static_assert(offsetof(Job, given) == 56, "as in Python");
_Static_assert(offsetof(Job, model) == 60, "as in Python");
_Static_assert(offsetof(Job, missing) == 64, "as in Python");
_Static_assert(offsetof(Job, tell) == 68, "as in Python");
_Static_assert(offsetof(Job, learned) == 72, "as in Python");
_Static_assert(sizeof(Job) == 80, "as in Python");
_Static_assert(sizeof(Item) == 16, "as in Python");

static Job the_job;

EXPORT(job) Job *job_address(void) { return &the_job; }
EXPORT(layout) i32 job_layout(void) { return 0x44ecd486; }
EXPORT(source) i64 source_digest(void) { return SOURCE; }  // the first digits, given by the build
