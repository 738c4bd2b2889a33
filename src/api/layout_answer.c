/* Answers about layouts: finds them, and hands what was found to who prints it. */
#include "api/layout_answer.h"

#include "base/memory.h"
#include "base/text.h"
#include "io/json.h"
#include "io/print.h"
#include "layout/exchange/export.h"
#include "layout/exchange/profile_rows.h"
#include "report/text/layout_print.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* A layout of an answer as what --export names, but a profile. */
static void print_export(const struct erg_layouts_call *call,
                         const struct erg_layout_answer *answer,
                         const struct erg_layout_candidate *candidate)
{
    const struct erg_layout_query *at = &call->query;
    const int export = call->asked->export;
    struct erg_text text = {0};
    if (export == ERG_LAYOUTS_EXPORT_JOB)
        erg_layout_query_job(&text, at, candidate);
    else
        erg_layout_export(&text, (enum erg_export_format) export, at->job->model,
                          &candidate->layout);
    if (export != ERG_LAYOUTS_EXPORT_JOB && erg_layout_query_is_mixed(at))
        erg_layout_print_ranks(call->text, answer, candidate);
    fputs(text.data, call->text);
    erg_text_release(&text);
}

/* A layout next to the best of those that fit, if there is one. */
static int print_beside_best(struct erg_layouts_call *call, const struct erg_layout_candidate *one,
                             const char *verdict, struct erg_error *err)
{
    struct erg_layout_query *at = &call->query;
    FILE *out = call->text;
    int status = erg_layout_query_fastest(at, err);
    if (status && err->status != ERG_INFEASIBLE)
        return -1;
    const struct erg_layout_candidate *best = status ? NULL : &at->found.items[0];
    const struct erg_layout_candidate *const rows[] = {one, best};
    const struct erg_layout_answer answer = erg_layout_query_answer(at);
    erg_layout_print_heading(out, &answer);
    erg_layout_print_rows(out, &answer, rows, best ? 2 : 1);
    erg_layout_print_stages(out, "This one", &answer, one);
    if (best)
        erg_layout_print_stages(out, "The fastest", &answer, best);
    erg_layout_print_items(out, &answer, one, best);
    fprintf(out, "\n%s: ", call->asked->why);
    if (best && !verdict)
        fprintf(out, "%.1f %% slower than the fastest.\n",
                100 * (one->time.total / best->time.total - 1));
    else
        fprintf(out, "%s.\n", verdict);
    return 0;
}

/* A layout that does not fit, with as much memory as it needs: as it is, without
 * offloading. */
static int print_unfit(struct erg_layouts_call *call, const struct erg_layout *layout)
{
    struct erg_layout_query *at = &call->query;
    struct erg_layout_search larger = *at->searches;
    struct erg_layout_candidate one;
    struct erg_error ignored = {0};
    larger.kinds[0].memory_bytes = INFINITY;
    if (erg_layout_evaluate(&one, &larger, layout, NULL, 0, NULL) != 0)
        return 0; /* not a matter of memory */
    int status = print_beside_best(call, &one, "does not fit", &ignored);
    erg_layout_candidate_release(&one);
    return status;
}

static int explain(struct erg_layouts_call *call, struct erg_error *err)
{
    struct erg_layout_query *at = &call->query;
    struct erg_layout layout;
    if (erg_layout_query_one(at, "--why", call->asked->why, &layout, err) != 0) {
        if (err->status == ERG_INFEASIBLE && !erg_layout_query_is_mixed(at))
            print_unfit(call, &layout);
        return -1;
    }
    struct erg_layout_candidate one = at->found.items[0];
    at->found.count = 0;
    erg_layout_results_release(&at->found);
    int status = print_beside_best(call, &one, NULL, err);
    erg_layout_candidate_release(&one);
    return status;
}

/* ---- all of them ---- */

static void print_text(const struct erg_layouts_call *call, const struct erg_layout_answer *answer)
{
    FILE *out = call->text;
    const struct erg_layout_query *at = &call->query;
    const struct erg_layout_candidate *first = erg_layout_query_best(at);
    erg_layout_print_heading(out, answer);
    if (answer->counts)
        erg_layout_print_counts(out, answer);
    if (answer->choice) {
        erg_layout_print_choice(out, answer, answer->top);
    } else {
        const struct erg_layout_candidate **rows = erg_xcalloc(at->found.count, sizeof *rows);
        for (size_t i = 0; i < at->found.count; i++)
            rows[i] = &at->found.items[i];
        erg_layout_print_rows(out, answer, rows, at->found.count);
        free(rows);
    }
    erg_layout_print_stages(out, answer->choice ? "The answer" : "The fastest", answer, first);
    if (call->asked->input.layout)
        erg_layout_print_items(out, answer, first, NULL);
    else if (!answer->choice)
        erg_layout_print_tried(out, &at->found);
    if (call->asked->output)
        fprintf(out,
                "\nlayouts %s/layouts.json, page %s/layouts.html, the best as a job %s/job.yaml, "
                "its clocks %s/plan.json\n",
                call->asked->output, call->asked->output, call->asked->output, call->asked->output);
}

/* For ergon simulate, in place of an answer. */
static int print_profile(const struct erg_layouts_call *call, struct erg_error *err)
{
    const struct erg_layout_query *at = &call->query;
    const struct erg_layout_choice_request request = erg_layout_query_choice(at);
    struct erg_text text = {0};
    int status = erg_profile_rows(&text, &request, at->energy.gpu->name,
                                  erg_layout_query_cluster(at)->gpus_per_node, err);
    if (!status)
        fputs(text.data, call->text);
    erg_text_release(&text);
    return status;
}

static int answer_best(struct erg_layouts_call *call, struct erg_error *err)
{
    struct erg_layout_query *at = &call->query;
    const int export = call->asked->export;
    int status = erg_layout_query_find(at, err);
    const struct erg_layout_answer answer = erg_layout_query_answer(at);
    if (status) {
        if (err->status == ERG_INFEASIBLE)
            erg_print_json(call->json,
                           erg_layout_refusal_document(&answer, err->message, &at->remedy));
        return -1;
    }
    if (call->asked->output && erg_layout_query_write(at, call->asked->output, err) != 0)
        return -1;
    if (export >= 0) {
        print_export(call, &answer, erg_layout_query_best(at));
        return 0;
    }
    erg_print_json(call->json, erg_layout_document(&answer));
    print_text(call, &answer);
    return 0;
}

/* ---- what was asked ---- */

/* Refuses options that have no effect with the others. */
static int check_options(const struct erg_layouts_asked *values, struct erg_error *err)
{
    const struct erg_layout_input *input = &values->input;
    const bool one = input->layout || values->why;
    if (input->layout && values->why)
        return erg_fail(err, ERG_USAGE, "--layout and --why were both given; expected one of them");
    if (input->layout && input->fsdp)
        return erg_fail(err, ERG_USAGE,
                        "--fsdp extends a search, and --layout fixes one layout; expected one of "
                        "them (a layout sets fsdp=N)");
    if (values->planner == ERG_PLANNER_ARENA &&
        (one || values->output || input->slack > 0 || input->objective >= 0 ||
         input->recompute >= 0 || input->per_stage || input->fsdp || !isnan(input->host_bytes) ||
         !isnan(input->deadline_s) || !isnan(input->energy_j) || !isnan(input->power_w) ||
         (values->export >= 0 && values->export != ERG_LAYOUTS_EXPORT_PROFILE)))
        return erg_fail(
            err, ERG_USAGE,
            "--planner arena plans time and memory at the highest clock with full recomputation; "
            "expected it with no options other than --gpus, --cluster, --batch, --sequence, "
            "--engine, --memory-budget, --json and --export profile");
    if (values->export == ERG_LAYOUTS_EXPORT_PROFILE &&
        (one || values->output || input->slack > 0 || input->objective >= 0 ||
         !isnan(input->deadline_s) || !isnan(input->energy_j) || !isnan(input->power_w)))
        return erg_fail(err, ERG_USAGE,
                        "--export profile prints whole frontiers of one batch; expected it without "
                        "--layout, --why, --output, --batch-slack, objectives and limits");
    if (values->why && values->export >= 0)
        return erg_fail(err, ERG_USAGE,
                        "--why prints text for people; expected it without --export (--layout with "
                        "--export exports one layout)");
    if (values->why && (input->objective >= 0 || !isnan(input->deadline_s) ||
                        !isnan(input->energy_j) || !isnan(input->power_w)))
        return erg_fail(err, ERG_USAGE,
                        "--why compares layouts at the highest clock; expected objectives and "
                        "budgets with --layout instead");
    if (values->slots &&
        (values->why || values->output || values->export >= 0 ||
         values->planner == ERG_PLANNER_ARENA || input->per_stage || !isnan(input->deadline_s) ||
         !isnan(input->energy_j) || !isnan(input->power_w)))
        return erg_fail(
            err, ERG_USAGE,
            "--slots places one layout at the highest clocks that heat allows; expected it without "
            "limits, --why, --output, --export, --per-stage and --planner");
    if (one && values->output)
        return erg_fail(err, ERG_USAGE,
                        "--output writes all layouts; expected it without --layout and --why "
                        "(--layout with --export job prints one job)");
    return 0;
}

static int check_kinds(const struct erg_layouts_asked *asked, const struct erg_cluster *cluster,
                       struct erg_error *err)
{
    const char *option = asked->planner == ERG_PLANNER_ARENA           ? "--planner arena"
                         : asked->export == ERG_LAYOUTS_EXPORT_PROFILE ? "--export profile"
                                                                       : NULL;
    if (!option || cluster->more_count == 0)
        return 0;
    return erg_fail(err, ERG_USAGE,
                    "the cluster has nodes of several kinds; %s is for those of one", option);
}

/* The question, as the options put it. */
static int open_query(struct erg_layouts_call *call, const char *path, struct erg_error *err)
{
    const struct erg_layouts_asked *asked = call->asked;
    struct erg_layout_query *query = &call->query;
    call->input = asked->input;
    call->input.path = path;
    call->input.dashes = true;
    call->input.draws = asked->output != NULL;
    call->input.plain = asked->export >= 0;
    return erg_layout_query_open(query, &call->input, err) != 0 ||
                   check_kinds(asked, erg_layout_query_cluster(query), err) != 0 ||
                   erg_layout_query_prepare(query, err) != 0
               ? -1
               : 0;
}

static int answer(struct erg_layouts_call *call, struct erg_error *err)
{
    const struct erg_layouts_asked *asked = call->asked;
    if (call->query.search_count > 1 && (asked->input.layout || asked->why))
        return erg_fail(err, ERG_USAGE,
                        "--gpus gives %zu numbers of GPUs; --layout and --why need one",
                        call->query.search_count);
    return asked->planner == ERG_PLANNER_ARENA           ? erg_layouts_arena(call, err)
           : asked->slots                                ? erg_layouts_places(call, err)
           : asked->why                                  ? explain(call, err)
           : asked->export == ERG_LAYOUTS_EXPORT_PROFILE ? print_profile(call, err)
                                                         : answer_best(call, err);
}

int erg_layouts_answer(FILE *text, FILE *json, const struct erg_layouts_asked *asked,
                       const char *path, struct erg_error *err)
{
    struct erg_layouts_call at = {.text = text, .json = json, .asked = asked};
    int status =
        check_options(asked, err) != 0 || open_query(&at, path, err) != 0 || answer(&at, err) != 0
            ? -1
            : 0;
    erg_layout_query_release(&at.query);
    return status;
}
