/* ergon memory JOB.yaml: what each stage of a layout needs, and how much to offload. */
#include "cli/cli.h"
#include "cli/memory_print.h"

#include "base/log.h"
#include "base/memory.h"
#include "io/json.h"
#include "layout/copies/traffic.h"
#include "layout/document/layouts.h"
#include "layout/document/memory.h"
#include "layout/search/search.h"
#include "report/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct values {
    long gpus, batch, sequence;
    const char *layout, *report, *engine;
    int recompute, accounting, copies;
    double offload, budget_bytes;
    bool per_stage;
};

static const char *const recomputes[] = {"none", "norms", "activation", "balanced", "full", NULL};
static const char *const accountings[] = {"arena", "framework", NULL};
static const char *const copies[] = {"group", "layer", NULL};

#define AT(member) offsetof(struct values, member)
static const struct erg_option options[] = {
    {"gpus", 'n', ERG_OPTION_LONG, "N", AT(gpus), 1, 1e7,
     .help = "GPUs in all; the cluster's unless given"},
    {"batch", 'b', ERG_OPTION_LONG, "B", AT(batch), 1, 1e9,
     .help = "sequences of an iteration; the job's unless given"},
    {"sequence", 's', ERG_OPTION_LONG, "S", AT(sequence), 1, 1e9, .help = "tokens of a sequence"},
    {"layout", 'l', ERG_OPTION_TEXT, "TEXT", AT(layout),
     .help = "degrees, for example t=2,c=2,p=8,l=2: tensor, context, pipeline, layers of a chunk; "
             "b microbatch; v virtual stages in place of l"},
    {"recompute", 'r', ERG_OPTION_CHOICE, "WHAT", AT(recompute), .choices = recomputes,
     .help = "what is computed again in the backward pass"},
    {"offload", 'a', ERG_OPTION_DOUBLE, "RATIO", AT(offload), 0, 1,
     .help = "share of the activations that moves to host memory"},
    {"solve-offload", 'S', ERG_OPTION_BYTES, "BYTES", AT(budget_bytes), 1, 1e18,
     .help = "the smallest ratio that fits into this memory of a GPU, for example 64GiB"},
    {"per-stage", 'p', ERG_OPTION_FLAG, NULL, AT(per_stage),
     .help = "with --solve-offload: a ratio for each stage"},
    {"copies", 'c', ERG_OPTION_CHOICE, "UNIT", AT(copies), .choices = copies,
     .default_text = "group", .help = "what is copied at once: all of a chunk, or a layer"},
    {"accounting", 'A', ERG_OPTION_CHOICE, "KIND", AT(accounting), .choices = accountings,
     .default_text = "arena",
     .help = "bytes of the tensors, or of the blocks that a caching allocator gives them"},
    {"engine", 'e', ERG_OPTION_TEXT, "NAME", AT(engine),
     .help = "also say when copies and messages run on this engine, and how long compute waits for "
             "copies: a name of the catalogue, or a file"},
    {"report", 'o', ERG_OPTION_FILE, "FILE", AT(report),
     .help = "write a page with memory over time as HTML"},
    {0},
};

static double gib(double bytes)
{
    return bytes / 0x1p30;
}

/* ---- what was asked ---- */

/* Bytes of a GPU into which the layout is to fit. */
static double budget_of(const struct values *values, const struct erg_job *job)
{
    return isnan(values->budget_bytes) ? ERG_MEMORY_USABLE_SHARE * job->gpu->memory_bytes
                                       : values->budget_bytes;
}

static int load_engine(struct erg_engine **own, const struct erg_engine **engine,
                       const struct erg_job *job, const struct values *values,
                       struct erg_error *err)
{
    *own = NULL;
    if (values->engine && erg_engine_load(own, values->engine, err) != 0)
        return -1;
    *engine = *own ? *own : job->engine;
    if (!*engine)
        return erg_fail(
            err, ERG_USAGE,
            "an engine's times say how many each has; expected the key 'engine' in %s or "
            "--engine NAME, for example megatron-a100 (data/engines)",
            job->path);
    return erg_engine_check_gpu(*engine, job->gpu, err);
}

/* The layers of chunks as ergon plan splits them: so that the iteration is the shortest of those
 * that fit, or where none fits of all. */
static int split_layers(struct erg_layout *layout, const struct erg_job *job,
                        const struct values *values, struct erg_arena *arena, struct erg_error *err)
{
    const struct erg_cluster *cluster = &job->cluster;
    const long batch = layout->data * layout->microbatch * layout->microbatches;
    const size_t chunks = (size_t)(layout->pipeline * layout->virtual_stages);
    struct erg_engine *own;
    struct erg_time_machine machine;
    struct erg_layout_search search = {.gpus = erg_layout_gpus(layout),
                                       .sequence = layout->sequence,
                                       .batch_least = batch,
                                       .batch_most = batch,
                                       .memory_bytes = budget_of(values, job),
                                       .host_bytes = cluster->host_memory_bytes,
                                       .remats = 1u << layout->remat,
                                       .unequal = true,
                                       .top = 1};
    struct erg_layout plain = *layout;
    struct erg_layout_candidate found;
    struct erg_error unfit = {0};
    plain.offload = 0; /* as much as is needed, where the engine offloads */
    if (load_engine(&own, &search.time.engine, job, values, err) != 0) {
        erg_engine_free(own);
        return -1;
    }
    erg_time_machine_init(&machine, job->gpu, cluster);
    search.time.model = job->model;
    search.time.machine = &machine;
    search.offload = search.time.engine->host_link_bandwidth > 0;
    int status = erg_layout_evaluate(&found, &search, &plain, &unfit);
    if (status != 0 && unfit.status == ERG_INFEASIBLE) {
        search.memory_bytes = INFINITY;
        status = erg_layout_evaluate(&found, &search, &plain, &unfit);
    }
    erg_engine_free(own);
    if (status != 0) {
        *err = unfit;
        return -1;
    }
    long *layers = erg_arena_alloc(arena, chunks * sizeof *layers);
    memcpy(layers, found.chunk_layers, chunks * sizeof *layers);
    layout->chunk_layers = layers;
    erg_layout_candidate_release(&found);
    return 0;
}

/* Whether the layers cannot be divided equally, though there are enough. */
static bool needs_split(const struct erg_layout *layout, const struct erg_model *model)
{
    const long chunks = layout->pipeline * layout->virtual_stages;
    return !layout->chunk_layers && layout->pipeline > 1 && model->layers > chunks &&
           model->layers % chunks != 0;
}

/* Whether the layout is possible on the cluster; layers that cannot be divided are split. */
static int settle_layout(struct erg_layout *layout, const struct erg_job *job,
                         const struct values *values, struct erg_arena *arena,
                         struct erg_error *err)
{
    struct erg_time_machine machine;
    erg_time_machine_init(&machine, job->gpu, &job->cluster);
    if (erg_time_machine_check(&machine, erg_layout_gpus(layout), err) != 0)
        return -1;
    if (erg_layout_check_group(layout, job->cluster.gpus_per_node, err) != 0)
        return -1;
    if (values->layout && isnan(values->offload) && layout->offload > 0 && layout->pipeline < 3)
        return erg_fail(err, ERG_FAILED,
                        "its key offload: %.10g holds for --layout, too, and offloading needs at "
                        "least 3 pipeline stages, got %ld; expected --offload 0 or more stages",
                        layout->offload, layout->pipeline);
    if (needs_split(layout, job->model) && split_layers(layout, job, values, arena, err) != 0)
        return erg_fail_context(err,
                                "the %ld layers of %s cannot be divided among %ld stages of %ld "
                                "chunks",
                                job->model->layers, job->model->name, layout->pipeline,
                                layout->virtual_stages);
    return erg_layout_check(layout, job->model, err);
}

static int choose_layout(struct erg_layout *layout, const struct erg_job *job,
                         const struct values *values, struct erg_arena *arena,
                         struct erg_error *err)
{
    erg_layout_of_job(layout, job, arena);
    long batch = layout->data * layout->microbatch * layout->microbatches;
    long gpus = (long)job->cluster.nodes * job->cluster.gpus_per_node;
    if (values->layout && erg_layout_parse(layout, values->layout, job->model->layers, err) != 0)
        return erg_fail_context(err, "--layout");
    /* What stages do each for themselves holds for the job's own layout. */
    if (values->recompute >= 0)
        layout->remat = (enum erg_remat)values->recompute;
    if (values->recompute >= 0 || values->layout)
        layout->stage_remat = NULL;
    if (!isnan(values->offload))
        layout->offload = values->offload;
    if (!isnan(values->budget_bytes))
        layout->offload = 0;
    if (!isnan(values->offload) || !isnan(values->budget_bytes) || values->layout)
        layout->stage_offload = NULL;
    if (erg_layout_fill(layout, values->gpus != ERG_NOT_GIVEN ? values->gpus : gpus,
                        values->batch != ERG_NOT_GIVEN ? values->batch : batch, err) != 0)
        return -1;
    long group = layout->tensor * layout->context;
    if (group <= job->cluster.gpus_per_node && job->cluster.gpus_per_node % group != 0)
        erg_log(ERG_LOG_WARNING,
                "tensor %ld x context %ld makes groups of %ld GPUs, which do not fill nodes of %d "
                "evenly",
                layout->tensor, layout->context, group, job->cluster.gpus_per_node);
    if (settle_layout(layout, job, values, arena, err) != 0)
        return erg_fail_context(err, "the layout of %s", job->name);
    return 0;
}

static int check_options(const struct values *values, struct erg_error *err)
{
    bool solve = !isnan(values->budget_bytes);
    if (solve && !isnan(values->offload))
        return erg_fail(err, ERG_USAGE,
                        "--offload and --solve-offload were both given; expected one of them");
    if (values->per_stage && !solve)
        return erg_fail(err, ERG_USAGE, "--per-stage needs --solve-offload");
    return 0;
}

/* ---- what does not fit ---- */

/* The options that make the layout that was asked about another. */
static void say_options(struct erg_text *out, const struct erg_memory_answer *answer,
                        const struct erg_layout *changed)
{
    const struct erg_layout *layout = answer->request.layout;
    if (changed->tensor != layout->tensor || changed->context != layout->context ||
        changed->pipeline != layout->pipeline) {
        erg_text_printf(out, " --layout ");
        erg_layout_name(out, changed, answer->job->model->layers);
    }
    if (changed->remat != layout->remat)
        erg_text_printf(out, " --recompute %s", erg_remat_name(changed->remat));
    if (changed->offload != layout->offload || !isnan(answer->solve_bytes))
        erg_text_printf(out, " --offload %.3g", changed->offload);
    if (erg_layout_gpus(changed) != erg_layout_gpus(layout))
        erg_text_printf(out, " --gpus %ld", erg_layout_gpus(changed));
}

/* What would help. */
static void say_change(struct erg_text *out, const struct erg_memory_answer *answer)
{
    const struct erg_memory_change *change = answer->change;
    struct erg_text said = {0};
    say_options(&said, answer, &change->layout);
    if (change->found)
        erg_text_printf(out, "it would with%s", said.count ? said.data : "");
    else
        erg_text_printf(out,
                        "no recomputation, offloading or larger degree that was tried is enough; "
                        "it would fit with %.2f GiB a GPU%s%s",
                        ceil(100 * gib(change->least_bytes)) / 100, said.count ? " and" : "",
                        said.count ? said.data : "");
    erg_text_release(&said);
}

/* The sentence of a layout that is too large for its GPUs. */
static int say_too_large(const struct erg_memory_answer *answer, struct erg_error *err)
{
    const struct erg_memory_stage *worst = &answer->result->stages[answer->result->worst];
    struct erg_text hint = {0};
    say_change(&hint, answer);
    erg_fail(err, ERG_INFEASIBLE,
             "stage %ld needs %.2f GiB, %.2f GiB more than the %.2f GiB that a %s has for it; %s",
             answer->result->worst, gib(worst->peak_bytes),
             gib(worst->peak_bytes - answer->budget_bytes), gib(answer->budget_bytes),
             answer->job->gpu->name, hint.data);
    erg_text_release(&hint);
    return -1;
}

/* Of one whose offloaded activations are too large for the host. */
static int say_host_too_small(const struct erg_memory_answer *answer, struct erg_error *err)
{
    const struct erg_cluster *cluster = &answer->job->cluster;
    struct erg_text hint = {0};
    say_change(&hint, answer);
    erg_fail(err, ERG_INFEASIBLE,
             "what is offloaded needs up to %.0f GiB of a node's host memory for its %d GPUs, more "
             "than the %.0f GiB that it has; %s",
             gib(answer->host_bytes), cluster->gpus_per_node, gib(cluster->host_memory_bytes),
             hint.data);
    erg_text_release(&hint);
    return -1;
}

static int show(const struct erg_invocation *call, const struct erg_memory_answer *answer,
                struct erg_error *err)
{
    const struct values *values = call->values;
    json_t *document = erg_memory_document(answer);
    int status = values->report ? erg_report_memory_write(values->report, document, err) : 0;
    if (status == 0 && call->common.json) {
        char *text = erg_json_text(document);
        fputs(text, stdout);
        free(text);
    } else if (status == 0) {
        erg_memory_print(answer);
    }
    json_decref(document);
    return status;
}

/* ---- the steps ---- */

/* Puts the ratios that were asked for into the layout; 3 when there are none, with the layout at
 * its least memory. */
static int solve(struct erg_memory_answer *answer, struct erg_layout *layout,
                 struct erg_memory_solution *solution, struct erg_error *err)
{
    if (erg_memory_solve(solution, &answer->request, answer->budget_bytes, err) != 0) {
        layout->offload = layout->pipeline >= 3 ? 1 : 0;
        return -1;
    }
    if (solution->excess_bytes > 0)
        erg_log(ERG_LOG_WARNING,
                "with all that can be offloaded %.2f GiB are missing, %.2f %% of the budget, which "
                "is within the error of this model",
                gib(solution->excess_bytes), 100 * solution->excess_bytes / answer->budget_bytes);
    answer->solution = solution;
    layout->offload = solution->offload;
    if (answer->per_stage) {
        layout->stage_offload = solution->stage_offload;
        layout->stage_remat = solution->stage_remat;
    }
    return 0;
}

/* When copies and messages run on an engine; release `traffic`. */
static int find_traffic(struct erg_memory_answer *answer, struct erg_memory_traffic *traffic,
                        const char *engine_name, struct erg_error *err)
{
    const struct erg_memory_request *request = &answer->request;
    struct erg_engine *engine;
    struct erg_time_machine machine;
    const struct erg_cluster *cluster = &answer->job->cluster;
    if (erg_engine_load(&engine, engine_name, err) != 0)
        return -1;
    erg_time_machine_init(&machine, answer->job->gpu, cluster);
    const struct erg_time_request time = {request->model, engine, &machine};
    int status = erg_engine_check_gpu(engine, answer->job->gpu, err);
    if (status == 0 && answer->host_bytes > 0 && !(engine->host_link_bandwidth > 0))
        status = erg_fail(err, ERG_FAILED,
                          "the layout offloads, and engine %s does not: its host_link_gb_s is 0",
                          engine->name);
    if (status == 0) {
        erg_memory_traffic_of_layout(traffic, &answer->shared_s, request, &time);
        answer->traffic = traffic;
    }
    erg_engine_free(engine);
    return status;
}

static int find_change(struct erg_memory_answer *answer, struct erg_memory_change *change,
                       struct erg_error *err)
{
    const struct erg_cluster *cluster = &answer->job->cluster;
    const struct erg_memory_room room = {
        .gpu_bytes = answer->budget_bytes,
        .host_bytes = cluster->host_memory_bytes,
        .node_gpus = cluster->gpus_per_node,
        .most_gpus = cluster->inter_node_bandwidth > 0 ? 0 : cluster->gpus_per_node,
    };
    struct erg_layout plain = *answer->request.layout;
    struct erg_memory_request request = answer->request;
    plain.stage_offload = NULL;
    plain.stage_remat = NULL;
    if (!isnan(answer->solve_bytes))
        plain.offload = 0; /* the least that helps */
    request.layout = &plain;
    answer->change = change;
    return erg_memory_smallest_change(change, &request, &room, err);
}

static int answer_and_show(const struct erg_invocation *call, struct erg_memory_answer *answer,
                           struct erg_layout *layout, struct erg_error *err)
{
    const struct values *values = call->values;
    struct erg_memory_traffic traffic = {0};
    struct erg_memory_solution solution = {0};
    struct erg_memory_result result = {0};
    struct erg_memory_change change;
    const struct erg_cluster *cluster = &answer->job->cluster;
    struct erg_error unsolved = {0};
    int status = 0;
    if (!isnan(values->budget_bytes) && solve(answer, layout, &solution, &unsolved) != 0 &&
        unsolved.status != ERG_INFEASIBLE) {
        *err = unsolved;
        status = -1;
    }
    if (status == 0)
        status = erg_memory_simulate(&result, &answer->request, err);
    if (status == 0) {
        answer->result = &result;
        for (long s = 0; s < result.count; s++)
            answer->host_bytes = fmax(answer->host_bytes, result.stages[s].offload_bytes *
                                                              (double)result.stages[s].groups *
                                                              answer->job->cluster.gpus_per_node);
        double slack = answer->solution ? solution.excess_bytes : 0;
        answer->fits = !unsolved.status &&
                       result.stages[result.worst].peak_bytes <= answer->budget_bytes + slack;
        answer->host_fits =
            cluster->host_memory_bytes == 0 || answer->host_bytes <= cluster->host_memory_bytes;
        if (!answer->fits || !answer->host_fits)
            status = find_change(answer, &change, err);
    }
    if (status == 0 && values->engine)
        status = find_traffic(answer, &traffic, values->engine, err);
    if (status == 0)
        status = show(call, answer, err);
    if (status == 0 && !answer->fits)
        status = say_too_large(answer, err);
    else if (status == 0 && !answer->host_fits)
        status = say_host_too_small(answer, err);
    erg_memory_traffic_release(&traffic);
    erg_memory_result_release(&result);
    erg_memory_solution_release(&solution);
    return status;
}

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    const struct values *values = call->values;
    struct erg_job_overrides overrides = {.any_layout = true};
    struct erg_arena arena = {0};
    struct erg_job *job = NULL;
    struct erg_layout layout;
    if (values->sequence != ERG_NOT_GIVEN)
        overrides.sequence = values->sequence;
    int status = check_options(values, err);
    if (status == 0)
        status = erg_job_load(&job, call->arguments[0], &overrides, err);
    if (status == 0 && job->kind_count > 1)
        status =
            erg_fail(err, ERG_USAGE,
                     "%s is on nodes of several kinds, whose stages have different budgets; "
                     "expected a cluster of one kind (ergon plan --layout shows what stages on "
                     "several need)",
                     job->name);
    if (status == 0)
        status = choose_layout(&layout, job, values, &arena, err);
    if (status == 0) {
        struct erg_memory_answer answer = {
            .job = job,
            .request = {.model = job->model,
                        .layout = &layout,
                        .accounting = (enum erg_memory_accounting)values->accounting,
                        .layer_copies = values->copies == 1},
            .budget_bytes = budget_of(values, job),
            .per_stage = values->per_stage || layout.stage_remat || layout.stage_offload,
            .solve_bytes = values->budget_bytes,
        };
        status = answer_and_show(call, &answer, &layout, err);
    }
    erg_job_free(job);
    erg_arena_release(&arena);
    return status;
}

const struct erg_command erg_cmd_memory = {
    .name = "memory",
    .summary = "memory of every stage of a layout, item by item, and how much to offload",
    .arguments = "JOB.yaml",
    .least_arguments = 1,
    .most_arguments = 1,
    .values_bytes = sizeof(struct values),
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
