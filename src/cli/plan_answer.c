/* Answers of ergon plan: hands what was found to who prints it. */
#include "cli/plan_answer.h"
#include "cli/print.h"

#include "cli/plan_print.h"

#include "base/memory.h"
#include "base/text.h"
#include "io/json.h"
#include "layout/exchange/export.h"
#include "layout/exchange/profile_rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* A layout of an answer as what --export names, but a profile. */
static void print_export(const struct plan_call *call, const struct erg_layout_answer *answer,
                         const struct erg_layout_candidate *candidate)
{
    const struct erg_layout_query *at = &call->query;
    const int export = call->values->export;
    struct erg_text text = {0};
    if (export == PLAN_EXPORT_JOB)
        erg_layout_query_job(&text, at, candidate);
    else
        erg_layout_export(&text, (enum erg_export_format) export, at->job->model,
                          &candidate->layout);
    if (export != PLAN_EXPORT_JOB && erg_layout_query_is_mixed(at))
        erg_plan_print_ranks(answer, candidate);
    fputs(text.data, stdout);
    erg_text_release(&text);
}

/* A layout beside the best of those that fit, if there is one. */
static int print_beside_best(struct plan_call *call, const struct erg_layout_candidate *one,
                             const char *verdict, struct erg_error *err)
{
    struct erg_layout_query *at = &call->query;
    int status = erg_layout_query_fastest(at, err);
    if (status && err->status != ERG_INFEASIBLE)
        return -1;
    const struct erg_layout_candidate *best = status ? NULL : &at->found.items[0];
    const struct erg_layout_candidate *const rows[] = {one, best};
    const struct erg_layout_answer answer = erg_layout_query_answer(at);
    erg_plan_print_heading(&answer);
    erg_plan_print_rows(&answer, rows, best ? 2 : 1);
    erg_plan_print_stages("This one", &answer, one);
    if (best)
        erg_plan_print_stages("The fastest", &answer, best);
    erg_plan_print_items(&answer, one, best);
    printf("\n%s: ", call->values->why);
    if (best && !verdict)
        printf("%.1f %% slower than the fastest.\n",
               100 * (one->time.total / best->time.total - 1));
    else
        printf("%s.\n", verdict);
    return 0;
}

/* What a layout that does not fit would be with as much memory as it needs: as it is, without
 * offloading. */
static int print_unfit(struct plan_call *call, const struct erg_layout *layout)
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

int erg_plan_explain(struct plan_call *call, struct erg_error *err)
{
    struct erg_layout_query *at = &call->query;
    struct erg_layout layout;
    if (erg_layout_query_one(at, "--why", call->values->why, &layout, err) != 0) {
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

static void print_text(const struct plan_call *call, const struct erg_layout_answer *answer)
{
    const struct erg_layout_query *at = &call->query;
    const struct erg_layout_candidate *first = erg_layout_query_best(at);
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
    if (call->values->wish.layout)
        erg_plan_print_items(answer, first, NULL);
    else if (!answer->choice)
        erg_plan_print_tried(&at->found);
    if (call->values->output)
        printf("\nlayouts %s/layouts.json, page %s/layouts.html, the best as a job %s/job.yaml, "
               "its clocks %s/plan.json\n",
               call->values->output, call->values->output, call->values->output,
               call->values->output);
}

/* For ergon simulate, in place of an answer. */
int erg_plan_print_profile(const struct plan_call *call, struct erg_error *err)
{
    const struct erg_layout_query *at = &call->query;
    const struct erg_layout_choice_request request = erg_layout_query_choice(at);
    struct erg_text text = {0};
    int status = erg_profile_rows(&text, &request, at->energy.gpu->name,
                                  erg_layout_query_cluster(at)->gpus_per_node, err);
    if (!status)
        fputs(text.data, stdout);
    erg_text_release(&text);
    return status;
}

int erg_plan_answer(struct plan_call *call, bool json, struct erg_error *err)
{
    struct erg_layout_query *at = &call->query;
    const int export = call->values->export;
    int status = erg_layout_query_find(at, err);
    const struct erg_layout_answer answer = erg_layout_query_answer(at);
    if (status) {
        if (json && err->status == ERG_INFEASIBLE)
            erg_print_json(erg_layout_refusal_document(&answer, err->message, &at->remedy));
        return -1;
    }
    if (call->values->output && erg_layout_query_write(at, call->values->output, err) != 0)
        return -1;
    if (export >= 0)
        print_export(call, &answer, erg_layout_query_best(at));
    else if (json)
        erg_print_json(erg_layout_document(&answer));
    else
        print_text(call, &answer);
    return 0;
}
