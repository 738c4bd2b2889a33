/* Writes the request and the results of a search over layouts as JSON, and a layout as a job. */
#include "layout/document/layouts.h"

#include "base/memory.h"
#include "io/json.h"
#include "layout/document/memory_document.h"
#include "layout/energy/candidate.h"
#include "layout/memory/stage_memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Layers of the largest chunk. */
static long most_layers(const struct erg_layout *layout, long layers)
{
    long most = layout->chunk_layers ? 0 : layers / (layout->pipeline * layout->virtual_stages);
    for (long i = 0; layout->chunk_layers && i < layout->pipeline * layout->virtual_stages; i++)
        most = layout->chunk_layers[i] > most ? layout->chunk_layers[i] : most;
    return most;
}

bool erg_layout_is_uneven(const struct erg_layout *layout)
{
    bool uneven = false;
    for (long i = 1; layout->chunk_layers && i < layout->pipeline * layout->virtual_stages; i++)
        uneven |= layout->chunk_layers[i] != layout->chunk_layers[0];
    return uneven;
}

void erg_layout_name(struct erg_text *out, const struct erg_layout *layout, long layers)
{
    const long each = erg_layout_is_uneven(layout) ? 0 : most_layers(layout, layers);
    erg_text_printf(out, "t=%ld,c=%ld,p=%ld,%c=%ld,b=%ld", layout->tensor, layout->context,
                    layout->pipeline, each ? 'l' : 'v', each ? each : layout->virtual_stages,
                    layout->microbatch);
    if (erg_layout_experts(layout) > 1)
        erg_text_printf(out, ",e=%ld", layout->expert);
    if (erg_layout_is_sharded(layout))
        erg_text_printf(out, ",fsdp=%ld", layout->fsdp);
}

/* Each stage: its layers and its memory by the closed form. */
static json_t *stages_json(const struct erg_layout_search *search, const struct erg_layout *layout)
{
    const struct erg_model *model = search->model;
    const struct erg_memory_request request =
        erg_memory_request_of(model, layout, search->kinds[0].engine);
    struct erg_memory_sizes sizes;
    json_t *list = json_array();
    erg_memory_sizes_of(&sizes, model, layout);
    for (long s = 0; s < layout->pipeline; s++) {
        struct erg_memory_stage stage;
        json_t *items = json_object();
        erg_memory_closed(&stage, &request, &sizes, s);
        for (int i = 0; i < ERG_MEMORY_ITEMS; i++)
            if (stage.items[i] > 0)
                json_object_set_new(items, erg_memory_item_name((enum erg_memory_item)i),
                                    erg_json_number(stage.items[i]));
        json_array_append_new(
            list, erg_json_pack("{s:I, s:s, s:o, s:o, s:o}", "layers",
                                (json_int_t)erg_layout_stage_layers(layout, model->layers, s),
                                "recompute", erg_recompute_name(erg_layout_recompute(layout, s)),
                                "offload", erg_json_number(erg_layout_offload(layout, s)),
                                "peak_bytes", erg_memory_needed(stage.peak_bytes), "items", items));
    }
    return list;
}

double erg_layout_answer_mfu(const struct erg_layout_answer *answer,
                             const struct erg_layout_candidate *candidate, double tokens_per_s)
{
    return erg_time_mfu(answer->searches->model, candidate->layout.sequence, tokens_per_s,
                        erg_layout_peak_flops(candidate, answer->searches));
}

void erg_layout_answer_gpus(struct erg_text *out, const struct erg_layout_answer *answer,
                            const struct erg_layout_candidate *candidate)
{
    const struct erg_layout_search *search = answer->searches;
    const char *comma = "";
    for (size_t k = 0; search->kind_count > 1 && k < search->kind_count; k++) {
        const long gpus = erg_layout_gpus_of(candidate, k);
        if (gpus > 0)
            erg_text_printf(out, "%s%ld %s", comma, gpus, search->kinds[k].name);
        comma = out->count ? ", " : "";
    }
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

/* Adds the rates at a given time and energy of all GPUs. */
static void add_rates(json_t *json, const struct erg_layout_answer *answer,
                      const struct erg_layout_candidate *candidate, double time_s, double energy_j)
{
    const struct erg_layout *layout = &candidate->layout;
    const double gpus = (double)erg_layout_gpus(layout);
    const double tokens_per_s = (double)candidate->batch * (double)layout->sequence / time_s;
    json_object_set_new(json, "time_s", erg_json_number(time_s));
    json_object_set_new(json, "tokens_per_s", erg_json_number(tokens_per_s));
    json_object_set_new(json, "mfu",
                        erg_json_number(erg_layout_answer_mfu(answer, candidate, tokens_per_s)));
    json_object_set_new(json, "energy_j", erg_json_number(energy_j));
    json_object_set_new(json, "gpu_power_w", erg_json_number(energy_j / time_s / gpus));
    json_object_set_new(json, "gpu_hours", erg_json_number(gpus * time_s / 3600));
}

/* The stages on each kind of GPUs. */
static json_t *places_json(const struct erg_layout_answer *answer,
                           const struct erg_layout_candidate *candidate)
{
    json_t *places = json_array();
    long first = 0;
    for (size_t i = 0; i < candidate->block_count; i++) {
        const struct erg_layout_block *block = &candidate->blocks[i];
        json_array_append_new(places,
                              erg_json_pack("{s:s, s:I, s:I, s:I, s:o}", "gpu",
                                            answer->searches->kinds[block->kind].name, "gpus",
                                            (json_int_t)erg_layout_gpus_of(candidate, block->kind),
                                            "first_stage", (json_int_t)first, "stages",
                                            (json_int_t)block->stages, "peak_bytes",
                                            erg_memory_needed(block->peak_bytes)));
        first += block->stages;
    }
    return places;
}

/* Adds the number of GPUs of each kind, if there are several kinds. */
static void add_kinds_used(json_t *json, const struct erg_layout_answer *answer,
                           const struct erg_layout_candidate *candidate)
{
    struct erg_text gpus = {0};
    erg_layout_answer_gpus(&gpus, answer, candidate);
    if (gpus.count)
        json_object_set_new(json, "gpus_by_kind", erg_json_new_string(gpus.data));
    erg_text_release(&gpus);
}

static json_t *degrees_json(const struct erg_layout_answer *answer,
                            const struct erg_layout_candidate *candidate)
{
    const struct erg_layout *layout = &candidate->layout;
    const struct erg_model *model = answer->searches->model;
    json_t *json = json_object();
    json_object_set_new(json, "t", json_integer(layout->tensor));
    json_object_set_new(json, "c", json_integer(layout->context));
    json_object_set_new(json, "p", json_integer(layout->pipeline));
    json_object_set_new(json, "l", json_integer(most_layers(layout, model->layers)));
    if (erg_layout_is_uneven(layout))
        json_object_set_new(json, "layers", layers_json(layout));
    if (layout->chunk_layers && candidate->bound_s > 0)
        json_object_set_new(json, "split_gap",
                            erg_json_number(1 - candidate->bound_s / candidate->time.total));
    json_object_set_new(json, "v", json_integer(layout->virtual_stages));
    json_object_set_new(json, "d", json_integer(layout->data));
    if (erg_layout_is_sharded(layout))
        json_object_set_new(json, "fsdp", json_integer(layout->fsdp));
    if (model->experts.count)
        json_object_set_new(json, "e", json_integer(erg_layout_experts(layout)));
    json_object_set_new(json, "gpus", json_integer(erg_layout_gpus(layout)));
    json_object_set_new(json, "microbatch", json_integer(layout->microbatch));
    json_object_set_new(json, "microbatches", json_integer(layout->microbatches));
    json_object_set_new(json, "batch", json_integer(candidate->batch));
    json_object_set_new(json, "recompute", erg_json_new_string(erg_layout_recompute_name(layout)));
    json_object_set_new(json, "offload", erg_json_number(layout->offload));
    json_object_set_new(json, "peak_bytes", erg_memory_needed(candidate->peak_bytes));
    json_object_set_new(json, "stages", stages_json(answer->searches, layout));
    add_kinds_used(json, answer, candidate);
    if (answer->searches->kind_count > 1)
        json_object_set_new(json, "places", places_json(answer, candidate));
    return json;
}

/* A layout; its items are at the highest clock. */
static json_t *layout_json(const struct erg_layout_answer *answer,
                           const struct erg_layout_candidate *candidate)
{
    struct erg_layout_energy energy;
    json_t *json = degrees_json(answer, candidate);
    erg_layout_candidate_energy(&energy, answer->searches, candidate);
    add_rates(json, answer, candidate, candidate->time.total, energy.total_j);
    json_object_set_new(json, "time_items_s", times_json(&candidate->time));
    json_object_set_new(json, "energy_items_j", energies_json(&energy));
    return json;
}

/* ---- over clocks ---- */

static json_t *frontier_json(const struct erg_layout_frontier *frontier)
{
    json_t *list = json_array();
    for (size_t i = 0; i < frontier->frontier.count; i++) {
        const struct erg_point *point = &frontier->frontier.points[i];
        struct erg_layout_clocks clocks;
        erg_layout_plan_clocks(&clocks, frontier, (size_t)point->recipe);
        json_array_append_new(
            list, erg_json_pack("{s:f, s:f, s:f, s:f, s:i, s:i}", "time_s", point->time_s,
                                "energy_j", point->energy_j, "forward_mhz", clocks.mean_mhz[0],
                                "backward_mhz", clocks.mean_mhz[1], "lowest_mhz", clocks.lowest_mhz,
                                "highest_mhz", clocks.highest_mhz));
    }
    return list;
}

/* A layout at the query's point, with its values at the highest clock. */
static json_t *picked_json(const struct erg_layout_answer *answer,
                           const struct erg_layout_pick *pick)
{
    const struct erg_layout_planned *planned = &answer->choice->layouts[pick->option];
    const struct erg_layout_candidate *candidate = &planned->candidate;
    json_t *json = layout_json(answer, candidate), *highest = json_object();
    static const char *const moved[] = {"time_s", "energy_j", "time_items_s", "energy_items_j"};
    for (size_t i = 0; i < sizeof moved / sizeof *moved; i++)
        json_object_set(highest, moved[i], json_object_get(json, moved[i]));
    json_object_del(json, "time_items_s");
    json_object_del(json, "energy_items_j");
    add_rates(json, answer, candidate, pick->time_s, pick->energy_j);
    json_object_set_new(json, "highest_clock", highest);
    json_object_set_new(json, "frontier", frontier_json(&planned->frontier));
    return json;
}

/* The index of a solved layout in the list; -1: none. */
static int place_of(const struct erg_layout_answer *answer, size_t option)
{
    for (size_t i = 0; i < answer->choice->pick_count && i < answer->top; i++)
        if (answer->choice->picks[i].option == option)
            return (int)i;
    return -1;
}

static json_t *union_json(const struct erg_layout_answer *answer)
{
    const struct erg_layout_choice *choice = answer->choice;
    struct erg_frontier all = {0};
    json_t *list = json_array();
    erg_layout_union(&all, choice->options, choice->count);
    for (size_t i = 0; i < all.count; i++) {
        size_t option = (size_t)(all.points[i].recipe >> 32);
        size_t point = (size_t)(all.points[i].recipe & 0xffffffff);
        const struct erg_layout_frontier *frontier = choice->options[option].frontier;
        struct erg_text name = {0};
        struct erg_layout_clocks clocks;
        erg_layout_name(&name, choice->options[option].layout, answer->searches->model->layers);
        erg_layout_plan_clocks(&clocks, frontier, (size_t)frontier->points.points[point].recipe);
        json_t *json = erg_json_pack(
            "{s:f, s:f, s:i, s:i, s:s, s:s, s:f, s:f, s:f}", "time_s", all.points[i].time_s,
            "energy_j", all.points[i].energy_j, "layout", place_of(answer, option), "gpus",
            (int)erg_layout_gpus(choice->options[option].layout), "name", name.data, "recompute",
            erg_layout_recompute_name(choice->options[option].layout), "offload",
            choice->options[option].layout->offload, "forward_mhz", clocks.mean_mhz[0],
            "backward_mhz", clocks.mean_mhz[1]);
        add_kinds_used(json, answer, &choice->layouts[option].candidate);
        json_array_append_new(list, json);
        erg_text_release(&name);
    }
    erg_frontier_release(&all);
    return list;
}

const char *erg_layout_missed_bound(const struct erg_goal *query, double time_s, double energy_j)
{
    const double least = 1 + 1e-9; /* tolerance for points that just meet a bound */
    if (query->deadline_s > 0 && time_s > query->deadline_s * least)
        return "misses the deadline";
    if (query->energy_j > 0 && energy_j > query->energy_j * least)
        return "above the energy budget";
    if (query->power_w > 0 && energy_j / time_s > query->power_w * least)
        return "above the power budget";
    return NULL;
}

/*
 * Adds the fastest layout for a number of GPUs, and the bound that it misses at the highest clock.
 */
static void add_fastest(json_t *json, const struct erg_layout_answer *answer,
                        const struct erg_layout_candidate *fastest)
{
    struct erg_layout_energy energy;
    erg_layout_candidate_energy(&energy, answer->searches, fastest);
    const char *missed =
        erg_layout_missed_bound(answer->query, fastest->time.total, energy.total_j);
    json_object_set_new(json, "fastest", layout_json(answer, fastest));
    if (missed)
        json_object_set_new(json, "missed", erg_json_new_string(missed));
}

/* The kinds that all layouts of a search use. */
static json_t *used_json(const struct erg_layout_search *search)
{
    json_t *names = json_array();
    for (size_t k = 0; k < search->kind_count; k++)
        if (search->used & 1u << k)
            json_array_append_new(names, erg_json_new_string(search->kinds[k].name));
    return names;
}

static json_t *counts_json(const struct erg_layout_answer *answer)
{
    json_t *list = json_array();
    for (size_t i = 0; i < answer->search_count; i++) {
        const struct erg_layout_count *count = &answer->counts[i];
        json_t *json = json_object();
        json_object_set_new(json, "gpus", json_integer(answer->searches[i].gpus));
        if (answer->searches->kind_count > 1)
            json_object_set_new(json, "kinds", used_json(&answer->searches[i]));
        json_object_set_new(json, "fits", json_boolean(count->fits));
        if (count->fits) {
            json_object_set_new(json, "on_frontier", json_boolean(count->on_frontier));
            add_fastest(json, answer, &count->fastest);
        }
        json_array_append_new(list, json);
    }
    return list;
}

static json_t *objective_json(const struct erg_goal *query)
{
    json_t *objective = erg_json_pack(
        "{s:s}", "goal", query->objective == ERG_LEAST_ENERGY ? "least_energy" : "fastest");
    if (query->deadline_s > 0)
        json_object_set_new(objective, "deadline_s", erg_json_number(query->deadline_s));
    if (query->energy_j > 0)
        json_object_set_new(objective, "energy_budget_j", erg_json_number(query->energy_j));
    if (query->power_w > 0)
        json_object_set_new(objective, "power_budget_w", erg_json_number(query->power_w));
    return objective;
}

static void add_choice(json_t *document, const struct erg_layout_answer *answer)
{
    const struct erg_layout_choice *choice = answer->choice;
    json_t *layouts = json_array();
    for (size_t i = 0; i < choice->pick_count && i < answer->top; i++)
        json_array_append_new(layouts, picked_json(answer, &choice->picks[i]));
    json_object_set_new(document, "objective", objective_json(answer->query));
    json_object_set_new(document, "layouts", layouts);
    json_object_set_new(document, "frontier", union_json(answer));
    json_object_set_new(document, "planned",
                        erg_json_pack("{s:I, s:I, s:f, s:f}", "solved", (json_int_t)choice->count,
                                      "fitting", (json_int_t)choice->fitting, "gap", choice->gap,
                                      "frontier_gap", choice->union_gap));
    if (answer->counts)
        json_object_set_new(document, "counts", counts_json(answer));
}

static void add_tried(json_t *document, const struct erg_layout_results *found)
{
    json_object_set_new(
        document, "tried",
        erg_json_pack("{s:I, s:I, s:I, s:I, s:I, s:f}", "evaluated", (json_int_t)found->evaluated,
                      "feasible", (json_int_t)found->feasible, "slower", (json_int_t)found->slower,
                      "memory", (json_int_t)found->memory, "host_memory",
                      (json_int_t)found->host_memory, "gap", found->gap));
}

static json_t *found_json(const struct erg_layout_answer *answer)
{
    json_t *layouts = json_array();
    for (size_t i = 0; i < answer->found->count; i++)
        json_array_append_new(layouts, layout_json(answer, &answer->found->items[i]));
    return layouts;
}

/* ---- the document ---- */

static json_t *points_json(const struct erg_layout_answer *answer)
{
    json_t *times = json_array(), *energies = json_array(), *bytes = json_array();
    for (size_t i = 0; i < answer->point_count; i++) {
        json_array_append_new(times, erg_json_number((double)answer->points[i].time_s));
        json_array_append_new(energies, erg_json_number((double)answer->points[i].energy_j));
        json_array_append_new(bytes, erg_memory_needed((double)answer->points[i].peak_bytes));
    }
    return erg_json_pack("{s:o, s:o, s:o}", "time_s", times, "energy_j", energies, "peak_bytes",
                         bytes);
}

/* Adds the GPUs, and the largest memory of one of them. */
static void add_kinds(json_t *document, const struct erg_layout_search *search)
{
    struct erg_text gpus = {0}, engines = {0};
    json_t *kinds = json_array();
    double memory_bytes = 0;
    for (size_t k = 0; k < search->kind_count; k++) {
        const struct erg_layout_kind *kind = &search->kinds[k];
        erg_text_printf(&gpus, "%s%s", k ? ", " : "", kind->name);
        erg_text_printf(&engines, "%s%s", k ? ", " : "", kind->engine->name);
        memory_bytes = fmax(memory_bytes, kind->memory_bytes);
        json_array_append_new(kinds,
                              erg_json_pack("{s:s, s:s, s:s, s:I, s:f}", "gpu", kind->name,
                                            "confidence", kind->gpu->confidence, "engine",
                                            kind->engine->name, "gpus", (json_int_t)kind->gpus,
                                            "memory_budget_bytes", kind->memory_bytes));
    }
    json_object_set_new(document, "gpu", erg_json_new_string(gpus.data));
    if (search->kind_count == 1)
        json_object_set_new(document, "confidence",
                            erg_json_new_string(search->kinds[0].gpu->confidence));
    json_object_set_new(document, "engine", erg_json_new_string(engines.data));
    json_object_set_new(document, "memory_budget_bytes", erg_json_number(memory_bytes));
    if (search->kind_count > 1)
        json_object_set(document, "kinds", kinds);
    json_decref(kinds);
    erg_text_release(&gpus);
    erg_text_release(&engines);
}

/* The request. */
static json_t *question_json(const struct erg_layout_answer *answer)
{
    const struct erg_layout_search *search = answer->searches;
    json_t *document = erg_json_pack("{s:s, s:i, s:s, s:s, s:i}", "schema", "ergon.layouts",
                                     "schema_version", 1, "job", answer->job->name, "model",
                                     search->model->name, "sequence", (int)search->sequence);
    long gpus = search->gpus;
    for (size_t k = 0; search->gpus == 0 && k < search->kind_count; k++)
        gpus += search->kinds[k].gpus;
    add_kinds(document, search);
    if (answer->search_count == 1)
        json_object_set_new(document, "gpus", json_integer(gpus));
    return document;
}

json_t *erg_layout_refusal_document(const struct erg_layout_answer *answer, const char *reason,
                                    const struct erg_layout_remedy *remedy)
{
    json_t *document = question_json(answer), *would_fit = json_object();
    if (answer->query)
        json_object_set_new(document, "objective", objective_json(answer->query));
    json_object_set_new(document, "fits", json_false());
    json_object_set_new(document, "reason", erg_json_new_string(reason));
    if (remedy && remedy->layout.layout.tensor > 0)
        json_object_set_new(would_fit, "layout", layout_json(answer, &remedy->layout));
    if (remedy && remedy->memory_bytes > 0)
        json_object_set_new(would_fit, "memory_bytes", erg_memory_needed(remedy->memory_bytes));
    if (remedy && remedy->gpus)
        json_object_set_new(would_fit, "gpus", json_integer(remedy->gpus));
    if (remedy && remedy->batch)
        json_object_set_new(would_fit, "batch", json_integer(remedy->batch));
    if (json_object_size(would_fit))
        json_object_set(document, "would_fit", would_fit);
    json_decref(would_fit);
    json_object_set_new(document, "layouts", json_array());
    return document;
}

json_t *erg_layout_document(const struct erg_layout_answer *answer)
{
    json_t *document = question_json(answer);
    erg_lora_add_document(document, answer->job->model);
    if (answer->found)
        add_tried(document, answer->found);
    if (answer->choice)
        add_choice(document, answer);
    else
        json_object_set_new(document, "layouts", found_json(answer));
    if (answer->point_count)
        json_object_set_new(document, "points", points_json(answer));
    return document;
}

void erg_layout_job(struct erg_text *out, const struct erg_layout_answer *answer,
                    const struct erg_cluster *cluster, const char *engine,
                    const struct erg_layout_candidate *candidate)
{
    const struct erg_layout *layout = &candidate->layout;
    const struct erg_layout_search *search = answer->searches;
    const char *gpus[ERG_LAYOUT_MOST_KINDS] = {NULL};
    size_t *stage_kind = erg_xcalloc((size_t)layout->pipeline, sizeof *stage_kind);
    for (size_t k = 0; search->kind_count > 1 && k < search->kind_count; k++)
        gpus[k] = search->kinds[k].name;
    erg_layout_stage_kinds(stage_kind, candidate);
    const struct erg_job_change change = {
        .layout = layout,
        .cluster = cluster,
        .engine = engine,
        .vocabulary = erg_layout_vocabulary(answer->job->model, layout->tensor),
        .stage_kind = stage_kind,
        .kind_gpus = gpus,
    };
    erg_job_write(out, answer->job, &change);
    free(stage_kind);
}
