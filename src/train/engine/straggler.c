/* Chooses the point that a pipeline runs next. */
#include "train/engine/straggler.h"

#include "base/memory.h"
#include "plan/plan_follow.h"
#include "train/engine/ranks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/*
 * Working seconds of each stage of a pipeline, [stages]: those of its slowest rank; and the point
 * that it ran. False: unknown on a rank.
 */
static bool stage_seconds(double *seconds, size_t *point, const struct erg_layout *layout,
                          const struct erg_rank_pace *ranks, long data)
{
    bool known = true;
    for (long s = 0; s < layout->pipeline; s++)
        seconds[s] = 0;
    for (int rank = 0; rank < (int)erg_layout_gpus(layout); rank++) {
        struct erg_ranks place;
        erg_ranks_place(&place, layout, rank);
        if (place.data != data)
            continue;
        *point = (size_t)ranks[rank].point;
        known &= !isnan(ranks[rank].worked_s);
        seconds[place.stage] = fmax(seconds[place.stage], ranks[rank].worked_s);
    }
    return known;
}

/* The same as factors on the planned times at its point; returns the largest. */
static double paces_of(double *paces, const struct erg_plan *plan, const struct erg_layout *layout,
                       const struct erg_rank_pace *ranks, long data)
{
    const size_t stages = (size_t)layout->pipeline;
    const struct erg_plan_method *method = &plan->methods[plan->selected.method];
    double *planned = erg_xcalloc(stages, sizeof *planned), largest = 0;
    size_t point = 0;
    bool known = stage_seconds(paces, &point, layout, ranks, data);
    erg_plan_stage_seconds(plan, &method->points[point], planned);
    for (size_t s = 0; known && s < stages; s++) {
        paces[s] /= planned[s];
        largest = fmax(largest, paces[s]);
    }
    free(planned);
    return known ? largest : (double)NAN;
}

/*
 * The pipeline that is slowest compared with the plan, and its paces; -1: unknown. `scratch` has
 * the same size.
 */
static long find_slowest(double *paces, double *scratch, const struct erg_plan *plan,
                         const struct erg_layout *layout, const struct erg_rank_pace *ranks)
{
    double slowest = 0;
    long found = -1;
    for (long data = 0; data < layout->data; data++) {
        double pace = paces_of(scratch, plan, layout, ranks, data);
        if (isnan(pace))
            return -1;
        if (pace > slowest) {
            slowest = pace;
            found = data;
            memcpy(paces, scratch, (size_t)layout->pipeline * sizeof *paces);
        }
    }
    return found;
}

int erg_straggler_point(size_t *point, const struct erg_plan *plan, const struct erg_layout *layout,
                        const struct erg_rank_pace *ranks, long data, struct erg_error *err)
{
    const size_t stages = (size_t)layout->pipeline;
    const struct erg_plan_method *method = &plan->methods[plan->selected.method];
    double *slowest_s = erg_xcalloc(3 * stages, sizeof *slowest_s);
    double *own_s = slowest_s + stages, *planned = own_s + stages;
    struct erg_plan_lateness lateness = {.method = plan->selected.method,
                                         .chosen = plan->selected.point,
                                         .slowest_s = slowest_s,
                                         .own_s = own_s};
    int result = 0;
    bool known = stage_seconds(own_s, &lateness.running, layout, ranks, data);
    const long late = known ? find_slowest(slowest_s, planned, plan, layout, ranks) : -1;
    *point = late == data ? plan->selected.point : lateness.running;
    if (late >= 0 && late != data) {
        erg_plan_stage_seconds(plan, &method->points[plan->selected.point], planned);
        for (size_t s = 0; s < stages; s++)
            slowest_s[s] *= planned[s];
        result = erg_plan_follow(plan, &lateness, point, err);
    }
    free(slowest_s);
    return result;
}
