/* All stages of a layout, simulated. */
#include "base/memory.h"
#include "base/thread.h"
#include "layout/memory_simulate.h"

#include <stdlib.h>

/* Ranks of a stage that are tried in the framework. */
enum { TRIED = 8 };

struct work {
    const struct erg_memory_request *request;
    const struct erg_memory_sizes *sizes;
    struct erg_memory_result *result;
};

/* The context rank whose halves make the largest partial gradients: one of the middle. */
static long middle_rank(long context)
{
    long best = 0, most = 0;
    for (long rank = 0; rank < context; rank++) {
        long first = 2 * rank + 1, second = 2 * (context - rank);
        long part = first < second ? first : second;
        if (part > most) {
            most = part;
            best = rank;
        }
    }
    return best;
}

/* The ranks whose moments waste most by the closed form, the worst first; how many. */
static size_t worst_ranks(const struct work *work, long stage, long *ranks)
{
    const struct erg_layout *layout = work->request->layout;
    long count = layout->data * layout->context;
    int64_t *rounding = erg_xcalloc((size_t)count, sizeof *rounding);
    size_t found = 0;
    erg_memory_moments_rounding(work->request, work->sizes, stage, rounding);
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

static int simulate_stage(void *context, size_t index, struct erg_error *err)
{
    (void)err;
    const struct work *work = context;
    long stage = (long)index, ranks[TRIED] = {middle_rank(work->request->layout->context)};
    size_t count = 1;
    if (work->request->accounting == ERG_MEMORY_FRAMEWORK)
        count = worst_ranks(work, stage, ranks);
    for (size_t i = 0; i < count; i++) {
        struct erg_memory_stage found;
        struct erg_memory_course course = {0};
        erg_memory_simulate_rank(&found, &course, work->request, work->sizes, stage, ranks[i],
                                 work->result->microbatches);
        bool worse = found.peak_bytes > work->result->stages[stage].peak_bytes;
        free(worse ? work->result->courses[stage].steps : course.steps);
        if (worse) {
            work->result->stages[stage] = found;
            work->result->courses[stage] = course;
        }
    }
    return 0;
}

int erg_memory_simulate(struct erg_memory_result *result, const struct erg_memory_request *request,
                        struct erg_error *err)
{
    const struct erg_layout *layout = request->layout;
    struct erg_memory_sizes sizes;
    erg_memory_sizes_init(&sizes, request->model, layout->tensor, layout->context,
                          layout->microbatch, layout->sequence);
    *result = (struct erg_memory_result){.count = layout->pipeline,
                                         .microbatches = erg_memory_microbatches(layout)};
    result->stages = erg_xcalloc((size_t)result->count, sizeof *result->stages);
    result->courses = erg_xcalloc((size_t)result->count, sizeof *result->courses);
    struct work work = {request, &sizes, result};
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
