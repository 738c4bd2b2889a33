#include "layout/layout_document.h"

#include "io/json.h"
#include "layout/memory.h"

#include <stdlib.h>

/* Layers of every chunk where they are equal, else 0. */
static long equal_layers(const struct erg_layout *layout, long layers)
{
    return layout->chunk_layers ? 0 : layers / (layout->pipeline * layout->virtual_stages);
}

void erg_layout_name(struct erg_text *out, const struct erg_layout *layout, long layers)
{
    const long each = equal_layers(layout, layers);
    erg_text_printf(out, "t=%ld,c=%ld,p=%ld,%c=%ld,b=%ld", layout->tensor, layout->context,
                    layout->pipeline, each ? 'l' : 'v', each ? each : layout->virtual_stages,
                    layout->microbatch);
}

static json_t *layers_json(const struct erg_layout *layout)
{
    json_t *list = json_array();
    for (long i = 0; i < layout->pipeline * layout->virtual_stages; i++)
        json_array_append_new(list, json_integer(layout->chunk_layers[i]));
    return list;
}

static json_t *times_json(const struct erg_time *time)
{
    json_t *items = json_object();
    for (int i = 0; i < ERG_TIME_ITEMS; i++)
        if (time->items[i] > 0)
            json_object_set_new(items, erg_time_item_name((enum erg_time_item)i),
                                erg_json_number(time->items[i]));
    return items;
}

static json_t *energies_json(const struct erg_layout_energy *energy)
{
    json_t *items = json_object();
    for (int i = 0; i < ERG_LAYOUT_ENERGY_ITEMS; i++)
        if (energy->items[i] > 0)
            json_object_set_new(items, erg_layout_energy_item_name((enum erg_layout_energy_item)i),
                                erg_json_number(energy->items[i]));
    return items;
}

static json_t *layout_json(const struct erg_layout_answer *answer,
                           const struct erg_layout_candidate *candidate)
{
    const struct erg_layout_search *search = answer->search;
    const struct erg_layout *layout = &candidate->layout;
    const struct erg_model *model = search->time.model;
    const double gpus = (double)erg_layout_gpus(layout);
    json_t *json = json_object();
    json_object_set_new(json, "t", json_integer(layout->tensor));
    json_object_set_new(json, "c", json_integer(layout->context));
    json_object_set_new(json, "p", json_integer(layout->pipeline));
    if (layout->chunk_layers)
        json_object_set_new(json, "layers", layers_json(layout));
    else
        json_object_set_new(json, "l", json_integer(equal_layers(layout, model->layers)));
    json_object_set_new(json, "v", json_integer(layout->virtual_stages));
    json_object_set_new(json, "d", json_integer(layout->data));
    json_object_set_new(json, "microbatch", json_integer(layout->microbatch));
    json_object_set_new(json, "microbatches", json_integer(layout->microbatches));
    json_object_set_new(json, "batch", json_integer(candidate->batch));
    json_object_set_new(json, "recompute", json_string(erg_remat_name(layout->remat)));
    json_object_set_new(json, "offload", erg_json_number(layout->offload));
    json_object_set_new(json, "time_s", erg_json_number(candidate->time.total));
    json_object_set_new(json, "time_items_s", times_json(&candidate->time));
    json_object_set_new(json, "tokens_per_s", erg_json_number(candidate->tokens_per_s));
    json_object_set_new(
        json, "mfu",
        erg_json_number(erg_time_mfu(model, layout->sequence, candidate->tokens_per_s / gpus,
                                     search->time.engine->peak_flops)));
    json_object_set_new(json, "peak_bytes", erg_json_number(candidate->peak_bytes));
    struct erg_layout_energy energy;
    erg_layout_energy(&energy, answer->energy, layout, 0);
    json_object_set_new(json, "energy_j", erg_json_number(energy.total_j));
    json_object_set_new(json, "energy_items_j", energies_json(&energy));
    json_object_set_new(json, "gpu_power_w", erg_json_number(energy.gpu_power_w));
    return json;
}

static json_t *points_json(const struct erg_layout_answer *answer)
{
    json_t *times = json_array(), *energies = json_array(), *bytes = json_array();
    for (size_t i = 0; i < answer->point_count; i++) {
        json_array_append_new(times, erg_json_number((double)answer->points[i].time_s));
        json_array_append_new(energies, erg_json_number((double)answer->points[i].energy_j));
        json_array_append_new(bytes, erg_json_number((double)answer->points[i].peak_bytes));
    }
    return json_pack("{s:o, s:o, s:o}", "time_s", times, "energy_j", energies, "peak_bytes", bytes);
}

json_t *erg_layout_document(const struct erg_layout_answer *answer)
{
    const struct erg_layout_search *search = answer->search;
    const struct erg_layout_found *found = answer->found;
    json_t *layouts = json_array();
    for (size_t i = 0; i < found->count; i++)
        json_array_append_new(layouts, layout_json(answer, &found->items[i]));
    json_t *counts = json_pack(
        "{s:I, s:I, s:I, s:I, s:I}", "evaluated", (json_int_t)found->evaluated, "feasible",
        (json_int_t)found->feasible, "slower", (json_int_t)found->slower, "memory",
        (json_int_t)found->memory, "host_memory", (json_int_t)found->host_memory);
    json_t *document = json_pack(
        "{s:s, s:i, s:s, s:s, s:s, s:s, s:i, s:i, s:f}", "schema", "ergon.layouts",
        "schema_version", 1, "job", answer->job->name, "model", search->time.model->name, "gpu",
        answer->energy->gpu->name, "engine", search->time.engine->name, "gpus", (int)search->gpus,
        "sequence", (int)search->sequence, "memory_budget_bytes", search->memory_bytes);
    json_object_set_new(document, "tried", counts);
    json_object_set_new(document, "layouts", layouts);
    if (answer->point_count)
        json_object_set_new(document, "points", points_json(answer));
    return document;
}

void erg_layout_job(struct erg_text *out, const struct erg_job *job,
                    const struct erg_cluster *cluster, const struct erg_layout_candidate *candidate)
{
    static const enum erg_job_recompute recomputes[] = {
        [ERG_REMAT_NONE] = ERG_RECOMPUTE_NONE,
        [ERG_REMAT_BALANCED] = ERG_RECOMPUTE_BALANCED,
        [ERG_REMAT_FULL] = ERG_RECOMPUTE_FULL,
    };
    const struct erg_layout *layout = &candidate->layout;
    const struct erg_job_layout own = {
        .cluster = cluster,
        .tensor = layout->tensor,
        .context = layout->context,
        .pipeline = layout->pipeline,
        .data = layout->data,
        .virtual_stages = layout->virtual_stages,
        .chunk_layers = layout->chunk_layers,
        .microbatch = layout->microbatch,
        .microbatches = layout->microbatches,
        .sequence = layout->sequence,
        .vocabulary = erg_layout_vocabulary(job->model, layout->tensor),
        .recompute = recomputes[layout->remat],
        .offload = layout->offload,
    };
    erg_job_write(out, job, &own);
}
