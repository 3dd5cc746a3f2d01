// Pictures to bytes and back, every sample exactly or within a given error.

#include "pixels_job.h"

#include "pixel_model.h"

static i32 order_of(i32 channels, i32 k) {  // green first: it tells most about the others
    return channels < 3 ? k : k == 0 ? 1 : k == 1 ? 0 : k;
}

EXPORT(run) void run(void) {
    Job *job = &the_job;
    make_tables();
    start_learning(pixel_learner, job->priors, job->model);
    __builtin_memset(biases, 0, sizeof biases);
    __builtin_memset(overall, 0, sizeof overall);
    __builtin_memset(slow, 0, sizeof slow);
    i32 writing = job->mode == ENCODE;
    range = open_range(job->coded, writing ? job->coded_room : job->coded_length, writing);
    Depth depth = {job->peak, job->tolerance, 2 * job->tolerance + 1, most(digits_of(job->peak) - 8, 0)};
    u16 *at = job->samples;
    for (i32 k = 0; k < job->pictures; k++) {
        i32 height = job->shapes[2 * k], width = job->shapes[2 * k + 1], c = job->channels;
        Plane planes[MOST_PLANES];
        i32 stride = width + 2 * MARGIN, room = (height + MARGIN + 2) * stride;
        for (i32 p = 0; p < c; p++) {
            planes[p] = (Plane){height, width, stride, job->planes + p * room + MARGIN * stride + MARGIN, job->errors + p * room + MARGIN * stride + MARGIN};
            for (i32 x = 0; x < room; x++) job->planes[p * room + x] = (depth.peak + 1) / 2, job->errors[p * room + x] = 0;
            i32 channel = order_of(c, p);
            if (writing)
                for (i32 y = 0; y < height; y++) for (i32 x = 0; x < width; x++) planes[p].data[y * stride + x] = at[(y * width + x) * c + channel];
        }
        for (i32 p = 0; p < c; p++) {
            code_plane(job, planes, p, &depth);
            i32 channel = order_of(c, p);
            for (i32 y = 0; y < height; y++) for (i32 x = 0; x < width; x++) at[(y * width + x) * c + channel] = planes[p].data[y * stride + x];
        }
        at += height * width * c;
    }
    u32 length = close_range(&range, job->coded, &job->damaged);
    if (writing) {
        job->coded_length = length;
        job->damaged |= length > (u32)job->coded_room;
        if (job->tell) tell_learned(pixel_learner, job->learned);
    } else job->damaged |= length != (u32)job->coded_length;
}
