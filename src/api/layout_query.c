/* Searches for queries about layouts. */
#include "api/layout_query.h"

#include "io/file.h"
#include "io/json.h"
#include "layout/energy/candidate.h"
#include "report/report.h"

#include <math.h>
#include <stdlib.h>

/* ---- the question ---- */

int erg_layout_query_open(struct erg_layout_query *at, const struct erg_layout_input *input,
                          struct erg_error *err)
{
    const struct erg_job_overrides overrides = {
        .sequence = input->sequence != ERG_NOT_GIVEN ? input->sequence : 0, .any_layout = true};
    *at = (struct erg_layout_query){.input = input};
    if ((input->text
             ? erg_job_parse(&at->job, input->path, input->text, input->length, &overrides, err)
             : erg_job_load(&at->job, input->path, &overrides, err)) != 0)
        return -1;
    return input->cluster ? erg_cluster_load(&at->cluster, input->cluster, err) : 0;
}

int erg_layout_query_prepare(struct erg_layout_query *at, struct erg_error *err)
{
    const struct erg_layout_input *input = at->input;
    if (erg_layout_list_searches(at, erg_layout_query_cluster(at), err) != 0)
        return -1;
    const struct erg_layout_kind *kind = at->searches->kinds;
    at->energy = (struct erg_layout_energy_request){
        .time = {at->job->model, kind->engine, &kind->machine}, .gpu = kind->gpu};
    at->query = (struct erg_goal){
        .objective = (enum erg_objective)(input->objective >= 0       ? input->objective
                                          : !isnan(input->deadline_s) ? ERG_LEAST_ENERGY
                                                                      : ERG_FASTEST),
        .deadline_s = isnan(input->deadline_s) ? 0 : input->deadline_s,
        .energy_j = isnan(input->energy_j) ? 0 : input->energy_j,
        .power_w = isnan(input->power_w) ? 0 : input->power_w,
    };
    return 0;
}

void erg_layout_query_release(struct erg_layout_query *at)
{
    if (at->counts)
        erg_layout_counts_release(at->counts, at->search_count);
    free(at->counts);
    erg_layout_choice_release(&at->choice);
    erg_layout_candidate_release(&at->remedy.layout);
    erg_layout_results_release(&at->found);
    free(at->points.items);
    free(at->searches);
    for (size_t k = 0; k < ERG_LAYOUT_MOST_KINDS; k++) {
        erg_gpu_free(at->gpus[k]);
        erg_engine_free(at->engines[k]);
    }
    erg_cluster_free(at->cluster);
    erg_job_free(at->job);
}

bool erg_layout_query_is_mixed(const struct erg_layout_query *at)
{
    return at->searches->kind_count > 1;
}

/* Whether the answer is one over clocks. */
static bool is_over_clocks(const struct erg_layout_query *at)
{
    const struct erg_layout_input *input = at->input;
    return input->objective >= 0 || at->query.deadline_s > 0 || at->query.energy_j > 0 ||
           at->query.power_w > 0 || at->search_count > 1 || input->draws;
}

struct erg_layout_answer erg_layout_query_answer(const struct erg_layout_query *at)
{
    const bool clocks = is_over_clocks(at);
    return (struct erg_layout_answer){.job = at->job,
                                      .searches = at->searches,
                                      .search_count = at->search_count,
                                      .found = at->found.evaluated ? &at->found : NULL,
                                      .choice = clocks ? &at->choice : NULL,
                                      .query = clocks ? &at->query : NULL,
                                      .counts = at->counts,
                                      .top = (size_t)at->input->top,
                                      .points = at->points.items,
                                      .point_count = at->points.count};
}

struct erg_layout_choice_request erg_layout_query_choice(const struct erg_layout_query *at)
{
    return (struct erg_layout_choice_request){.searches = at->searches,
                                              .search_count = at->search_count,
                                              .query = at->query,
                                              .whole_union =
                                                  at->input->draws || at->search_count > 1,
                                              .most = 24,
                                              .more = 24,
                                              .tolerance = 0.003};
}

/* ---- one layout ---- */

/* The layout in `text`, with the job's recomputation if the command line does not name another. */
static int parse_layout(struct erg_layout *layout, const struct erg_layout_query *at,
                        const char *text, struct erg_error *err)
{
    const struct erg_layout *own = &at->job->layout;
    *layout = (struct erg_layout){.microbatch = 1,
                                  .sequence = own->sequence,
                                  .virtual_stages = 1,
                                  .expert_capacity = own->expert_capacity,
                                  .recompute = own->recompute};
    if (at->input->recompute >= 0)
        layout->recompute = (enum erg_recompute)at->input->recompute;
    return erg_layout_parse(layout, text, at->job->model->layers, err);
}

/* Whether some stages of these degrees are layouts of the model, and GPUs of several kinds enough
 * for them. */
static int check_degrees(const struct erg_layout_query *at, const struct erg_layout *asked,
                         struct erg_error *err)
{
    const struct erg_layout_search *search = at->searches;
    const long group = asked->tensor * asked->context;
    long gpus = 0, node_gpus = 0;
    struct erg_layout layout = *asked;
    for (size_t k = 0; k < search->kind_count; k++) {
        const long node = search->kinds[k].machine.node_gpus;
        gpus += search->kinds[k].gpus;
        node_gpus = node > node_gpus ? node : node_gpus;
    }
    if (group > node_gpus)
        return erg_layout_check_group(asked, group, node_gpus, err);
    if (group * asked->pipeline > gpus)
        return erg_fail(err, ERG_INFEASIBLE,
                        "tensor %ld x context %ld x pipeline %ld are %ld GPUs, and there are %ld",
                        asked->tensor, asked->context, asked->pipeline, group * asked->pipeline,
                        gpus);
    layout.data = erg_layout_experts(asked);
    layout.microbatches = asked->pipeline;
    if (asked->pipeline * asked->virtual_stages <= search->model->layers)
        layout.pipeline = layout.virtual_stages = 1; /* layers are split */
    return erg_layout_check(&layout, search->model, err);
}

/* On several kinds: the fastest layout of these degrees and this recomputation. */
static int search_degrees(struct erg_layout_query *at, const struct erg_layout *layout,
                          struct erg_error *err)
{
    struct erg_layout_search search = *at->searches;
    if (check_degrees(at, layout, err) != 0) {
        err->status = ERG_INFEASIBLE; /* as on one kind */
        return -1;
    }
    search.recomputes = 1u << layout->recompute;
    search.only = (struct erg_layout_degrees){.tensor = layout->tensor,
                                              .context = layout->context,
                                              .pipeline = layout->pipeline,
                                              .virtual_stages = layout->virtual_stages,
                                              .microbatch = layout->microbatch,
                                              .expert = erg_layout_experts(layout),
                                              .fsdp = erg_layout_shards(layout)};
    search.fsdp = erg_layout_is_sharded(layout);
    if (erg_layout_search(&at->found, &search, err) != 0)
        return -1;
    erg_layout_results_shorten(&at->found, 1);
    return 0;
}

/* Makes the layout in `text` the only result. On one kind, a layout that does not fit is refused
 * with the smallest change that helps. */
int erg_layout_query_one(struct erg_layout_query *at, const char *option, const char *text,
                         struct erg_layout *layout, struct erg_error *err)
{
    struct erg_layout_candidate one;
    int status = parse_layout(layout, at, text, err);
    if (!status && erg_layout_query_is_mixed(at)) {
        status = search_degrees(at, layout, err);
    } else if (!status) {
        status = erg_layout_evaluate(&one, at->searches, layout, NULL, 0, err);
        if (status)
            erg_layout_say_change(&at->remedy, at->searches, layout, err);
        else
            at->found =
                (struct erg_layout_results){.items = erg_xcalloc(1, sizeof *at->found.items),
                                            .count = 1,
                                            .evaluated = 1,
                                            .feasible = 1};
        if (!status)
            at->found.items[0] = one;
    }
    return status ? erg_fail_context(err, "%s %s", option, text) : 0;
}

static void note_point(void *context, const struct erg_layout_candidate *candidate)
{
    enum { MOST = 20000 }; /* as many as a page can draw */
    struct erg_layout_query *at = context;
    struct erg_layout_energy energy;
    if (at->points.count >= MOST)
        return;
    erg_layout_candidate_energy(&energy, at->searches, candidate);
    ERG_PUSH(&at->points, items,
             (struct erg_layout_point){(float)candidate->time.total, (float)energy.total_j,
                                       (float)candidate->peak_bytes});
}

/* The fastest layouts at the highest clock, as many as are shown; and the data of the page, on
 * several kinds only for the fastest, since there are too many others. */
int erg_layout_query_fastest(struct erg_layout_query *at, struct erg_error *err)
{
    enum { DRAWN = 300 };
    struct erg_layout_search search = *at->searches;
    const bool draws = at->input->draws;
    if (draws && !erg_layout_query_is_mixed(at))
        search.each = note_point;
    else if (draws && search.top < DRAWN)
        search.top = DRAWN;
    search.context = at;
    if (erg_layout_search(&at->found, &search, err) != 0)
        return -1;
    for (size_t i = 0; draws && erg_layout_query_is_mixed(at) && i < at->found.count; i++)
        note_point(at, &at->found.items[i]);
    erg_layout_results_shorten(&at->found, (size_t)at->input->top);
    return 0;
}

/* ---- the answer ---- */

/* The best layout. */
const struct erg_layout_candidate *erg_layout_query_best(const struct erg_layout_query *at)
{
    return at->choice.pick_count ? &at->choice.layouts[at->choice.picks[0].option].candidate
                                 : &at->found.items[0];
}

/* The kinds of GPUs of an answer, and on which each stage of a layout lies. */
static size_t *set_kinds(struct erg_plan *plan, const struct erg_layout_query *at,
                         const struct erg_layout_candidate *candidate)
{
    plan->kind_count = at->searches->kind_count;
    plan->kinds = erg_arena_alloc(&plan->arena, plan->kind_count * sizeof *plan->kinds);
    for (size_t k = 0; k < plan->kind_count; k++) {
        const struct erg_layout_kind *kind = &at->searches->kinds[k];
        plan->kinds[k] = (struct erg_plan_kind){
            .gpu = erg_arena_strdup(&plan->arena, kind->gpu->name),
            .device = erg_arena_printf(&plan->arena, "model of %s", kind->gpu->name),
            .identity = erg_arena_strdup(&plan->arena, kind->engine->name),
            .emulated = true,
            .gpus_used = erg_layout_gpus_of(candidate, k),
            .blocking_power_w = kind->gpu->blocking_power_w,
            .static_power_w = kind->gpu->static_power_w,
            .power_cap_w = kind->gpu->power_cap_w,
            .mean_clock_mhz = NAN,
        };
    }
    size_t *kinds =
        erg_arena_alloc(&plan->arena, (size_t)candidate->layout.pipeline * sizeof *kinds);
    erg_layout_stage_kinds(kinds, candidate);
    return kinds;
}

static void set_step_ends(struct erg_plan *plan, const struct erg_layout_query *at,
                          const struct erg_layout *layout, const size_t *stage_kind)
{
    struct erg_step_end_kind kinds[ERG_LAYOUT_MOST_KINDS];
    for (size_t k = 0; k < at->searches->kind_count; k++) {
        const struct erg_layout_kind *kind = &at->searches->kinds[k];
        kinds[k] = (struct erg_step_end_kind){kind->engine, kind->gpu, kind->machine};
    }
    plan->step_end_count = (size_t)layout->pipeline;
    plan->step_ends = erg_arena_alloc(&plan->arena, plan->step_end_count * sizeof *plan->step_ends);
    erg_step_ends_init(plan->step_ends, at->searches->model, layout, kinds, stage_kind);
}

int erg_layout_query_plan(struct erg_plan **out, const struct erg_layout_query *at,
                          struct erg_error *err)
{
    const struct erg_layout_choice *choice = &at->choice;
    if (choice->pick_count == 0)
        return erg_fail(
            err, ERG_USAGE,
            "a plan contains clocks; expected an objective or a limit by which to choose them");
    const struct erg_layout_pick *pick = &choice->picks[0];
    const struct erg_layout_planned *planned = &choice->layouts[pick->option];
    const struct erg_layout_frontier *frontier = &planned->frontier;
    const struct erg_layout *layout = &planned->candidate.layout;
    struct erg_plan *plan = erg_plan_new();
    plan->name = erg_arena_strdup(&plan->arena, at->job->name);
    plan->model = erg_arena_strdup(&plan->arena, at->job->model->name);
    plan->layout = erg_layout_copy(layout, &plan->arena);
    plan->scale.gpus_per_stage = (int)(layout->tensor * layout->context);
    const size_t *kinds = set_kinds(plan, at, &planned->candidate);
    set_step_ends(plan, at, layout, kinds);
    erg_plan_set_iteration(plan, &frontier->iteration, frontier->tables, kinds,
                           (size_t)frontier->points.points[pick->point].recipe,
                           "the best layout's point for the goal");
    if (erg_plan_complete(plan, err) != 0) {
        erg_plan_free(plan);
        return -1;
    }
    *out = plan;
    return 0;
}

static int write_plan(const struct erg_layout_query *at, const char *path, struct erg_error *err)
{
    struct erg_plan *plan;
    if (erg_layout_query_plan(&plan, at, err) != 0)
        return -1;
    const int status = erg_plan_write(plan, path, err);
    erg_plan_free(plan);
    return status;
}

void erg_layout_query_job(struct erg_text *out, const struct erg_layout_query *at,
                          const struct erg_layout_candidate *candidate)
{
    const struct erg_layout_answer answer = erg_layout_query_answer(at);
    erg_layout_job(out, &answer, at->cluster, at->input->engine, candidate);
}

int erg_layout_query_write(const struct erg_layout_query *at, const char *folder,
                           struct erg_error *err)
{
    const struct erg_layout_answer answer = erg_layout_query_answer(at);
    struct erg_arena arena = {0};
    struct erg_text job = {0};
    json_t *document = erg_layout_document(&answer);
    erg_layout_query_job(&job, at, erg_layout_query_best(at));
    int status = erg_dir_make(folder, err) ||
                         erg_json_write(erg_arena_printf(&arena, "%s/layouts.json", folder),
                                        document, err) ||
                         erg_report_layouts_write(
                             erg_arena_printf(&arena, "%s/layouts.html", folder), document, err) ||
                         write_plan(at, erg_arena_printf(&arena, "%s/plan.json", folder), err) ||
                         erg_file_write(erg_arena_printf(&arena, "%s/job.yaml", folder), job.data,
                                        job.count, err)
                     ? -1
                     : 0;
    json_decref(document);
    erg_text_release(&job);
    erg_arena_release(&arena);
    return status;
}

/* The choice over clocks: of the requested layout, or of all, and with several numbers of GPUs the
 * result of each. */
static int choose(struct erg_layout_query *at, struct erg_error *err)
{
    const struct erg_layout_choice_request request = erg_layout_query_choice(at);
    if (at->input->layout) {
        struct erg_layout_candidate one = at->found.items[0];
        at->found.count = 0; /* the choice owns it */
        return erg_layout_choose_point(&at->choice, &request, &one, err);
    }
    if (erg_layout_choose(&at->choice, &request, err) != 0)
        return -1;
    if (at->search_count == 1)
        return 0;
    at->counts = erg_xcalloc(at->search_count, sizeof *at->counts);
    return erg_layout_counts_init(at->counts, &request, &at->choice, err);
}

/* The requested layout, or the best of all. Where nothing fits on one kind of GPUs, the change that
 * would help. */
int erg_layout_query_find(struct erg_layout_query *at, struct erg_error *err)
{
    const struct erg_layout_input *input = at->input;
    const bool clocks = is_over_clocks(at),
               remedies = at->search_count == 1 && !erg_layout_query_is_mixed(at);
    struct erg_layout layout;
    if (input->layout) {
        if (erg_layout_query_one(at, input->dashes ? "--layout" : "layout", input->layout, &layout,
                                 err) != 0)
            return -1;
        return clocks && !input->plain ? choose(at, err) : 0;
    }
    if (at->search_count == 1 && (!clocks || input->draws) &&
        erg_layout_query_fastest(at, err) != 0)
        return remedies ? erg_layout_say_needed(&at->remedy, at->searches, err) : -1;
    if (clocks && choose(at, err) != 0)
        return remedies && at->choice.fitting == 0
                   ? erg_layout_say_needed(&at->remedy, at->searches, err)
                   : -1;
    return 0;
}
