#include "cli/plan_answer.h"

#include "cli/plan_change.h"
#include "cli/plan_items.h"
#include "cli/plan_print.h"
#include "cli/plan_profile.h"

#include "base/memory.h"
#include "base/text.h"
#include "io/file.h"
#include "io/json.h"
#include "layout/exchange/export.h"
#include "plan/plan.h"
#include "report/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

bool erg_plan_over_clocks(const struct planning *at)
{
    const struct plan_values *values = at->values;
    return values->objective >= 0 || at->query.deadline_s > 0 || at->query.energy_j > 0 ||
           at->query.power_w > 0 || at->search_count > 1 || values->output;
}

static struct erg_layout_answer answer_of(const struct planning *at)
{
    const bool clocks = erg_plan_over_clocks(at);
    return (struct erg_layout_answer){.job = at->job,
                                      .searches = at->searches,
                                      .search_count = at->search_count,
                                      .energy = &at->energy,
                                      .found = at->found.evaluated ? &at->found : NULL,
                                      .choice = clocks ? &at->choice : NULL,
                                      .query = clocks ? &at->query : NULL,
                                      .counts = at->counts,
                                      .top = (size_t)at->values->top,
                                      .points = at->points.items,
                                      .point_count = at->points.count};
}

struct erg_layout_choice_request erg_plan_choice_request(const struct planning *at)
{
    return (struct erg_layout_choice_request){.searches = at->searches,
                                              .search_count = at->search_count,
                                              .source = at->source,
                                              .energy = &at->energy,
                                              .query = at->query,
                                              .whole_union =
                                                  at->values->output || at->search_count > 1,
                                              .most = 24,
                                              .more = 24,
                                              .tolerance = 0.003};
}

/* ---- one layout ---- */

/* What `text` says, with the job's recomputation unless the command line names another. */
static int parse_layout(struct erg_layout *layout, const struct planning *at, const char *text,
                        struct erg_error *err)
{
    const struct erg_layout *own = &at->job->layout;
    *layout = (struct erg_layout){.microbatch = 1,
                                  .sequence = own->sequence,
                                  .virtual_stages = 1,
                                  .recompute = own->recompute};
    if (at->values->recompute >= 0)
        layout->recompute = (enum erg_recompute)at->values->recompute;
    return erg_layout_parse(layout, text, at->job->model->layers, err);
}

/* Refused with the smallest change that helps where it does not fit. */
static int evaluate(struct erg_layout_candidate *one, struct planning *at,
                    const struct erg_layout *layout, const char *option, const char *text,
                    struct erg_error *err)
{
    if (erg_layout_evaluate(one, at->searches, layout, err) == 0)
        return 0;
    erg_plan_say_change(&at->remedy, at->searches, layout, err);
    return erg_fail_context(err, "%s %s", option, text);
}

/* Takes the document. */
static void print_document(json_t *document)
{
    char *text = erg_json_text(document);
    puts(text);
    free(text);
    json_decref(document);
}

int erg_plan_print_json(const struct erg_layout_answer *answer)
{
    print_document(erg_layout_document(answer));
    return 0;
}

void erg_plan_print_refusal(const struct erg_layout_answer *answer,
                            const struct erg_layout_remedy *remedy, const struct erg_error *err)
{
    if (err->status == ERG_INFEASIBLE)
        print_document(erg_layout_refusal_document(answer, err->message, remedy));
}

void erg_plan_print_export(const struct planning *at, const struct erg_layout_answer *answer,
                           const struct erg_layout_candidate *candidate)
{
    const int export = at->values->export;
    struct erg_text text = {0};
    if (export == PLAN_EXPORT_JOB)
        erg_layout_job(&text, answer, at->cluster, at->values->engine, candidate);
    else
        erg_layout_export(&text, (enum erg_export_format) export, at->job->model,
                          &candidate->layout);
    fputs(text.data, stdout);
    erg_text_release(&text);
}

static int show_one(struct planning *at, bool json, struct erg_error *err)
{
    struct erg_layout_candidate one = {0};
    const struct erg_layout_candidate *row = &one;
    const char *text = at->values->layout;
    struct erg_layout layout;
    if (parse_layout(&layout, at, text, err) != 0)
        return erg_fail_context(err, "--layout %s", text);
    if (evaluate(&one, at, &layout, "--layout", text, err) != 0)
        return -1;
    if (at->values->export >= 0) {
        const struct erg_layout_answer answer = answer_of(at);
        erg_plan_print_export(at, &answer, &one);
        erg_layout_candidate_release(&one);
        return 0;
    }
    if (erg_plan_over_clocks(at)) { /* the choice owns the layout then */
        const struct erg_layout_choice_request request = erg_plan_choice_request(at);
        if (erg_layout_choose_point(&at->choice, &request, &one, err) != 0)
            return -1;
        row = &at->choice.layouts[0].candidate;
    } else {
        at->found = (struct erg_layout_found){.items = erg_xcalloc(1, sizeof *at->found.items),
                                              .count = 1,
                                              .evaluated = 1,
                                              .feasible = 1};
        at->found.items[0] = one;
        row = at->found.items;
    }
    const struct erg_layout_answer answer = answer_of(at);
    if (json)
        return erg_plan_print_json(&answer);
    erg_plan_print_heading(&answer);
    if (answer.choice)
        erg_plan_print_choice(&answer, 1);
    else
        erg_plan_print_rows(&answer, &row, 1);
    erg_plan_print_items(&answer, row, NULL);
    return 0;
}

/* The fastest layouts at the highest clock, as many as are shown. */
static int find_fastest(struct planning *at, struct erg_error *err)
{
    if (erg_layout_search(&at->found, at->searches, err) != 0)
        return -1;
    erg_layout_found_shorten(&at->found, (size_t)at->values->top);
    return 0;
}

/* A layout beside the best of those that fit, if there is one. */
static int print_beside_best(struct planning *at, const struct erg_layout_candidate *one,
                             const char *verdict, struct erg_error *err)
{
    int status = find_fastest(at, err);
    if (status && err->status != ERG_INFEASIBLE)
        return -1;
    const struct erg_layout_candidate *best = status ? NULL : &at->found.items[0];
    const struct erg_layout_candidate *const rows[] = {one, best};
    const struct erg_layout_answer answer = answer_of(at);
    erg_plan_print_heading(&answer);
    erg_plan_print_rows(&answer, rows, best ? 2 : 1);
    erg_plan_print_items(&answer, one, best);
    printf("\n%s: ", at->values->why);
    if (best && !verdict)
        printf("%.1f %% slower than the fastest.\n",
               100 * (one->time.total / best->time.total - 1));
    else
        printf("%s.\n", verdict);
    return 0;
}

/* What a layout that does not fit would be with as much memory as it needs: as it is, without
 * offloading. */
static int print_unfit(struct planning *at, const struct erg_layout *layout)
{
    struct erg_layout_search larger = *at->searches;
    struct erg_layout_candidate one;
    struct erg_error ignored = {0};
    larger.memory_bytes = INFINITY;
    if (erg_layout_evaluate(&one, &larger, layout, NULL) != 0)
        return 0; /* not a matter of memory */
    int status = print_beside_best(at, &one, "does not fit", &ignored);
    erg_layout_candidate_release(&one);
    return status;
}

int erg_plan_explain(struct planning *at, struct erg_error *err)
{
    struct erg_layout_candidate one = {0};
    const char *text = at->values->why;
    struct erg_layout layout;
    if (parse_layout(&layout, at, text, err) != 0)
        return erg_fail_context(err, "--why %s", text);
    if (evaluate(&one, at, &layout, "--why", text, err) != 0) {
        if (err->status == ERG_INFEASIBLE)
            print_unfit(at, &layout);
        return -1;
    }
    int status = print_beside_best(at, &one, NULL, err);
    erg_layout_candidate_release(&one);
    return status;
}

/* ---- all of them ---- */

/* The best layout. */
static const struct erg_layout_candidate *best(const struct planning *at)
{
    return erg_plan_over_clocks(at) ? &at->choice.layouts[at->choice.picks[0].option].candidate
                                    : &at->found.items[0];
}

/* The kinds of GPUs of an answer, and on which each stage of a layout lies. */
static size_t *set_kinds(struct erg_plan *plan, const struct planning *at,
                         const struct erg_layout_answer *answer,
                         const struct erg_layout_candidate *candidate)
{
    const struct erg_mixed_search *mixed = answer->mixed;
    plan->kind_count = mixed ? mixed->kind_count : 1;
    plan->kinds = erg_arena_alloc(&plan->arena, plan->kind_count * sizeof *plan->kinds);
    for (size_t k = 0; k < plan->kind_count; k++) {
        const struct erg_gpu *gpu = mixed ? mixed->kinds[k].gpu : at->energy.gpu;
        plan->kinds[k] = (struct erg_plan_kind){
            .gpu = gpu->name,
            .device = erg_arena_printf(&plan->arena, "model of %s", gpu->name),
            .identity = mixed ? mixed->kinds[k].engine->name : at->energy.time.engine->name,
            .emulated = true,
            .gpus_used =
                mixed ? erg_mixed_gpus_of(candidate, k) : erg_layout_gpus(&candidate->layout),
            .blocking_power_w = gpu->blocking_power_w,
            .static_power_w = gpu->static_power_w,
            .power_cap_w = gpu->power_cap_w,
            .mean_clock_mhz = NAN,
        };
    }
    size_t stage = 0;
    size_t *kinds =
        erg_arena_alloc(&plan->arena, (size_t)candidate->layout.pipeline * sizeof *kinds);
    for (size_t i = 0; i < candidate->block_count; i++)
        for (long s = 0; s < candidate->blocks[i].stages; s++)
            kinds[stage++] = candidate->blocks[i].kind;
    return kinds;
}

/* The answer as a plan: what each instruction runs at. */
static int write_plan(const struct planning *at, const struct erg_layout_answer *answer,
                      const char *path, struct erg_error *err)
{
    const struct erg_layout_pick *pick = &answer->choice->picks[0];
    const struct erg_layout_planned *planned = &answer->choice->layouts[pick->option];
    const struct erg_layout_frontier *frontier = &planned->frontier;
    const struct erg_layout *layout = &planned->candidate.layout;
    struct erg_plan *plan = erg_plan_new();
    plan->name = at->job->name;
    plan->model = at->job->model->name;
    plan->layout = *layout;
    plan->scale.gpus_per_stage = (int)(layout->tensor * layout->context);
    const size_t *kinds = set_kinds(plan, at, answer, &planned->candidate);
    erg_plan_set_iteration(plan, &frontier->iteration, frontier->tables, kinds,
                           (size_t)frontier->points.points[pick->point].recipe,
                           "the best layout's point for the goal");
    int status = erg_plan_complete(plan, err) || erg_plan_write(plan, path, err) ? -1 : 0;
    erg_plan_free(plan);
    return status;
}

int erg_plan_write_files(const struct planning *at, const struct erg_layout_answer *answer,
                         struct erg_error *err)
{
    const char *folder = at->values->output;
    struct erg_arena arena = {0};
    struct erg_text job = {0};
    json_t *document = erg_layout_document(answer);
    erg_layout_job(&job, answer, at->cluster, at->values->engine, best(at));
    int status =
        erg_dir_make(folder, err) ||
                erg_json_write(erg_arena_printf(&arena, "%s/layouts.json", folder), document,
                               err) ||
                erg_report_layouts_write(erg_arena_printf(&arena, "%s/layouts.html", folder),
                                         document, err) ||
                write_plan(at, answer, erg_arena_printf(&arena, "%s/plan.json", folder), err) ||
                erg_file_write(erg_arena_printf(&arena, "%s/job.yaml", folder), job.data, job.count,
                               err)
            ? -1
            : 0;
    json_decref(document);
    erg_text_release(&job);
    erg_arena_release(&arena);
    return status;
}

int erg_plan_choose(struct planning *at, struct erg_error *err)
{
    const struct erg_layout_choice_request request = erg_plan_choice_request(at);
    if (erg_layout_choose(&at->choice, &request, err) != 0)
        return -1;
    if (at->search_count == 1)
        return 0;
    at->counts = erg_xcalloc(at->search_count, sizeof *at->counts);
    return erg_layout_counts_init(at->counts, &request, &at->choice, err);
}

void erg_plan_print_files(const char *folder)
{
    if (folder)
        printf("\nlayouts %s/layouts.json, page %s/layouts.html, the best as a job %s/job.yaml, "
               "its clocks %s/plan.json\n",
               folder, folder, folder, folder);
}

static void print_all(const struct planning *at, const struct erg_layout_answer *answer)
{
    erg_plan_print_heading(answer);
    if (answer->counts)
        erg_plan_print_counts(answer);
    if (answer->choice) {
        erg_plan_print_choice(answer, answer->top);
    } else {
        const struct erg_layout_candidate **rows = erg_xcalloc(at->found.count, sizeof *rows);
        for (size_t i = 0; i < at->found.count; i++)
            rows[i] = &at->found.items[i];
        erg_plan_print_rows(answer, rows, at->found.count);
        erg_plan_print_tried(&at->found);
        free(rows);
    }
}

/* For ergon simulate, in place of an answer. */
int erg_plan_print_profile(const struct planning *at, struct erg_error *err)
{
    const struct erg_layout_choice_request request = erg_plan_choice_request(at);
    const struct erg_cluster *cluster = at->cluster ? at->cluster : &at->job->cluster;
    struct erg_text text = {0};
    int status =
        erg_plan_profile(&text, &request, at->energy.gpu->name, cluster->gpus_per_node, err);
    if (!status)
        fputs(text.data, stdout);
    erg_text_release(&text);
    return status;
}

static int find(struct planning *at, bool json, struct erg_error *err)
{
    const char *folder = at->values->output;
    const bool clocks = erg_plan_over_clocks(at);
    if (at->search_count == 1 && (!clocks || folder) && find_fastest(at, err) != 0)
        return erg_plan_say_needed(&at->remedy, at->searches, err);
    if (clocks && erg_plan_choose(at, err) != 0)
        return at->choice.fitting == 0 && at->search_count == 1
                   ? erg_plan_say_needed(&at->remedy, at->searches, err)
                   : -1;
    const struct erg_layout_answer answer = answer_of(at);
    if (folder && erg_plan_write_files(at, &answer, err) != 0)
        return -1;
    if (at->values->export >= 0) {
        erg_plan_print_export(at, &answer, best(at));
        return 0;
    }
    if (json)
        return erg_plan_print_json(&answer);
    print_all(at, &answer);
    erg_plan_print_files(folder);
    return 0;
}

int erg_plan_answer(struct planning *at, bool json, struct erg_error *err)
{
    int status = (at->values->layout ? show_one : find)(at, json, err);
    if (status && json) {
        const struct erg_layout_answer answer = answer_of(at);
        erg_plan_print_refusal(&answer, &at->remedy, err);
    }
    return status;
}
