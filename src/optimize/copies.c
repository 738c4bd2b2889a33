/* What offloading costs the passes of a layer. */
#include "optimize/optimization_internal.h"

#include "base/memory.h"
#include "layout/energy.h"

#include <stdlib.h>

void erg_optimization_copies(struct erg_optimization *o)
{
    const struct erg_job *job = o->job;
    struct erg_arena arena = {0};
    struct erg_time_machine machine;
    struct erg_layout layout;
    struct erg_time_parts parts;
    struct erg_layout_work work;
    if (!(job->offload > 0))
        return;
    erg_time_machine_init(&machine, job->gpu, &job->cluster);
    erg_layout_of_job(&layout, job, &arena);
    const struct erg_layout_energy_request request = {.time = {job->model, job->engine, &machine},
                                                      .gpu = job->gpu};
    long gpus = erg_layout_gpus(&layout);
    erg_time_parts_init(&parts, &request.time, layout.tensor, layout.context, layout.microbatch,
                        layout.sequence, gpus);
    erg_layout_work_init(&work, &request, &parts, layout.tensor, layout.context, layout.microbatch,
                         layout.sequence, gpus);
    o->copies = erg_xcalloc(o->survey.clock_count, sizeof *o->copies);
    for (size_t clock = 0; clock < o->survey.clock_count; clock++) {
        struct erg_layout_costs costs;
        erg_layout_costs_at(&costs, &request, &work, o->survey.clocks_mhz[clock]);
        struct erg_pass_cost one =
            erg_layout_copy_cost(&request, &parts, &costs, 1, layout.remat, layout.offload);
        o->copies[clock] = (struct erg_cost){one.time_s, one.total_j};
    }
    erg_arena_release(&arena);
}
