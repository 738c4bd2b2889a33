/* The published iteration time of a grid's plan, and the notation of a plan. */
#include "layout/grid/grid.h"

static const double failed_profile_s = 1e5; /* grid.h */

/* Sum and slowest of a part made of computation and communication. */
struct part {
    double sum_compute, sum_communication;
    double slowest, slowest_compute;
};

static void add(struct part *part, double compute, double communication)
{
    part->sum_compute += compute;
    part->sum_communication += communication;
    if (compute + communication > part->slowest) {
        part->slowest = compute + communication;
        part->slowest_compute = compute;
    }
}

static double compute_of(const struct part *part, long microbatches)
{
    return part->sum_compute + (double)(microbatches - 1) * part->slowest_compute;
}

static double communication_of(const struct part *part, long microbatches)
{
    return part->sum_communication +
           (double)(microbatches - 1) * (part->slowest - part->slowest_compute);
}

void erg_grid_time(const struct erg_stage_time *stages, size_t count, long microbatches,
                   struct erg_iteration_time *time)
{
    struct part forward = {0}, backward = {0}, forward_send = {0}, backward_send = {0};
    struct part apply = {0};
    double sync_s = 0;
    for (size_t i = 0; i < count; i++) {
        const struct erg_stage_time *stage = &stages[i];
        add(&forward, stage->forward_s, stage->forward_intra_s);
        add(&backward, stage->backward_s, stage->backward_intra_s);
        add(&forward_send, 0, stage->forward_send_s);
        add(&backward_send, 0, stage->backward_send_s);
        if (stage->apply_s + stage->apply_intra_s < failed_profile_s)
            add(&apply, stage->apply_s, stage->apply_intra_s);
        sync_s += stage->gradient_sync_s;
    }
    time->compute_s = compute_of(&forward, microbatches) + compute_of(&backward, microbatches) +
                      apply.slowest_compute;
    time->intra_s = communication_of(&forward, microbatches) +
                    communication_of(&backward, microbatches) +
                    (apply.slowest - apply.slowest_compute) + sync_s;
    time->inter_s = communication_of(&forward_send, microbatches) +
                    communication_of(&backward_send, microbatches);
    time->total_s = time->compute_s + time->intra_s + time->inter_s;
}

void erg_grid_plan_text(const struct erg_grid_plan *plan, struct erg_text *text)
{
    for (size_t i = 0; i < plan->stages; i++)
        erg_text_printf(text, "%s%zu_%zu", i ? "__" : "", plan->first[i], plan->first[i + 1] - 1);
    for (size_t i = 0; i < plan->stages; i++)
        erg_text_printf(text, "%s%ld_%ld", i ? "__" : "::", plan->shapes[i].data,
                        plan->shapes[i].tensor);
}
