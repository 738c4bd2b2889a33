/* Simulates all stages of a layout. */
#include "layout/memory/memory_simulation.h"
#include "base/memory.h"
#include "base/thread.h"

#include <math.h>
#include <stdlib.h>

/* Number of ranks of a stage to simulate in the framework. */
enum { TRIED = 8 };

/* The ranks whose moments waste the most by the closed form, worst first; returns their number. */
static size_t worst_ranks(const struct erg_memory_request *request,
                          const struct erg_memory_sizes *sizes, long stage, long *ranks)
{
    long count = request->layout->data * request->layout->context;
    int64_t *rounding = erg_xcalloc((size_t)count, sizeof *rounding);
    size_t found = 0;
    erg_memory_moments_rounding(request, sizes, stage, rounding);
    for (; found < TRIED && (long)found < count; found++) {
        long worst = 0;
        for (long rank = 0; rank < count; rank++)
            if (rounding[rank] > rounding[worst])
                worst = rank;
        ranks[found] = worst;
        rounding[worst] = -1;
    }
    free(rounding);
    return found;
}

/*
 * The worst rank, or the first one that needs more than `enough`, with its course unless `course`
 * is NULL.
 */
static void worst_of_stage(struct erg_memory_stage *worst, struct erg_memory_course *worst_course,
                           const struct erg_memory_request *request,
                           const struct erg_memory_sizes *sizes, long stage, double enough)
{
    if (request->accounting == ERG_MEMORY_STATIC) {
        erg_memory_static_closed(worst, request, sizes, stage);
        if (worst_course)
            erg_memory_static_course(worst_course, request, worst, stage,
                                     erg_memory_microbatches(request->layout));
        return;
    }
    /* The halves of the middle context rank have the largest partial gradients. */
    long ranks[TRIED] = {request->layout->context / 2};
    size_t count = 1;
    if (request->accounting == ERG_MEMORY_FRAMEWORK)
        count = worst_ranks(request, sizes, stage, ranks);
    *worst = (struct erg_memory_stage){0};
    for (size_t i = 0; i < count && worst->peak_bytes <= enough; i++) {
        struct erg_memory_stage found;
        struct erg_memory_course course = {0};
        erg_memory_simulate_rank(&found, worst_course ? &course : NULL, request, sizes, stage,
                                 ranks[i], erg_memory_microbatches(request->layout));
        if (found.peak_bytes <= worst->peak_bytes) {
            free(course.steps);
            continue;
        }
        *worst = found;
        if (worst_course) {
            free(worst_course->steps);
            *worst_course = course;
        }
    }
}

double erg_memory_stage_peak(const struct erg_memory_request *request,
                             const struct erg_memory_sizes *sizes, long stage, double enough)
{
    struct erg_memory_stage worst;
    worst_of_stage(&worst, NULL, request, sizes, stage, enough);
    return worst.peak_bytes;
}

struct simulation_work {
    const struct erg_memory_request *request;
    const struct erg_memory_sizes *sizes;
    struct erg_memory_result *result;
};

static int simulate_stage(void *context, size_t index, struct erg_error *err)
{
    (void)err;
    const struct simulation_work *work = context;
    worst_of_stage(&work->result->stages[index], &work->result->courses[index], work->request,
                   work->sizes, (long)index, INFINITY);
    return 0;
}

int erg_memory_simulate(struct erg_memory_result *result, const struct erg_memory_request *request,
                        struct erg_error *err)
{
    const struct erg_layout *layout = request->layout;
    struct erg_memory_sizes sizes;
    erg_memory_sizes_of(&sizes, request->model, layout);
    *result = (struct erg_memory_result){.count = layout->pipeline,
                                         .microbatches = erg_memory_microbatches(layout)};
    result->stages = erg_xcalloc((size_t)result->count, sizeof *result->stages);
    result->courses = erg_xcalloc((size_t)result->count, sizeof *result->courses);
    struct simulation_work work = {request, &sizes, result};
    if (erg_parallel_for((size_t)result->count, 0, simulate_stage, &work, err) != 0) {
        erg_memory_result_release(result);
        return -1;
    }
    for (long stage = 1; stage < result->count; stage++)
        if (result->stages[stage].peak_bytes > result->stages[result->worst].peak_bytes)
            result->worst = stage;
    return 0;
}

void erg_memory_result_release(struct erg_memory_result *result)
{
    for (long stage = 0; stage < result->count && result->courses; stage++)
        free(result->courses[stage].steps);
    free(result->courses);
    free(result->stages);
    *result = (struct erg_memory_result){0};
}
