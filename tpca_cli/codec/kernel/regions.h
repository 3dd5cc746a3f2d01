// Regions: some tiles of a picture that share a grade, by which all their steps are multiplied.

#include "values.h"

enum { NO_GRADE = GRADES, GRADE_KINDS = GRADES + 1 };

static Counter grade_near[GRADE_KINDS * GRADE_KINDS * GRADES], grade_crowd[(2 * GRADES + 1) * GRADES];
static i32 grade_weights[GRADES][3];

// The grade of each region, in the order of the pictures: it is like those to the left and above.
static void code_grades(Job *job, Range *outer) {
    Range range = *outer;
    FILL(grade_near), FILL(grade_crowd);
    for (i32 k = 0; k < GRADES; k++) grade_weights[k][0] = 0, grade_weights[k][1] = grade_weights[k][2] = 24000;
    for (i32 r = 0; r < job->region_count; r++) {
        const Region *region = job->regions + r;
        u8 *grade = job->grade + region->place;
        i32 left = region->left ? job->grade[region->left] : NO_GRADE, above = region->above ? job->grade[region->above] : NO_GRADE;
        i32 both = left == NO_GRADE ? (above == NO_GRADE ? 2 * GRADES : 2 * above) : above == NO_GRADE ? 2 * left : left + above;
        i32 wanted = *grade, found = 0;
        while (found < job->grades - 1) {
            Counter *counters[2] = {
                grade_near + (left * GRADE_KINDS + above) * GRADES + found,
                grade_crowd + both * GRADES + found,
            };
            if (!code_mixed(&range, wanted > found, 0, counters, 2, grade_weights[found], slowness(job->rich))) break;
            found++;
        }
        for (i32 y = 0; y < region->down; y++)
            for (i32 x = 0; x < region->right; x++) grade[y * job->stride + x] = found;
    }
    *outer = range;
}
