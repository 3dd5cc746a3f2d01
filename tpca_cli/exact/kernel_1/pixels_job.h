// Written by `make kernel` from the list in exact/pixels.py, FIRST_PIXELS: change it there.
//
// The kernel works on `the_job`; Python finds it through `job`, and compares `layout` with its own list.

#include "../../kernel/types.h"

enum {
    ENCODE = 0,
    DECODE = 1,
    PIXEL_COUNTERS = 233292,
    INPUTS = 6,
    MIXERS = 4096,
    CONTEXTS = 400,
    SLOT = 32,
    MARGIN = 4,
    STRIP = 8,
    MOST_TAPS = 20,
    WIDEST_PICTURE = 65535,
};

typedef struct {
    i32 mode;           // ENCODE or DECODE
    i32 pictures;
    const i32 *shapes;  // height and width of each
    i32 channels;
    i32 peak;           // the largest value of a sample
    i32 tolerance;      // the largest error of a sample
    u16 *samples;       // of all pictures; what a decoder will get, afterwards
    i32 *planes;        // of one picture, with margins
    i16 *errors;        // of its predictions
    double *strips;     // sums of the strips of a row
    u8 *coded;
    i32 coded_room;
    i32 coded_length;
    i32 damaged;
    const u8 *priors;   // counters and weights to begin with
    i32 model;          // the number of these, 0 for none
    i32 tell;           // whether to say what was learned
    u8 *learned;
} Job;

_Static_assert(offsetof(Job, mode) == 0, "as in Python");
_Static_assert(offsetof(Job, pictures) == 4, "as in Python");
_Static_assert(offsetof(Job, shapes) == 8, "as in Python");
_Static_assert(offsetof(Job, channels) == 12, "as in Python");
_Static_assert(offsetof(Job, peak) == 16, "as in Python");
_Static_assert(offsetof(Job, tolerance) == 20, "as in Python");
_Static_assert(offsetof(Job, samples) == 24, "as in Python");
_Static_assert(offsetof(Job, planes) == 28, "as in Python");
_Static_assert(offsetof(Job, errors) == 32, "as in Python");
_Static_assert(offsetof(Job, strips) == 36, "as in Python");
_Static_assert(offsetof(Job, coded) == 40, "as in Python");
_Static_assert(offsetof(Job, coded_room) == 44, "as in Python");
_Static_assert(offsetof(Job, coded_length) == 48, "as in Python");
_Static_assert(offsetof(Job, damaged) == 52, "as in Python");
_Static_assert(offsetof(Job, priors) == 56, "as in Python");
_Static_assert(offsetof(Job, model) == 60, "as in Python");
_Static_assert(offsetof(Job, tell) == 64, "as in Python");
_Static_assert(offsetof(Job, learned) == 68, "as in Python");
_Static_assert(sizeof(Job) == 72, "as in Python");

static Job the_job;

EXPORT(job) Job *job_address(void) { return &the_job; }
EXPORT(layout) i32 job_layout(void) { return 0x0e10c4b4; }
EXPORT(source) i64 source_digest(void) { return SOURCE; }  // the first digits, given by the build
