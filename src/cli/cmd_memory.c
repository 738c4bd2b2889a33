/* ergon memory JOB.yaml: what each stage of a layout needs, and how much to offload. */
#include "cli/cli.h"
#include "cli/memory_print.h"
#include "cli/memory_query.h"
#include "cli/print.h"

#include "base/log.h"
#include "io/json.h"
#include "layout/copies/traffic.h"
#include "layout/document/memory_document.h"
#include "report/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const accountings[] = {"arena", "framework", "static", NULL};
static const char *const copies[] = {"group", "layer", NULL};

#define AT(member) offsetof(struct memory_values, member)
static const struct erg_option options[] = {
    {"gpus", 'n', ERG_OPTION_LONG, "N", AT(gpus), 1, 1e7,
     .help = "GPUs in all; the cluster's unless given"},
    {"batch", 'b', ERG_OPTION_LONG, "B", AT(batch), 1, ERG_JOB_MOST_BATCH,
     .help = "sequences of an iteration; the job's unless given"},
    {"sequence", 's', ERG_OPTION_LONG, "S", AT(sequence), 1, 1e9, .help = "tokens of a sequence"},
    {"layout", 'l', ERG_OPTION_TEXT, "TEXT", AT(layout),
     .help = "degrees, for example t=2,c=2,p=8,l=2: tensor, context, pipeline, layers of a chunk; "
             "b microbatch; v virtual stages in place of l"},
    {"recompute", 'r', ERG_OPTION_CHOICE, "WHAT", AT(recompute), .choices = erg_recompute_names,
     .help = "what is computed again in the backward pass"},
    {"offload", 'a', ERG_OPTION_DOUBLE, "RATIO", AT(offload), 0, 1,
     .help = "share of the activations that moves to host memory"},
    {"solve-offload", 'S', ERG_OPTION_TEXT, "BYTES|gpu", AT(solve),
     .help = "the smallest ratio that fits into this memory of a GPU, for example 64GiB; gpu: into "
             "what the GPU of each stage has"},
    {"per-stage", 'p', ERG_OPTION_FLAG, NULL, AT(per_stage),
     .help = "with --solve-offload: a ratio for each stage"},
    {"copies", 'c', ERG_OPTION_CHOICE, "UNIT", AT(copies), .choices = copies,
     .default_text = "group", .help = "what is copied at once: all of a chunk, or a layer"},
    {"accounting", 'A', ERG_OPTION_CHOICE, "KIND", AT(accounting), .choices = accountings,
     .help =
         "bytes of the tensors (arena), of the blocks that a caching allocator gives them, or of "
         "the buffers of ergon's own training; as the engine has it unless given, else arena"},
    {"engine", 'e', ERG_OPTION_TEXT, "NAME", AT(engine),
     .help = "also say when copies and messages run on this engine, and how long compute waits for "
             "copies: a name of the catalogue, or a file"},
    {"report", 'o', ERG_OPTION_FILE, "FILE", AT(report),
     .help = "write a page with memory over time as HTML"},
    {0},
};

/* Everything of one call. */
struct memory_call {
    struct memory_query query;
    struct erg_memory_answer answer;
    struct erg_memory_traffic traffic;
    struct erg_memory_solution solution;
    struct erg_memory_result result;
    struct erg_memory_change change;
};

/* ---- the steps ---- */

/* Puts the ratios that were asked for into the layout, which is at its least memory where there are
 * none: *solved says so. */
static int solve(struct memory_call *at, bool *solved, struct erg_error *err)
{
    struct erg_layout *layout = &at->query.layout;
    struct erg_memory_answer *answer = &at->answer;
    const bool named = !isnan(at->query.solve_bytes);
    double *budgets = erg_xcalloc((size_t)layout->pipeline, sizeof *budgets);
    struct erg_error unsolved = {0};
    for (long s = 0; s < layout->pipeline; s++)
        budgets[s] = answer->rooms[s].gpu_bytes;
    *solved = erg_memory_solve(&at->solution, &answer->request, budgets,
                               named ? ERG_MEMORY_ERROR : 0, &unsolved) == 0;
    free(budgets);
    if (!*solved && unsolved.status != ERG_INFEASIBLE) {
        *err = unsolved;
        return -1;
    }
    layout->offload = *solved                                    ? at->solution.offload
                      : erg_memory_can_offload(&answer->request) ? 1
                                                                 : 0;
    if (!*solved)
        return 0;
    if (isnan(at->solution.offload)) {
        if (!answer->per_stage)
            return erg_fail(err, ERG_INFEASIBLE,
                            "no one ratio of offloading fits all stages: what one needs is too "
                            "much for another, whose receive buffers are larger than what leaves; "
                            "expected --per-stage, with which each has its own");
        layout->offload = 0;
        for (long i = 0; i < layout->pipeline; i++)
            layout->offload = fmax(layout->offload, at->solution.stage_offload[i]);
    }
    if (at->solution.excess_bytes > 0)
        erg_log(ERG_LOG_WARNING,
                "whatever is offloaded %.2f GiB are missing, %.2f %% of the budget, which "
                "is within the error of this model",
                at->solution.excess_bytes / 0x1p30,
                100 * at->solution.excess_bytes / at->query.solve_bytes);
    answer->solution = &at->solution;
    if (answer->per_stage) {
        layout->stage_offload = at->solution.stage_offload;
        layout->stage_recompute = at->solution.stage_recompute;
    }
    return 0;
}

/* When copies and messages run on the engines of the stages. */
static int find_traffic(struct memory_call *at, struct erg_error *err)
{
    struct erg_memory_answer *answer = &at->answer;
    struct memory_query *query = &at->query;
    const long pipeline = query->layout.pipeline;
    if (erg_memory_query_kinds(query, err) != 0)
        return -1;
    struct erg_time_request *on = erg_xcalloc((size_t)pipeline, sizeof *on);
    int status = 0;
    for (long s = 0; s < pipeline && status == 0; s++) {
        const struct erg_layout_kind *kind = &query->kinds[query->stage_kind[s]];
        on[s] = (struct erg_time_request){answer->request.model, kind->engine, &kind->machine};
        if (at->result.stages[s].offload_bytes > 0 && !(kind->engine->host_link_bandwidth > 0))
            status = erg_fail(err, ERG_FAILED,
                              "the layout offloads, and engine %s does not: its host_link_gb_s is "
                              "0",
                              kind->engine->name);
    }
    if (status == 0) {
        erg_memory_traffic_of_layout(&at->traffic, &answer->shared_s, &answer->request, on);
        answer->traffic = &at->traffic;
    }
    free(on);
    return status;
}

static int find_change(struct memory_call *at, struct erg_error *err)
{
    const struct erg_job *job = at->query.job;
    const struct erg_layout *layout = &at->query.layout;
    const bool one_kind = job->kind_count == 1;
    const struct erg_memory_bounds bounds = {
        .rooms = at->answer.rooms,
        .layers = at->query.own_layers && !layout->stage_offload && !layout->stage_recompute,
        .degrees = one_kind,
        .most_gpus = job->cluster.inter_node_bandwidth > 0 ? 0 : job->cluster.gpus_per_node,
    };
    struct erg_layout plain = *layout;
    struct erg_memory_request request = at->answer.request;
    plain.stage_offload = NULL;
    plain.stage_recompute = NULL;
    if (at->answer.solve)
        plain.offload = 0; /* the least that helps */
    request.layout = &plain;
    at->answer.change = &at->change;
    return erg_memory_smallest_change(&at->change, &request, &bounds, err);
}

static int find_answer(struct memory_call *at, struct erg_error *err)
{
    const struct memory_query *query = &at->query;
    const struct memory_values *values = query->values;
    struct erg_memory_answer *answer = &at->answer;
    bool solved = true;
    *answer = (struct erg_memory_answer){
        .job = query->job,
        .request = query->request,
        .stage_kind = query->stage_kind,
        .rooms = query->rooms,
        .per_stage =
            values->per_stage || query->layout.stage_recompute || query->layout.stage_offload,
        .solve = values->solve != NULL,
    };
    if (answer->solve && solve(at, &solved, err) != 0)
        return -1;
    if (erg_memory_simulate(&at->result, &answer->request, err) != 0)
        return -1;
    answer->result = &at->result;
    erg_memory_answer_judge(answer);
    answer->fits &= solved;
    if (!(answer->fits && answer->host_fits) && find_change(at, err) != 0)
        return -1;
    return values->engine ? find_traffic(at, err) : 0;
}

static int show(const struct erg_invocation *call, const struct erg_memory_answer *answer,
                struct erg_error *err)
{
    const struct memory_values *values = call->values;
    json_t *document = erg_memory_document(answer);
    int status = values->report ? erg_report_memory_write(values->report, document, err) : 0;
    if (status == 0 && call->common.json) {
        erg_print_json(json_incref(document));
    } else if (status == 0) {
        erg_memory_print(answer);
    }
    json_decref(document);
    return status;
}

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    struct memory_call at = {0};
    int status = erg_memory_query_init(&at.query, call->arguments[0], call->values, err);
    if (status == 0)
        status = find_answer(&at, err);
    if (status == 0)
        status = show(call, &at.answer, err);
    if (status == 0)
        status = erg_memory_say_unfit(&at.answer, err);
    erg_memory_change_release(&at.change);
    erg_memory_traffic_release(&at.traffic);
    erg_memory_result_release(&at.result);
    erg_memory_solution_release(&at.solution);
    erg_memory_query_release(&at.query);
    return status;
}

const struct erg_command erg_cmd_memory = {
    .name = "memory",
    .summary = "memory of every stage of a layout, item by item, and how much to offload",
    .arguments = "JOB.yaml",
    .least_arguments = 1,
    .most_arguments = 1,
    .common = ERG_COMMON_JSON,
    .values_bytes = sizeof(struct memory_values),
    .options = options,
    .details =
        "Every allocation of a GPU of each stage is followed through two iterations. Without\n"
        "--layout the job's own degrees are used. A layout that does not fit the GPU ends with\n"
        "status 3 and says the smallest change with which it would.",
    .examples = "  ergon memory examples/kwai/llama-65b.yaml\n"
                "  ergon memory examples/kwai/llama-65b.yaml -l t=4,p=8,l=2 -r none -a 0.3\n"
                "  ergon memory examples/kwai/llama-65b.yaml --solve-offload 64GiB "
                "--per-stage\n"
                "  ergon memory examples/kwai/llama-65b.yaml --accounting framework "
                "--report memory.html\n",
    .run = run,
};
