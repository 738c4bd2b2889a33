/* Searches for what ergon plan is asked, and hands it to who prints or writes it. */
#include "cli/plan_answer.h"
#include "cli/print.h"

#include "cli/plan_print.h"
#include "cli/plan_profile.h"

#include "base/memory.h"
#include "base/text.h"
#include "io/file.h"
#include "io/json.h"
#include "layout/energy/candidate.h"
#include "layout/exchange/export.h"
#include "plan/plan.h"
#include "report/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static bool is_mixed(const struct plan_call *at)
{
    return at->searches->kind_count > 1;
}

/* Whether the answer is one over clocks. */
static bool is_over_clocks(const struct plan_call *at)
{
    const struct plan_values *values = at->values;
    return values->objective >= 0 || at->query.deadline_s > 0 || at->query.energy_j > 0 ||
           at->query.power_w > 0 || at->search_count > 1 || values->output;
}

static struct erg_layout_answer answer_of(const struct plan_call *at)
{
    const bool clocks = is_over_clocks(at);
    return (struct erg_layout_answer){.job = at->job,
                                      .searches = at->searches,
                                      .search_count = at->search_count,
                                      .found = at->found.evaluated ? &at->found : NULL,
                                      .choice = clocks ? &at->choice : NULL,
                                      .query = clocks ? &at->query : NULL,
                                      .counts = at->counts,
                                      .top = (size_t)at->values->top,
                                      .points = at->points.items,
                                      .point_count = at->points.count};
}

static struct erg_layout_choice_request choice_request(const struct plan_call *at)
{
    return (struct erg_layout_choice_request){.searches = at->searches,
                                              .search_count = at->search_count,
                                              .query = at->query,
                                              .whole_union =
                                                  at->values->output || at->search_count > 1,
                                              .most = 24,
                                              .more = 24,
                                              .tolerance = 0.003};
}

/* ---- one layout ---- */

/* What `text` says, with the job's recomputation unless the command line names another. */
static int parse_layout(struct erg_layout *layout, const struct plan_call *at, const char *text,
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

/* Whether some stages of these degrees are layouts of the model, and GPUs of several kinds enough
 * for them. */
static int check_degrees(const struct plan_call *at, const struct erg_layout *asked,
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
    layout.data = 1;
    layout.microbatches = asked->pipeline;
    if (asked->pipeline * asked->virtual_stages <= search->model->layers)
        layout.pipeline = layout.virtual_stages = 1; /* layers are split */
    return erg_layout_check(&layout, search->model, err);
}

/* Of several kinds: the fastest layout of these degrees and this recomputation. */
static int search_degrees(struct plan_call *at, const struct erg_layout *layout,
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
                                              .microbatch = layout->microbatch};
    if (erg_layout_search(&at->found, &search, err) != 0)
        return -1;
    erg_layout_results_shorten(&at->found, 1);
    return 0;
}

/* The layout that `text` says becomes the only one that was found. Of one kind, where it does not
 * fit, it is refused with the smallest change that helps. */
static int find_asked(struct plan_call *at, const char *option, const char *text,
                      struct erg_layout *layout, struct erg_error *err)
{
    struct erg_layout_candidate one;
    int status = parse_layout(layout, at, text, err);
    if (!status && is_mixed(at)) {
        status = search_degrees(at, layout, err);
    } else if (!status) {
        status = erg_layout_evaluate(&one, at->searches, layout, NULL, 0, err);
        if (status)
            erg_plan_say_change(&at->remedy, at->searches, layout, err);
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

/* A layout of an answer as what --export names, but a profile. */
static void print_export(const struct plan_call *at, const struct erg_layout_answer *answer,
                         const struct erg_layout_candidate *candidate)
{
    const int export = at->values->export;
    struct erg_text text = {0};
    if (export == PLAN_EXPORT_JOB)
        erg_layout_job(&text, answer, at->cluster, at->values->engine, candidate);
    else
        erg_layout_export(&text, (enum erg_export_format) export, at->job->model,
                          &candidate->layout);
    if (export != PLAN_EXPORT_JOB && is_mixed(at))
        erg_plan_print_ranks(answer, candidate);
    fputs(text.data, stdout);
    erg_text_release(&text);
}

static void note_point(void *context, const struct erg_layout_candidate *candidate)
{
    enum { MOST = 20000 }; /* as many as a page can draw */
    struct plan_call *at = context;
    struct erg_layout_energy energy;
    if (at->points.count >= MOST)
        return;
    erg_layout_candidate_energy(&energy, at->searches, candidate);
    ERG_PUSH(&at->points, items,
             (struct erg_layout_point){(float)candidate->time.total, (float)energy.total_j,
                                       (float)candidate->peak_bytes});
}

/* The fastest layouts at the highest clock, as many as are shown; and what a page draws, on several
 * kinds only of the fastest, since there are too many others. */
static int find_fastest(struct plan_call *at, struct erg_error *err)
{
    enum { DRAWN = 300 };
    struct erg_layout_search search = *at->searches;
    const bool draws = at->values->output;
    if (draws && !is_mixed(at))
        search.each = note_point;
    else if (draws && search.top < DRAWN)
        search.top = DRAWN;
    search.context = at;
    if (erg_layout_search(&at->found, &search, err) != 0)
        return -1;
    for (size_t i = 0; draws && is_mixed(at) && i < at->found.count; i++)
        note_point(at, &at->found.items[i]);
    erg_layout_results_shorten(&at->found, (size_t)at->values->top);
    return 0;
}

/* A layout beside the best of those that fit, if there is one. */
static int print_beside_best(struct plan_call *at, const struct erg_layout_candidate *one,
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
    erg_plan_print_stages("This one", &answer, one);
    if (best)
        erg_plan_print_stages("The fastest", &answer, best);
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
static int print_unfit(struct plan_call *at, const struct erg_layout *layout)
{
    struct erg_layout_search larger = *at->searches;
    struct erg_layout_candidate one;
    struct erg_error ignored = {0};
    larger.kinds[0].memory_bytes = INFINITY;
    if (erg_layout_evaluate(&one, &larger, layout, NULL, 0, NULL) != 0)
        return 0; /* not a matter of memory */
    int status = print_beside_best(at, &one, "does not fit", &ignored);
    erg_layout_candidate_release(&one);
    return status;
}

int erg_plan_explain(struct plan_call *at, struct erg_error *err)
{
    struct erg_layout layout;
    if (find_asked(at, "--why", at->values->why, &layout, err) != 0) {
        if (err->status == ERG_INFEASIBLE && !is_mixed(at))
            print_unfit(at, &layout);
        return -1;
    }
    struct erg_layout_candidate one = at->found.items[0];
    at->found.count = 0;
    erg_layout_results_release(&at->found);
    int status = print_beside_best(at, &one, NULL, err);
    erg_layout_candidate_release(&one);
    return status;
}

/* ---- all of them ---- */

/* The best layout. */
static const struct erg_layout_candidate *best(const struct plan_call *at)
{
    return at->choice.pick_count ? &at->choice.layouts[at->choice.picks[0].option].candidate
                                 : &at->found.items[0];
}

/* The kinds of GPUs of an answer, and on which each stage of a layout lies. */
static size_t *set_kinds(struct erg_plan *plan, const struct plan_call *at,
                         const struct erg_layout_candidate *candidate)
{
    plan->kind_count = at->searches->kind_count;
    plan->kinds = erg_arena_alloc(&plan->arena, plan->kind_count * sizeof *plan->kinds);
    for (size_t k = 0; k < plan->kind_count; k++) {
        const struct erg_layout_kind *kind = &at->searches->kinds[k];
        plan->kinds[k] = (struct erg_plan_kind){
            .gpu = kind->gpu->name,
            .device = erg_arena_printf(&plan->arena, "model of %s", kind->gpu->name),
            .identity = kind->engine->name,
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

static void set_step_ends(struct erg_plan *plan, const struct plan_call *at,
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

/* The answer as a plan: what each instruction runs at. */
static int write_plan(const struct plan_call *at, const struct erg_layout_answer *answer,
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
    const size_t *kinds = set_kinds(plan, at, &planned->candidate);
    set_step_ends(plan, at, layout, kinds);
    erg_plan_set_iteration(plan, &frontier->iteration, frontier->tables, kinds,
                           (size_t)frontier->points.points[pick->point].recipe,
                           "the best layout's point for the goal");
    int status = erg_plan_complete(plan, err) || erg_plan_write(plan, path, err) ? -1 : 0;
    erg_plan_free(plan);
    return status;
}

/* Writes layouts.json, layouts.html, job.yaml and plan.json of an answer over clocks. */
static int write_files(const struct plan_call *at, const struct erg_layout_answer *answer,
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

/* The choice over clocks: of the one that was asked for, or of all, and with several numbers of
 * GPUs what each gives. */
static int choose(struct plan_call *at, struct erg_error *err)
{
    const struct erg_layout_choice_request request = choice_request(at);
    if (at->values->layout) {
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

static void print_text(const struct plan_call *at, const struct erg_layout_answer *answer)
{
    const struct erg_layout_candidate *first = best(at);
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
        free(rows);
    }
    erg_plan_print_stages(answer->choice ? "The answer" : "The fastest", answer, first);
    if (at->values->layout)
        erg_plan_print_items(answer, first, NULL);
    else if (!answer->choice)
        erg_plan_print_tried(&at->found);
    if (at->values->output)
        printf("\nlayouts %s/layouts.json, page %s/layouts.html, the best as a job %s/job.yaml, "
               "its clocks %s/plan.json\n",
               at->values->output, at->values->output, at->values->output, at->values->output);
}

/* For ergon simulate, in place of an answer. */
int erg_plan_print_profile(const struct plan_call *at, struct erg_error *err)
{
    const struct erg_layout_choice_request request = choice_request(at);
    struct erg_text text = {0};
    int status = erg_plan_profile(&text, &request, at->energy.gpu->name,
                                  erg_plan_cluster(at)->gpus_per_node, err);
    if (!status)
        fputs(text.data, stdout);
    erg_text_release(&text);
    return status;
}

/* What was asked for, or the best of all. Where nothing fits on one kind of GPUs, what would. */
static int find(struct plan_call *at, struct erg_error *err)
{
    const struct plan_values *values = at->values;
    const bool clocks = is_over_clocks(at), remedies = at->search_count == 1 && !is_mixed(at);
    struct erg_layout layout;
    if (values->layout) {
        if (find_asked(at, "--layout", values->layout, &layout, err) != 0)
            return -1;
        return clocks && values->export < 0 ? choose(at, err) : 0;
    }
    if (at->search_count == 1 && (!clocks || values->output) && find_fastest(at, err) != 0)
        return remedies ? erg_plan_say_needed(&at->remedy, at->searches, err) : -1;
    if (clocks && choose(at, err) != 0)
        return remedies && at->choice.fitting == 0
                   ? erg_plan_say_needed(&at->remedy, at->searches, err)
                   : -1;
    return 0;
}

int erg_plan_answer(struct plan_call *at, bool json, struct erg_error *err)
{
    const int export = at->values->export;
    int status = find(at, err);
    const struct erg_layout_answer answer = answer_of(at);
    if (status) {
        if (json && err->status == ERG_INFEASIBLE)
            erg_print_json(erg_layout_refusal_document(&answer, err->message, &at->remedy));
        return -1;
    }
    if (at->values->output && write_files(at, &answer, err) != 0)
        return -1;
    if (export >= 0)
        print_export(at, &answer, best(at));
    else if (json)
        erg_print_json(erg_layout_document(&answer));
    else
        print_text(at, &answer);
    return 0;
}
