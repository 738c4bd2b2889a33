/* The request of ergon memory: its options, and the layout and GPUs that follow from them. */
#include "cli/memory_asked.h"

#include "base/log.h"
#include "base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- options ---- */

static int check_options(struct memory_asked *asked, struct erg_error *err)
{
    const struct memory_values *values = asked->values;
    asked->solve_bytes = NAN;
    if (values->solve && !isnan(values->offload))
        return erg_fail(err, ERG_USAGE,
                        "--offload and --solve-offload were both given; expected one of them");
    if (values->per_stage && !values->solve)
        return erg_fail(err, ERG_USAGE, "--per-stage needs --solve-offload");
    if (!values->solve || strcmp(values->solve, "gpu") == 0)
        return 0;
    if (!erg_parse_bytes(values->solve, &asked->solve_bytes))
        return erg_fail(err, ERG_USAGE,
                        "--solve-offload got \"%.80s\", but must be a number of bytes like 6e10, "
                        "64GiB, 500MiB or 64GB, or gpu, what each GPU has",
                        values->solve);
    if (!(asked->solve_bytes >= 1 && asked->solve_bytes <= 1e18))
        return erg_fail(err, ERG_USAGE,
                        "--solve-offload got %.80s, expected a number of bytes from 1 to 1e+18",
                        values->solve);
    return 0;
}

/* ---- the layout ---- */

/* Degrees, recomputation and ratios that were asked for, in place of the job's own. What stages do
 * each for themselves holds for the job's own layout. */
static int choose_degrees(struct memory_asked *asked, struct erg_error *err)
{
    const struct memory_values *values = asked->values;
    struct erg_layout *layout = &asked->layout;
    if (values->layout &&
        erg_layout_parse(layout, values->layout, asked->job->model->layers, err) != 0) {
        if (err->status == ERG_INFEASIBLE) /* it is none, whatever GPUs have */
            err->status = ERG_FAILED;
        return erg_fail_context(err, "--layout");
    }
    if (values->recompute >= 0)
        layout->recompute = (enum erg_recompute)values->recompute;
    if (values->recompute >= 0 || values->layout)
        layout->stage_recompute = NULL;
    if (!isnan(values->offload))
        layout->offload = values->offload;
    if (values->solve)
        layout->offload = 0;
    if (!isnan(values->offload) || values->solve || values->layout)
        layout->stage_offload = NULL;
    return 0;
}

/* Whether the layers cannot be divided equally, though there are enough. */
static bool needs_split(const struct erg_layout *layout, const struct erg_model *model)
{
    const long chunks = layout->pipeline * layout->virtual_stages;
    return !layout->chunk_layers && layout->pipeline > 1 && model->layers > chunks &&
           model->layers % chunks != 0;
}

/* Data degree, microbatches, layers and GPUs of every stage. */
static int fill_layout(struct memory_asked *asked, struct erg_error *err)
{
    const struct memory_values *values = asked->values;
    const struct erg_job *job = asked->job;
    struct erg_layout *layout = &asked->layout;
    const bool one_kind = job->kind_count == 1, gpus_given = values->gpus != ERG_NOT_GIVEN;
    const bool placed = job->placed && (one_kind || !values->layout);
    const long own_gpus = one_kind ? erg_cluster_gpus(&job->cluster) : erg_layout_gpus(layout);
    const long own_batch = layout->data * layout->microbatch * layout->microbatches;
    const long batch = values->batch != ERG_NOT_GIVEN ? values->batch : own_batch;
    if (choose_degrees(asked, err) != 0)
        return -1;
    const bool any_data = !placed && values->layout && !gpus_given;
    if (!any_data && erg_layout_fill(layout, gpus_given ? values->gpus : own_gpus, batch, err) != 0)
        return -1;
    asked->own_layers = placed && !values->layout;
    if (one_kind) {
        struct erg_time_machine machine;
        erg_time_machine_init(&machine, job->gpu, &job->cluster);
        if (erg_time_machine_check(&machine, erg_layout_gpus(layout), err) != 0)
            return -1;
    }
    if (!placed)
        return erg_memory_place_stages(asked, batch, any_data ? 0 : layout->data, err);
    size_t *stage_kind =
        erg_arena_alloc(&asked->arena, (size_t)layout->pipeline * sizeof *stage_kind);
    for (long s = 0; s < layout->pipeline; s++)
        stage_kind[s] = one_kind ? 0 : job->stage_kind[s];
    asked->stage_kind = stage_kind;
    return 0;
}

/* Whether groups of ranks lie within the nodes of every stage. */
static int check_groups(const struct memory_asked *asked, struct erg_error *err)
{
    const struct erg_layout *layout = &asked->layout;
    const long ranks = layout->tensor * layout->context * layout->data;
    for (size_t k = 0; k < asked->job->kind_count; k++) {
        long gpus = 0;
        for (long s = 0; s < layout->pipeline; s++)
            if (asked->stage_kind[s] == k)
                gpus += ranks;
        const int node_gpus = asked->job->kinds[k].nodes->gpus_per_node;
        if (gpus > 0 && erg_layout_check_group(layout, gpus, node_gpus, err) != 0)
            return -1;
    }
    return 0;
}

static int choose_layout(struct memory_asked *asked, struct erg_error *err)
{
    const struct memory_values *values = asked->values;
    const struct erg_job *job = asked->job;
    struct erg_layout *layout = &asked->layout;
    *layout = job->layout;
    if (fill_layout(asked, err) != 0 || check_groups(asked, err) != 0)
        return -1;
    if (values->layout && isnan(values->offload) && layout->offload > 0 && layout->pipeline < 3)
        return erg_fail(
            err, ERG_FAILED,
            "key 'offload' in line %zu: %.10g holds for --layout, too, and offloading needs at "
            "least 3 pipeline stages, got %ld; expected --offload 0 or more stages",
            job->offload_line, layout->offload, layout->pipeline);
    if (needs_split(layout, job->model) && erg_memory_split_layers(asked, err) != 0)
        return erg_fail_context(err,
                                "the %ld layers of %s cannot be divided among %ld stages of %ld "
                                "chunks",
                                job->model->layers, job->model->name, layout->pipeline,
                                layout->virtual_stages);
    return erg_layout_check(layout, job->model, err);
}

/* ---- what there is ---- */

static void fill_rooms(struct memory_asked *asked)
{
    const long pipeline = asked->layout.pipeline;
    asked->rooms = erg_arena_alloc(&asked->arena, (size_t)pipeline * sizeof *asked->rooms);
    for (long s = 0; s < pipeline; s++) {
        const struct erg_job_kind *kind = &asked->job->kinds[asked->stage_kind[s]];
        asked->rooms[s] = (struct erg_memory_room){
            .gpu_bytes = isnan(asked->solve_bytes)
                             ? ERG_MEMORY_USABLE_SHARE * kind->gpu->memory_bytes
                             : asked->solve_bytes,
            .host_bytes = kind->nodes->host_memory_bytes,
            .node_gpus = kind->nodes->gpus_per_node,
        };
    }
}

int erg_memory_ask(struct memory_asked *asked, const char *path, const struct memory_values *values,
                   struct erg_error *err)
{
    struct erg_job_overrides overrides = {
        .any_layout = true,
        .own_degrees = !values->layout && values->gpus == ERG_NOT_GIVEN,
    };
    *asked = (struct memory_asked){.values = values};
    if (values->sequence != ERG_NOT_GIVEN)
        overrides.sequence = values->sequence;
    if (check_options(asked, err) != 0 || erg_job_load(&asked->job, path, &overrides, err) != 0)
        return -1;
    if (values->engine && (erg_engine_load(&asked->engine, values->engine, err) != 0 ||
                           erg_engine_check_gpu(asked->engine, asked->job->gpu, err) != 0))
        return -1;
    if (choose_layout(asked, err) != 0)
        return erg_fail_context(err, "the layout of %s", path);
    fill_rooms(asked);
    return 0;
}

void erg_memory_asked_release(struct memory_asked *asked)
{
    free(asked->kinds);
    erg_engine_free(asked->engine);
    erg_job_free(asked->job);
    erg_arena_release(&asked->arena);
}
