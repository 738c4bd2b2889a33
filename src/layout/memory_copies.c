#include "layout/memory_copies.h"

#include "base/memory.h"

#include <stdlib.h>

void erg_memory_copies_release(struct erg_memory_copies *copies)
{
    free(copies->items);
    free(copies->layers.backward);
    *copies = (struct erg_memory_copies){0};
}

static double later(double a, double b)
{
    return a > b ? a : b;
}

/* The copies of one stage in time. */
struct clock {
    const struct erg_memory_copies *copies;
    double now, waited;
    double *ended;           /* of each copy that was begun: when */
    double free_at[2];       /* of each direction */
    size_t begun, oldest[2]; /* of each direction, the first copy that may not be waited for yet */
};

/* Waits for what must have ended before the layer at a position runs. */
static void wait_at(struct clock *clock, size_t at)
{
    for (int in = 0; in < 2; in++)
        for (size_t *i = &clock->oldest[in]; *i < clock->begun; ++*i) {
            const struct erg_memory_copy *copy = &clock->copies->items[*i];
            if (copy->in != (in == 1))
                continue;
            if (copy->end > at)
                break;
            clock->waited += later(clock->ended[*i] - clock->now, 0);
            clock->now = later(clock->ended[*i], clock->now);
        }
}

double erg_memory_copies_wait(const struct erg_memory_copies *copies, double forward_s,
                              double backward_s, double bytes_per_s)
{
    struct clock clock = {.copies = copies,
                          .ended = erg_xcalloc(copies->count + 1, sizeof *clock.ended)};
    for (size_t at = 0; at <= copies->layers.count; at++) {
        wait_at(&clock, at);
        for (; clock.begun < copies->count && copies->items[clock.begun].begin <= at;
             clock.begun++) {
            const struct erg_memory_copy *copy = &copies->items[clock.begun];
            double start = later(clock.free_at[copy->in], clock.now);
            clock.ended[clock.begun] = clock.free_at[copy->in] =
                start + (double)copy->bytes / bytes_per_s;
        }
        wait_at(&clock, at); /* those that compute gives no time at all */
        if (at < copies->layers.count)
            clock.now += copies->layers.backward[at] ? backward_s : forward_s;
    }
    free(clock.ended);
    return clock.waited;
}

void erg_memory_copies_waits(double *wait_s, const struct erg_memory_request *request,
                             const struct erg_time_request *time)
{
    const struct erg_layout *layout = request->layout;
    struct erg_time_parts parts;
    erg_time_parts_init(&parts, time, layout->tensor, layout->context, layout->microbatch,
                        layout->sequence, erg_layout_gpus(layout));
    for (long stage = 0; stage < layout->pipeline; stage++) {
        struct erg_memory_copies copies;
        erg_memory_copies_init(&copies, request, stage);
        wait_s[stage] = erg_memory_copies_wait(
            &copies, parts.forward_s,
            parts.backward_s + parts.recompute_s[erg_layout_remat(layout, stage)],
            erg_time_copy_rate(time));
        erg_memory_copies_release(&copies);
    }
}
