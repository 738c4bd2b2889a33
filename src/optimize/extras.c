/* What a stage does beside its layers' own passes: copies to host memory, and what it recomputes
 * where stages differ in that. */
#include "optimize/optimization_internal.h"

#include "base/memory.h"
#include "layout/energy/layout_energy.h"

static void add(struct erg_cost *sum, const struct erg_pass_cost *pass)
{
    sum->time_s += pass->time_s;
    sum->energy_j += pass->total_j;
}

/* One layer of a stage; what is in the job's own recomputation is in its passes. */
static void add_layer(struct erg_cost *extra, const struct erg_layout_energy_request *request,
                      const struct erg_time_parts *parts, const struct erg_layout_costs *costs,
                      const struct erg_layout *layout, long stage, enum erg_direction direction)
{
    enum erg_recompute recompute = erg_layout_recompute(layout, stage);
    const struct erg_pass_cost copy = erg_layout_copy_cost(request, parts, costs, 1, recompute,
                                                           erg_layout_offload(layout, stage));
    add(extra, &copy);
    if (direction == ERG_FORWARD || !layout->stage_recompute)
        return;
    if (erg_recompute_norms(recompute))
        add(extra, &costs->passes[ERG_PASS_NORMS]);
    if (erg_recompute_activation(recompute))
        add(extra, &costs->passes[ERG_PASS_ACTIVATION]);
    if (recompute == ERG_RECOMPUTE_FULL)
        add(extra, &costs->passes[ERG_PASS_FORWARD]);
}

/* On the GPUs of one kind, for all stages: those that lie elsewhere take theirs from there. */
static void add_extras(struct erg_optimization_kind *kind, const struct erg_model *model,
                       const struct erg_layout *layout)
{
    struct erg_time_machine machine;
    struct erg_time_parts parts;
    struct erg_layout_work work;
    size_t clocks = kind->survey.clock_count;
    erg_time_machine_init(&machine, kind->on->gpu, kind->on->nodes);
    const struct erg_layout_energy_request request = {.time = {model, kind->on->engine, &machine},
                                                      .gpu = kind->on->gpu};
    long gpus = erg_cluster_gpus(kind->on->nodes);
    erg_time_parts_init(&parts, &request.time, layout->tensor, layout->context, layout->microbatch,
                        layout->sequence, gpus);
    erg_layout_work_init(&work, &request, &parts, layout->tensor, layout->context,
                         layout->microbatch, layout->sequence, gpus);
    kind->extras = erg_xcalloc(2 * (size_t)layout->pipeline * clocks, sizeof *kind->extras);
    for (size_t clock = 0; clock < clocks; clock++) {
        struct erg_layout_costs costs;
        erg_layout_costs_at(&costs, &request, &work, kind->survey.clocks_mhz[clock]);
        for (long i = 0; i < 2 * layout->pipeline; i++)
            add_layer(&kind->extras[(size_t)i * clocks + clock], &request, &parts, &costs, layout,
                      i / 2, i % 2 ? ERG_BACKWARD : ERG_FORWARD);
    }
}

void erg_optimization_extras(struct erg_optimization *o)
{
    const struct erg_job *job = o->job;
    if (!(job->layout.offload > 0) && !job->layout.stage_recompute)
        return;
    for (size_t k = 0; k < job->kind_count; k++)
        add_extras(&o->kinds[k], job->model, &job->layout);
}
