/* Whether a plan belongs to a job: the values that must be equal in both for a training engine. */
#include "plan/plan.h"

#include <string.h>

static int check_number(const struct erg_job *job, const char *key, long planned, long own,
                        struct erg_error *err)
{
    if (planned == own)
        return 0;
    return erg_fail(err, ERG_USAGE, "%s: key '%s': the plan has %ld, expected %ld", job->path, key,
                    planned, own);
}

/* The layers of each chunk, where the plan lists them. */
static int check_layers(const struct erg_plan *plan, const struct erg_job *job,
                        struct erg_error *err)
{
    for (size_t x = 0; x < plan->stage_count; x++) {
        const long own = erg_job_chunk_layers(job, x);
        if (plan->stages[x].layers && plan->stages[x].layers != own)
            return erg_fail(err, ERG_USAGE,
                            "%s: key 'layers': virtual stage %zu of the plan has %ld layers, "
                            "expected %ld",
                            job->path, x, plan->stages[x].layers, own);
    }
    return 0;
}

static int check_text(const struct erg_job *job, const char *key, const char *planned,
                      const char *own, struct erg_error *err)
{
    if (!planned || strcmp(planned, own) == 0)
        return 0;
    return erg_fail(err, ERG_USAGE, "%s: key '%s': the plan is one for %s, expected %s", job->path,
                    key, planned, own);
}

/* Recomputation and offloading of each stage. */
static int check_stages(const struct erg_plan *plan, const struct erg_job *job,
                        struct erg_error *err)
{
    for (long stage = 0; stage < job->layout.pipeline; stage++) {
        const enum erg_recompute recompute = erg_layout_recompute(&plan->layout, stage);
        const enum erg_recompute own = erg_layout_recompute(&job->layout, stage);
        const double offload = erg_layout_offload(&plan->layout, stage);
        const double own_offload = erg_layout_offload(&job->layout, stage);
        if (recompute != own)
            return erg_fail(
                err, ERG_USAGE, "%s: key '%s': stage %ld of the plan recomputes %s, expected %s",
                job->path, job->layout.stage_recompute ? "stage_recompute" : "recompute", stage,
                erg_recompute_name(recompute), erg_recompute_name(own));
        if (offload != own_offload)
            return erg_fail(err, ERG_USAGE,
                            "%s: key '%s': stage %ld of the plan offloads %g, expected %g",
                            job->path, job->layout.stage_offload ? "stage_offload" : "offload",
                            stage, offload, own_offload);
    }
    return 0;
}

static int check_stream(const struct erg_plan *plan, const struct erg_job *job,
                        struct erg_error *err)
{
    static const char *const values[] = {"false", "true"};
    return check_text(job, "train.sequence_parallel", values[plan->sequence_parallel],
                      values[erg_job_splits_stream(job)], err);
}

int erg_plan_check_job(const struct erg_plan *plan, const struct erg_job *job,
                       struct erg_error *err)
{
    const struct erg_layout *layout = &plan->layout, *own = &job->layout;
    return check_text(job, "model", plan->model, job->model->name, err) ||
                   check_text(job, "stack", plan->stack, job->stack->name, err) ||
                   check_number(job, "tensor", layout->tensor, own->tensor, err) ||
                   check_number(job, "context", layout->context, own->context, err) ||
                   check_number(job, "pipeline", layout->pipeline, own->pipeline, err) ||
                   check_number(job, "virtual_stages", layout->virtual_stages, own->virtual_stages,
                                err) ||
                   check_number(job, "fsdp", erg_layout_shards(layout), erg_layout_shards(own),
                                err) ||
                   check_number(job, "microbatch_size", layout->microbatch, own->microbatch, err) ||
                   check_number(job, "microbatches", layout->microbatches, own->microbatches,
                                err) ||
                   check_number(job, "sequence", layout->sequence, own->sequence, err) ||
                   check_stages(plan, job, err) || check_stream(plan, job, err) ||
                   check_layers(plan, job, err)
               ? -1
               : 0;
}
