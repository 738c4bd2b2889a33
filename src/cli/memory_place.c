/* Stages and layers of a layout as ergon plan places them. */
#include "cli/memory_asked.h"

#include "base/memory.h"
#include "layout/search/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int erg_memory_ask_kinds(struct memory_asked *asked, struct erg_error *err)
{
    const struct erg_job *job = asked->job;
    if (asked->kinds)
        return 0;
    if (!asked->engine && !job->engine)
        return erg_fail(
            err, ERG_USAGE,
            "an engine's times say how many each has; expected the key 'engine' in %s or "
            "--engine NAME, for example megatron-a100 (data/engines)",
            job->path);
    asked->kinds = erg_xcalloc(job->kind_count, sizeof *asked->kinds);
    for (size_t k = 0; k < job->kind_count; k++) {
        const struct erg_job_kind *kind = &job->kinds[k];
        const struct erg_engine *engine = k == 0 && asked->engine ? asked->engine : kind->engine;
        if (erg_layout_kind_init(&asked->kinds[k], kind->nodes, kind->gpu, engine, err) != 0)
            return -1;
        if (!isnan(asked->solve_bytes))
            asked->kinds[k].memory_bytes = asked->solve_bytes;
    }
    return 0;
}

static void own_layers(struct memory_asked *asked, const long *chunk_layers)
{
    struct erg_layout *layout = &asked->layout;
    const size_t chunks = (size_t)(layout->pipeline * layout->virtual_stages);
    long *layers = erg_arena_alloc(&asked->arena, chunks * sizeof *layers);
    memcpy(layers, chunk_layers, chunks * sizeof *layers);
    layout->chunk_layers = layers;
}

/* For layouts of the recomputation that was asked for, with as much offloading as is needed. */
static struct erg_layout_search search_of(const struct memory_asked *asked, long batch)
{
    const struct erg_job *job = asked->job;
    struct erg_layout_search search = {
        .model = job->model,
        .kind_count = job->kind_count,
        .sequence = asked->layout.sequence,
        .batch_least = batch,
        .batch_most = batch,
        .recomputes = 1u << asked->layout.recompute,
        .offload = true,
        .top = 1,
    };
    memcpy(search.kinds, asked->kinds, job->kind_count * sizeof *search.kinds);
    return search;
}

/* ---- nodes of several kinds ---- */

static void take_place(struct memory_asked *asked, const struct erg_layout_candidate *found)
{
    struct erg_layout *layout = &asked->layout;
    size_t *stage_kind =
        erg_arena_alloc(&asked->arena, (size_t)layout->pipeline * sizeof *stage_kind);
    erg_layout_stage_kinds(stage_kind, found);
    asked->stage_kind = stage_kind;
    layout->data = found->layout.data;
    layout->microbatches = found->layout.microbatches;
    if (found->chunk_layers)
        own_layers(asked, found->chunk_layers);
}

/* Whether the model can be spread so, wherever the stages lie: what is wrong with degrees says more
 * than that a search finds nothing. */
static int check_degrees(const struct memory_asked *asked, struct erg_error *err)
{
    const struct erg_job *job = asked->job;
    struct erg_layout plain = asked->layout;
    long node_gpus = 0;
    for (size_t k = 0; k < job->kind_count; k++)
        if (job->kinds[k].nodes->gpus_per_node > node_gpus)
            node_gpus = job->kinds[k].nodes->gpus_per_node;
    plain.data = 1;
    plain.microbatches = plain.pipeline;
    plain.chunk_layers = NULL;
    if (job->model->layers >= plain.pipeline * plain.virtual_stages)
        plain.pipeline = plain.virtual_stages = 1; /* layers need not divide */
    plain.offload = 0;
    plain.stage_offload = NULL;
    return erg_layout_check_group(&plain, plain.tensor * plain.context, node_gpus, err) != 0 ||
                   erg_layout_check(&plain, job->model, err) != 0
               ? -1
               : 0;
}

int erg_memory_place_stages(struct memory_asked *asked, long batch, long data,
                            struct erg_error *err)
{
    const struct erg_layout *layout = &asked->layout;
    struct erg_error unfit = {0};
    if (check_degrees(asked, err) != 0 || erg_memory_ask_kinds(asked, err) != 0)
        return -1;
    struct erg_layout_search search = search_of(asked, batch);
    search.only =
        (struct erg_layout_degrees){layout->tensor,         layout->context,    layout->pipeline,
                                    layout->virtual_stages, layout->microbatch, data};
    struct erg_layout_found found;
    int status = erg_layout_search(&found, &search, &unfit);
    if (status != 0 && unfit.status == ERG_INFEASIBLE) { /* none fits: the fastest of all */
        for (size_t k = 0; k < search.kind_count; k++) {
            search.kinds[k].memory_bytes = INFINITY;
            search.kinds[k].host_bytes = 0;
        }
        status = erg_layout_search(&found, &search, &unfit);
    }
    if (status != 0) {
        if (unfit.status == ERG_INFEASIBLE) /* by its degrees: it is none */
            unfit.status = ERG_FAILED;
        *err = unfit;
        return -1;
    }
    take_place(asked, &found.items[0]);
    erg_layout_found_release(&found);
    return 0;
}

/* ---- nodes of one kind ---- */

int erg_memory_split_layers(struct memory_asked *asked, struct erg_error *err)
{
    struct erg_layout *layout = &asked->layout;
    const long batch = layout->data * layout->microbatch * layout->microbatches;
    struct erg_layout plain = *layout;
    struct erg_layout_candidate found;
    struct erg_error unfit = {0};
    plain.offload = 0; /* as much as is needed, where the engine offloads */
    if (erg_memory_ask_kinds(asked, err) != 0)
        return -1;
    struct erg_layout_search search = search_of(asked, batch);
    search.gpus = erg_layout_gpus(layout);
    int status = erg_layout_evaluate(&found, &search, &plain, &unfit);
    if (status != 0 && unfit.status == ERG_INFEASIBLE) {
        search.kinds[0].memory_bytes = INFINITY;
        status = erg_layout_evaluate(&found, &search, &plain, &unfit);
    }
    if (status != 0) {
        *err = unfit;
        return -1;
    }
    own_layers(asked, found.chunk_layers);
    erg_layout_candidate_release(&found);
    return 0;
}
