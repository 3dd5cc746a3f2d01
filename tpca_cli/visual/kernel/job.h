// Written by `make kernel` from the list in visual/ssimulacra2.py: change it there.
//
// The kernel works on `the_job`; Python finds it through `job`, and compares `layout` with its own list.

#include "../../kernel/types.h"

enum {
    SCALES = 6,
    SMALLEST = 8,
    REGION_SCALES = 4,
};

typedef struct {
    i32 height;
    i32 width;
    i32 stride;           // from row to row of a plane: the width in whole vectors
    i32 channels;         // 1 or 3
    i32 scales;           // out
    const u16 *original;  // (height, width, channels)
    const u16 *decoded;   // (height, width, channels)
    const float *linear;  // light of each sample value, 0 .. 1
    float *planes;        // (2, 3, height, stride) light of both pictures
    float *rows;          // a line with margins, and eleven lines of all that is blurred
    double *sums;         // (scales, colors, 3 errors, mean and fourth power), out
    i32 region;           // pixels on the side of a region; 0: pictures are compared as a whole
    i32 regions_across;
    double *losses;       // of each region, out
} Job;

_Static_assert(offsetof(Job, height) == 0, "as in Python");
_Static_assert(offsetof(Job, width) == 4, "as in Python");
_Static_assert(offsetof(Job, stride) == 8, "as in Python");
_Static_assert(offsetof(Job, channels) == 12, "as in Python");
_Static_assert(offsetof(Job, scales) == 16, "as in Python");
_Static_assert(offsetof(Job, original) == 20, "as in Python");
_Static_assert(offsetof(Job, decoded) == 24, "as in Python");
_Static_assert(offsetof(Job, linear) == 28, "as in Python");
_Static_assert(offsetof(Job, planes) == 32, "as in Python");
_Static_assert(offsetof(Job, rows) == 36, "as in Python");
_Static_assert(offsetof(Job, sums) == 40, "as in Python");
_Static_assert(offsetof(Job, region) == 44, "as in Python");
_Static_assert(offsetof(Job, regions_across) == 48, "as in Python");
_Static_assert(offsetof(Job, losses) == 52, "as in Python");
_Static_assert(sizeof(Job) == 56, "as in Python");

static Job the_job;

EXPORT(job) Job *job_address(void) { return &the_job; }
EXPORT(layout) i32 job_layout(void) { return 0x0732c4f8; }
EXPORT(source) i64 source_digest(void) { return SOURCE; }  // the first digits, given by the build
