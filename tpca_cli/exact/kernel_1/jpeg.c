// JPEG files to bytes and back, bit for bit.
//
// A job holds the files of one block (or, to decode, their skeletons). Each is taken apart by itself; the
// coefficients of all of them are coded one after another with one set of counters.

#include "jpeg_job.h"

#include "jpeg_model.h"

EXPORT(run) void run(void) {
    Job *job = &the_job;
    make_tables();
    const u8 *in = job->input;
    u8 *out = job->output, *end = out + job->output_room;
    if (job->mode != PUT_TOGETHER) {
        i16 *room = job->coefficients;
        i64 left = job->room;
        if (job->mode == TAKE_APART) start_learning(jpeg_learner, job->priors, job->model);
        range = open_range(job->coded, job->coded_room, 1);
        for (i32 k = 0; k < job->files; k++) {
            Item *item = job->items + k;
            u8 *start = out;
            out = walk(PARSE, in, in + item->length, out, end, room, left);
            in += item->length;
            item->foreign = file.foreign, item->padding = file.padding;
            if (file.foreign) out = start;
            else if (job->mode == TAKE_APART) code_file();
            item->skeleton = out - start;
        }
        job->coded_length = close_range(&range, job->coded, &job->damaged);
        job->damaged |= job->coded_length > job->coded_room;
        if (job->tell) tell_learned(jpeg_learner, job->learned);
        return;
    }
    start_learning(jpeg_learner, job->priors, job->model);
    range = open_range(job->coded, job->coded_length, 0);
    for (i32 k = 0; k < job->files && !job->damaged; k++) {
        Item *item = job->items + k;
        u8 *start = out;
        file.padding = item->padding;
        walk(HEADERS, in, in + item->skeleton, out, end, job->coefficients, job->room);
        if (!file.foreign) {
            code_file();
            file.padding = item->padding;
            out = walk(REBUILD, in, in + item->skeleton, out, end, job->coefficients, job->room);
        }
        in += item->skeleton;
        item->foreign = file.foreign, item->length = out - start;
        job->damaged |= file.foreign;
    }
    if (!job->damaged) job->damaged = close_range(&range, job->coded, &job->damaged) != (u32)job->coded_length;
}
