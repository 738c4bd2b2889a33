/* The preview of a run: its layout and its memory. */
#include "train/run/run_preview.h"

#include "base/memory.h"
#include "io/json.h"
#include "layout/energy/candidate.h"
#include "train/engine/trainer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- the predicted time of a step ---- */

/* The job's layout, without a check of the GPUs' memory: the engine computes its memory. */
static int evaluate(struct erg_run_preview *preview, struct erg_error *err)
{
    const struct erg_job *job = preview->job;
    const struct erg_layout *layout = &job->layout;
    const long batch = erg_layout_batch(layout);
    struct erg_layout_candidate found;
    struct erg_layout_energy energy;
    struct erg_layout_search search = {
        .model = job->model,
        .kind_count = 1,
        .gpus = erg_layout_gpus(layout),
        .sequence = layout->sequence,
        .batch_least = batch,
        .batch_most = batch,
        .recomputes = 1u << layout->recompute,
        .top = 1,
    };
    if (job->kind_count > 1)
        return erg_fail(err, ERG_FAILED, "the cluster has GPUs of several kinds");
    if (!job->engine)
        return erg_fail(err, ERG_FAILED, "the job names no engine (key 'engine')");
    if (erg_layout_kind_init(&search.kinds[0], &job->cluster, job->gpu, job->engine, err) != 0)
        return -1;
    search.kinds[0].memory_bytes = INFINITY;
    if (erg_layout_evaluate(&found, &search, layout, NULL, 0, err) != 0)
        return -1;
    erg_layout_candidate_energy(&energy, &search, &found);
    preview->step_s = found.time.total;
    preview->step_j = energy.total_j;
    preview->gradients_s = found.time.items[ERG_TIME_GRADIENTS];
    preview->optimizer_s = found.time.items[ERG_TIME_OPTIMIZER];
    erg_layout_candidate_release(&found);
    return 0;
}

static void expect(struct erg_run_preview *preview)
{
    struct erg_error why;
    preview->step_s = preview->step_j = preview->gradients_s = preview->optimizer_s = NAN;
    if (evaluate(preview, &why) != 0)
        snprintf(preview->unexpected, sizeof preview->unexpected, "%s", why.message);
}

/* ---- the preview ---- */

int erg_run_preview_init(struct erg_run_preview *preview, const struct erg_job *job,
                         struct erg_backend *backend, const char *init, const char *type,
                         uint64_t steps, struct erg_error *err)
{
    const struct erg_layout *layout = &job->layout;
    const struct erg_trainer_options options = {
        .backend = backend, .job = job, .init = init, .world = (int)erg_layout_gpus(layout)};
    *preview = (struct erg_run_preview){.job = job,
                                        .device = backend->name,
                                        .type = type,
                                        .steps = steps,
                                        .ranks = erg_layout_gpus(layout)};
    if (erg_trainer_check(&options, err) != 0)
        return -1;
    preview->tokens = steps * (uint64_t)(erg_layout_batch(layout) * layout->sequence);
    preview->stages = erg_xcalloc((size_t)layout->pipeline, sizeof *preview->stages);
    for (long stage = 0; stage < layout->pipeline; stage++) {
        int rank = (int)(stage * (preview->ranks / layout->pipeline));
        struct erg_rank_memory *memory = &preview->stages[stage];
        if (erg_rank_memory_init(memory, job, backend, rank, err) != 0)
            return -1;
        if (memory->bytes > preview->stages[preview->most].bytes)
            preview->most = (size_t)stage;
    }
    expect(preview);
    return backend->table->memory_free(backend, &preview->free_bytes, err);
}

void erg_run_preview_release(struct erg_run_preview *preview)
{
    for (long stage = 0; preview->stages && stage < preview->job->layout.pipeline; stage++)
        erg_rank_memory_release(&preview->stages[stage]);
    free(preview->stages);
    *preview = (struct erg_run_preview){0};
}

/* ---- as a document ---- */

static json_t *stage_document(const struct erg_run_preview *preview, long stage)
{
    const struct erg_layout *layout = &preview->job->layout;
    const struct erg_rank_memory *memory = &preview->stages[stage];
    const long ranks = preview->ranks / layout->pipeline;
    json_t *items = json_object(), *buffers = json_array(), *chunks = json_array();
    for (int i = 0; i < ERG_RANK_ITEMS; i++)
        json_object_set_new(items, erg_rank_item_names[i],
                            json_integer((json_int_t)memory->items[i]));
    for (size_t i = 0; i < memory->count; i++)
        json_array_append_new(buffers,
                              erg_json_pack("{s:s, s:s, s:I}", "name", memory->buffers[i].name,
                                            "item", erg_rank_item_names[memory->buffers[i].item],
                                            "bytes", (json_int_t)memory->buffers[i].bytes));
    for (long chunk = 0; chunk < layout->virtual_stages; chunk++)
        json_array_append_new(chunks, json_integer(erg_layout_chunk_layers(
                                          layout, preview->job->model->layers, stage, chunk)));
    return erg_json_pack("{s:I, s:I, s:I, s:o, s:I, s:I, s:o, s:o}", "stage", (json_int_t)stage,
                         "first_rank", (json_int_t)stage * (json_int_t)ranks, "ranks",
                         (json_int_t)ranks, "chunk_layers", chunks, "memory_bytes",
                         (json_int_t)memory->bytes, "host_bytes", (json_int_t)memory->host_bytes,
                         "memory_items", items, "buffers", buffers);
}

/* null: no plan. */
static json_t *plan_document(const struct erg_run_preview *preview)
{
    const struct erg_run_expected *planned = &preview->planned;
    json_t *stages = json_array();
    if (!preview->plan || preview->layout) {
        json_decref(stages);
        return json_null();
    }
    for (long stage = 0; stage < preview->job->layout.pipeline; stage++) {
        struct erg_run_plan_modes modes;
        erg_run_plan_modes(&modes, preview->plan, erg_run_plan_selected(preview->plan),
                           (size_t)stage);
        json_t *object = json_object();
        for (int mode = 0; erg_mode_names[mode]; mode++)
            json_object_set_new(object, erg_mode_names[mode],
                                json_integer((json_int_t)modes.modes[mode]));
        json_object_set_new(object, "least_mhz", json_integer(modes.least_mhz));
        json_object_set_new(object, "most_mhz", json_integer(modes.most_mhz));
        json_array_append_new(stages, object);
    }
    return erg_json_pack("{s:s, s:s, s:I, s:s, s:f, s:f, s:f, s:f, s:o}", "file", planned->plan,
                         "method", planned->method, "point", (json_int_t)planned->point, "rule",
                         planned->rule, "time_s", planned->time_s, "energy_j", planned->energy_j,
                         "step_s", planned->step_s, "step_j", planned->step_j, "instructions",
                         stages);
}

/* null: the run does not search for the best way. */
static json_t *auto_document(const struct erg_run_preview *preview)
{
    json_t *ways = json_array();
    for (size_t i = 0; i < preview->way_count; i++) {
        const struct erg_run_way *way = &preview->ways[i];
        struct erg_text name = {0};
        erg_run_way_name(&name, way, preview->plan);
        json_array_append_new(ways, erg_json_pack("{s:s, s:s, s:I, s:f, s:f}", "way", name.data,
                                                  "method", erg_method_name(way->method), "point",
                                                  (json_int_t)way->point + 1, "time_s", way->time_s,
                                                  "energy_j", way->energy_j));
        erg_text_release(&name);
    }
    if (preview->layout)
        return erg_json_pack("{s:s, s:s, s:o}", "layout", preview->layout, "sequential",
                             preview->sequential, "ways", ways);
    json_decref(ways);
    return json_null();
}

json_t *erg_run_preview_document(const struct erg_run_preview *preview)
{
    const struct erg_job *job = preview->job;
    const struct erg_layout *layout = &job->layout;
    json_t *stages = json_array();
    for (long stage = 0; stage < layout->pipeline; stage++)
        json_array_append_new(stages, stage_document(preview, stage));
    return erg_json_pack(
        "{s:s, s:i, s:s, s:s, s:f, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, "
        "s:I, s:I, s:f, s:f, s:f, s:f, s:o, s:o, s:o}",
        "schema", "ergon.training_preview", "schema_version", 1, "job", job->name, "model",
        job->model->name, "parameters", erg_model_trained_parameters(job->model), "device",
        preview->device, "type", preview->type, "ranks", (json_int_t)preview->ranks, "steps",
        (json_int_t)preview->steps, "tokens", (json_int_t)preview->tokens, "microbatch",
        (json_int_t)layout->microbatch, "microbatches", (json_int_t)layout->microbatches,
        "sequence", (json_int_t)layout->sequence, "tensor", (json_int_t)layout->tensor, "context",
        (json_int_t)layout->context, "pipeline", (json_int_t)layout->pipeline, "virtual_stages",
        (json_int_t)layout->virtual_stages, "data", (json_int_t)layout->data, "memory_free_bytes",
        (json_int_t)preview->free_bytes, "step_s", preview->step_s, "step_j", preview->step_j,
        "gradients_s", preview->gradients_s, "optimizer_s", preview->optimizer_s, "stages", stages,
        "plan", plan_document(preview), "auto", auto_document(preview));
}
