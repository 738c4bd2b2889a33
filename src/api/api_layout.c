/* ergon/layout.h: layouts of a job, asked and answered as by the command. */
#include "ergon/layout.h"

#include "api/door.h"
#include "api/layout_query.h"
#include "base/call.h"
#include "base/sized.h"
#include "layout/energy/candidate.h"
#include "report/report.h"

#include <math.h>
#include <stdlib.h>

/* As enum erg_objective numbers them. */

struct erg_layouts {
    struct erg_arena arena;
    struct erg_layout_input input;
    struct erg_layout_query query;
    const char **names; /* of the rows */
    char *json;         /* NULL until it is asked for */
};

struct layouts_finding {
    const struct erg_job *job;
    struct erg_layouts_options options;
    struct erg_layouts *layouts;
};

/* ---- the question ---- */

int erg_layout_input_take(struct erg_layout_input *input, const struct erg_layouts_options *options,
                          struct erg_error *err)
{
    *input = (struct erg_layout_input){
        .sequence = ERG_NOT_GIVEN,
        .gpus = options->gpus,
        .layout = options->layout,
        .slack = options->batch_slack,
        .per_stage = options->per_stage != 0,
        .fsdp = options->fsdp != 0,
        .draws = options->page != 0,
    };
    if (!(input->slack >= 0 && input->slack <= 0.5))
        return erg_fail(err, ERG_USAGE, "batch_slack got %.10g, expected a share from 0 to 0.5",
                        input->slack);
    if (input->draws && input->layout)
        return erg_fail(err, ERG_USAGE, "a page shows all layouts; it does not go with `layout`");
    if (erg_door_number(&input->batch, "batch", options->batch, ERG_JOB_MOST_BATCH, err) != 0 ||
        erg_door_number(&input->top, "top", options->top, 1000, err) != 0 ||
        erg_door_choice(&input->recompute, "recompute", options->recompute, ERG_WORDS_RECOMPUTE,
                        err) != 0 ||
        erg_door_choice(&input->objective, "objective", options->objective, ERG_WORDS_OBJECTIVE,
                        err) != 0 ||
        erg_door_amount(&input->deadline_s, "deadline_s", options->deadline_s, err) != 0 ||
        erg_door_amount(&input->energy_j, "energy_j", options->energy_j, err) != 0 ||
        erg_door_amount(&input->power_w, "power_w", options->power_w, err) != 0 ||
        erg_door_amount(&input->memory_bytes, "memory_bytes", options->memory_bytes, err) != 0 ||
        erg_door_amount(&input->host_bytes, "host_bytes", options->host_bytes, err) != 0)
        return -1;
    if (input->top == ERG_NOT_GIVEN)
        input->top = 10;
    return 0;
}

static int make_input(struct erg_layouts *layouts, const struct layouts_finding *at,
                      struct erg_error *err)
{
    struct erg_arena *arena = &layouts->arena;
    struct erg_layout_input *input = &layouts->input;
    if (erg_layout_input_take(input, &at->options, err) != 0)
        return -1;
    input->path = erg_arena_strdup(arena, at->job->path);
    input->text = erg_arena_strdup(arena, at->job->text);
    input->length = at->job->text_length;
    input->gpus = erg_door_copy(arena, input->gpus);
    input->layout = erg_door_copy(arena, input->layout);
    return 0;
}

static const struct erg_layout_candidate *candidate_at(const struct erg_layouts *layouts,
                                                       size_t index)
{
    const struct erg_layout_choice *choice = &layouts->query.choice;
    return choice->pick_count ? &choice->layouts[choice->picks[index].option].candidate
                              : &layouts->query.found.items[index];
}

static void name_rows(struct erg_layouts *layouts)
{
    const size_t count = erg_layouts_count(layouts);
    struct erg_text name = {0};
    layouts->names = erg_arena_alloc(&layouts->arena, (count + 1) * sizeof *layouts->names);
    for (size_t i = 0; i < count; i++) {
        name.count = 0;
        erg_layout_name(&name, &candidate_at(layouts, i)->layout,
                        layouts->query.searches->model->layers);
        layouts->names[i] = erg_arena_strdup(&layouts->arena, name.data);
    }
    erg_text_release(&name);
}

static int find(void *argument, struct erg_error *err)
{
    struct layouts_finding *at = argument;
    struct erg_layouts *layouts = at->layouts = erg_xcalloc(1, sizeof *layouts);
    struct erg_layout_query *query = &layouts->query;
    if (make_input(layouts, at, err) != 0 ||
        erg_layout_query_open(query, &layouts->input, err) != 0 ||
        erg_layout_query_prepare(query, err) != 0 || erg_layout_query_find(query, err) != 0) {
        erg_layouts_free(layouts);
        return -1;
    }
    name_rows(layouts);
    return 0;
}

int erg_layouts_find(struct erg_layouts **layouts, const struct erg_job *job,
                     const struct erg_layouts_options *options, struct erg_error *err)
{
    struct layouts_finding at = {.job = job};
    if (erg_sized_take(&at.options, sizeof at.options, options, "erg_layouts_options", err) != 0 ||
        erg_call_run(find, &at, at.options.watch, err) != 0)
        return -1;
    *layouts = at.layouts;
    return 0;
}

void erg_layouts_free(struct erg_layouts *layouts)
{
    if (!layouts)
        return;
    erg_layout_query_release(&layouts->query);
    erg_arena_release(&layouts->arena);
    free(layouts->json);
    free(layouts);
}

/* ---- the answer ---- */

size_t erg_layouts_count(const struct erg_layouts *layouts)
{
    const struct erg_layout_query *query = &layouts->query;
    const size_t count = query->choice.pick_count ? query->choice.pick_count : query->found.count;
    return count < (size_t)layouts->input.top ? count : (size_t)layouts->input.top;
}

static int check_index(const struct erg_layouts *layouts, size_t index, struct erg_error *err)
{
    const size_t count = erg_layouts_count(layouts);
    if (index < count)
        return 0;
    return erg_fail(err, ERG_USAGE, "layout %zu of %zu; expected one from 0 to %zu", index, count,
                    count - 1);
}

int erg_layouts_row(const struct erg_layouts *layouts, size_t index, struct erg_layouts_row *row,
                    struct erg_error *err)
{
    const struct erg_layout_query *query = &layouts->query;
    if (check_index(layouts, index, err) != 0)
        return -1;
    const struct erg_layout_candidate *candidate = candidate_at(layouts, index);
    const struct erg_layout_answer answer = erg_layout_query_answer(query);
    const struct erg_layout *layout = &candidate->layout;
    struct erg_layouts_row own = {
        .name = layouts->names[index],
        .gpus = erg_layout_gpus(layout),
        .tensor = layout->tensor,
        .context = layout->context,
        .pipeline = layout->pipeline,
        .data = layout->data,
        .virtual_stages = layout->virtual_stages,
        .fsdp = erg_layout_shards(layout),
        .microbatch_size = layout->microbatch,
        .microbatches = layout->microbatches,
        .batch = candidate->batch,
        .recompute = erg_layout_recompute_name(layout),
        .offload = layout->offload,
        .expert = erg_layout_experts(layout),
        .peak_bytes = candidate->peak_bytes,
    };
    if (query->choice.pick_count) {
        const struct erg_layout_pick *pick = &query->choice.picks[index];
        own.time_s = pick->time_s;
        own.energy_j = pick->energy_j;
    } else {
        struct erg_layout_energy energy;
        erg_layout_candidate_energy(&energy, query->searches, candidate);
        own.time_s = candidate->time.total;
        own.energy_j = energy.total_j;
    }
    own.power_w = own.energy_j / own.time_s;
    own.tokens_per_s = (double)candidate->batch * (double)layout->sequence / own.time_s;
    own.mfu = erg_layout_answer_mfu(&answer, candidate, own.tokens_per_s);
    return erg_sized_give(row, &own, sizeof own, "erg_layouts_row", err);
}

struct layout_making {
    const struct erg_layouts *layouts;
    size_t index;
    struct erg_job *job;
    struct erg_plan *plan;
};

static int make_job(void *argument, struct erg_error *err)
{
    struct layout_making *at = argument;
    const struct erg_layout_query *query = &at->layouts->query;
    struct erg_text text = {0};
    erg_layout_query_job(&text, query, candidate_at(at->layouts, at->index));
    const int status = erg_job_open_text(&at->job, query->job->path, text.data, text.count, err);
    erg_text_release(&text);
    return status;
}

int erg_layouts_job(const struct erg_layouts *layouts, size_t index, struct erg_job **job,
                    struct erg_error *err)
{
    struct layout_making at = {.layouts = layouts, .index = index};
    if (check_index(layouts, index, err) != 0 || erg_call_run(make_job, &at, NULL, err) != 0)
        return -1;
    *job = at.job;
    return 0;
}

static int make_plan(void *argument, struct erg_error *err)
{
    struct layout_making *at = argument;
    return erg_layout_query_plan(&at->plan, &at->layouts->query, err);
}

int erg_layouts_plan(const struct erg_layouts *layouts, struct erg_plan **plan,
                     struct erg_error *err)
{
    struct layout_making at = {.layouts = layouts};
    if (erg_call_run(make_plan, &at, NULL, err) != 0)
        return -1;
    *plan = at.plan;
    return 0;
}

const char *erg_layouts_json(struct erg_layouts *layouts)
{
    const struct erg_layout_answer answer = erg_layout_query_answer(&layouts->query);
    if (!layouts->json)
        layouts->json = erg_door_json(erg_layout_document(&answer));
    return layouts->json;
}

int erg_layouts_write_page(const struct erg_layouts *layouts, const char *path,
                           struct erg_error *err)
{
    const struct erg_layout_answer answer = erg_layout_query_answer(&layouts->query);
    if (!layouts->input.draws)
        return erg_fail(err, ERG_USAGE,
                        "the page shows more than was asked for; expected 1 for `page`");
    json_t *document = erg_layout_document(&answer);
    const int status = erg_report_layouts_write(path, document, err);
    json_decref(document);
    return status;
}
