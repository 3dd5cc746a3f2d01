// Written by `make kernel` from the list in images/resize.py: change it there.
//
// The kernel works on `the_job`; Python finds it through `job`, and compares `layout` with its own list.

#include "../../kernel/types.h"

typedef struct {
    double tall;       // how much of the picture there is, in its pixels
    double wide;       // a little less than all where the last was cut
    i32 height;
    i32 width;
    i32 channels;
    i32 new_height;
    i32 new_width;
    const u8 *pixels;  // (height, width, channels), then a line
    u8 *resized;       // (new height, new width, channels)
    i16 *between;      // (new height, width, channels)
    u8 *scratch;       // the taps of every new row and column
} Job;

_Static_assert(offsetof(Job, tall) == 0, "as in Python");
_Static_assert(offsetof(Job, wide) == 8, "as in Python");
_Static_assert(offsetof(Job, height) == 16, "as in Python");
_Static_assert(offsetof(Job, width) == 20, "as in Python");
_Static_assert(offsetof(Job, channels) == 24, "as in Python");
_Static_assert(offsetof(Job, new_height) == 28, "as in Python");
_Static_assert(offsetof(Job, new_width) == 32, "as in Python");
_Static_assert(offsetof(Job, pixels) == 36, "as in Python");
_Static_assert(offsetof(Job, resized) == 40, "as in Python");
_Static_assert(offsetof(Job, between) == 44, "as in Python");
_Static_assert(offsetof(Job, scratch) == 48, "as in Python");
_Static_assert(sizeof(Job) == 56, "as in Python");

static Job the_job;

EXPORT(job) Job *job_address(void) { return &the_job; }
EXPORT(layout) i32 job_layout(void) { return 0x01a993ca; }
EXPORT(source) i64 source_digest(void) { return SOURCE; }  // the first digits, given by the build
