/* Pipeline schedules: the instructions of each stage in order, and their dependencies. */
#include "iteration/iteration.h"

#include "base/memory.h"
#include "iteration/pass_order.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

const char *const erg_direction_names[] = {"forward", "backward", NULL};

int erg_pipeline_check(const struct erg_pipeline *pipeline, struct erg_error *err)
{
    size_t stages = pipeline->stages, chunks = pipeline->chunks, count = pipeline->microbatches;
    if (stages < 1 || count < 1 || chunks < 1)
        return erg_fail(err, ERG_USAGE,
                        "A pipeline of %zu stages, %zu microbatches and %zu virtual stages per "
                        "stage is not possible: each number must be at least 1.",
                        stages, count, chunks);
    if (stages > 4096 || chunks > 4096 || count > 1000000 || stages * chunks * count > 20000000)
        return erg_fail(err, ERG_USAGE,
                        "A pipeline of %zu stages, %zu microbatches and %zu virtual stages per "
                        "stage is too large: it may have at most 20 million instructions of each "
                        "direction, 4096 stages and 4096 virtual stages per stage.",
                        stages, count, chunks);
    const double *hops_s = pipeline->hop_latency_s;
    for (size_t i = 0; hops_s && i < stages; i++)
        if (!(hops_s[i] >= 0) || !(hops_s[i] <= 1e6))
            return erg_fail(err, ERG_USAGE,
                            "The point-to-point latency between stages is %g s, but must lie "
                            "between 0 and a million seconds.",
                            hops_s[i]);
    if (!(pipeline->blocking_power_w >= 0) || !(pipeline->blocking_power_w <= 1e6))
        return erg_fail(err, ERG_USAGE,
                        "The blocking power is %g W, but must lie between 0 and a million watts.",
                        pipeline->blocking_power_w);
    return 0;
}

static struct erg_instruction nth(const struct erg_pass_order *order, size_t stage,
                                  enum erg_direction direction, size_t i)
{
    const struct erg_pass pass = erg_pass_order_nth(order, direction == ERG_BACKWARD, i);
    return (struct erg_instruction){.stage = (uint32_t)stage,
                                    .chunk = (uint32_t)pass.chunk,
                                    .microbatch = (uint32_t)pass.microbatch,
                                    .direction = direction};
}

void erg_schedule_stage(struct erg_instruction *next, size_t stage,
                        const struct erg_pass_order *order)
{
    size_t all = erg_pass_order_count(order), forward = 0, backward = 0;
    for (size_t warm = erg_pass_order_warmup(order, stage); forward < warm; forward++)
        *next++ = nth(order, stage, ERG_FORWARD, forward);
    for (; forward < all; forward++, backward++) {
        *next++ = nth(order, stage, ERG_FORWARD, forward);
        *next++ = nth(order, stage, ERG_BACKWARD, backward);
    }
    for (; backward < all; backward++)
        *next++ = nth(order, stage, ERG_BACKWARD, backward);
}

static void connect(struct erg_schedule *schedule)
{
    const struct erg_pipeline *pipeline = &schedule->pipeline;
    size_t virtual_stages = pipeline->stages * pipeline->chunks;
    size_t microbatches = pipeline->microbatches;
    /* place[(virtual stage * 2 + direction) * microbatches + microbatch] */
    uint32_t *place = erg_xcalloc(2 * virtual_stages * microbatches, sizeof *place);
    for (size_t i = 0; i < schedule->count; i++) {
        const struct erg_instruction *instruction = &schedule->instructions[i];
        place[erg_table_index(pipeline, instruction) * microbatches + instruction->microbatch] =
            (uint32_t)i;
        size_t position = i % schedule->per_stage;
        schedule->before[i][0] = position ? (uint32_t)i - 1 : ERG_NONE;
        schedule->after[i][0] = position + 1 < schedule->per_stage ? (uint32_t)i + 1 : ERG_NONE;
        schedule->before[i][1] = schedule->after[i][1] = ERG_NONE;
    }
    for (size_t m = 0; m < microbatches; m++) {
        uint32_t last = ERG_NONE; /* down the virtual stages, then back up */
        for (size_t step = 0; step < 2 * virtual_stages; step++) {
            size_t table =
                step < virtual_stages ? 2 * step : 2 * (2 * virtual_stages - 1 - step) + 1;
            uint32_t here = place[table * microbatches + m];
            schedule->before[here][1] = last;
            if (last != ERG_NONE)
                schedule->after[last][1] = here;
            last = here;
        }
    }
    free(place);
}

static void sort_topologically(struct erg_schedule *schedule)
{
    uint8_t *waiting = erg_xcalloc(schedule->count, sizeof *waiting);
    size_t done = 0;
    for (size_t i = 0; i < schedule->count; i++) {
        waiting[i] =
            (uint8_t)((schedule->before[i][0] != ERG_NONE) + (schedule->before[i][1] != ERG_NONE));
        if (!waiting[i])
            schedule->order[done++] = (uint32_t)i;
    }
    for (size_t next = 0; next < done; next++)
        for (int k = 0; k < 2; k++) {
            uint32_t after = schedule->after[schedule->order[next]][k];
            if (after != ERG_NONE && !--waiting[after])
                schedule->order[done++] = after;
        }
    assert(done == schedule->count && "a schedule never waits for itself");
    free(waiting);
}

static double *copy_hops(const struct erg_pipeline *pipeline)
{
    size_t bytes = pipeline->stages * sizeof *pipeline->hop_latency_s;
    return pipeline->hop_latency_s ? memcpy(erg_xmalloc(bytes), pipeline->hop_latency_s, bytes)
                                   : NULL;
}

int erg_schedule_init(struct erg_schedule *schedule, const struct erg_pipeline *pipeline,
                      struct erg_error *err)
{
    *schedule = (struct erg_schedule){0};
    if (erg_pipeline_check(pipeline, err) != 0)
        return -1;
    schedule->pipeline = *pipeline;
    schedule->per_stage = 2 * pipeline->microbatches * pipeline->chunks;
    schedule->count = schedule->per_stage * pipeline->stages;
    schedule->instructions = erg_xcalloc(schedule->count, sizeof *schedule->instructions);
    schedule->before = erg_xcalloc(schedule->count, sizeof *schedule->before);
    schedule->after = erg_xcalloc(schedule->count, sizeof *schedule->after);
    schedule->order = erg_xcalloc(schedule->count, sizeof *schedule->order);
    schedule->hop_latency_s = copy_hops(pipeline);
    schedule->pipeline.hop_latency_s = schedule->hop_latency_s;
    const struct erg_pass_order order =
        erg_pass_order_of(pipeline->stages, pipeline->chunks, pipeline->microbatches);
    for (size_t stage = 0; stage < pipeline->stages; stage++)
        erg_schedule_stage(schedule->instructions + stage * schedule->per_stage, stage, &order);
    connect(schedule);
    sort_topologically(schedule);
    return 0;
}

void erg_schedule_release(struct erg_schedule *schedule)
{
    free(schedule->instructions);
    free(schedule->before);
    free(schedule->after);
    free(schedule->order);
    free(schedule->hop_latency_s);
    *schedule = (struct erg_schedule){0};
}
