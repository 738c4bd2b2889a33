/* ergon plan JOB.yaml: the best layouts of a job, and why one is or is not among them. */
#include "cli/cli.h"
#include "cli/plan_answer.h"
#include "cli/plan_gpus.h"
#include "cli/plan_mixed.h"

#include "base/memory.h"
#include "layout/memory/stage_memory.h"

#include <math.h>
#include <stdlib.h>

static const char *const exports[] = {"megatron", "torchtitan", "profile", "job", NULL};
static const char *const planners[] = {"ergon", "arena", NULL};
enum { PLANNER_ARENA = 1 };
/* As enum erg_objective numbers them. */
static const char *const objectives[] = {"fastest", "least_energy", NULL};

#define AT(member) offsetof(struct plan_values, member)
static const struct erg_option options[] = {
    {"gpus", 'n', ERG_OPTION_TEXT, "N|A-B|any", AT(gpus),
     .help = "GPUs in all; several numbers and ranges of whole nodes, with commas, ask how many to "
             "use, of several kinds also which; any: up to the cluster's, which are used unless "
             "given"},
    {"cluster", 'c', ERG_OPTION_FILE, "FILE", AT(cluster),
     .help = "another cluster than the job's"},
    {"batch", 'b', ERG_OPTION_LONG, "B", AT(batch), 1, ERG_JOB_MOST_BATCH,
     .help = "sequences of an iteration; the job's unless given"},
    {"batch-slack", 'B', ERG_OPTION_DOUBLE, "RATIO", AT(slack), 0, 0.5, .default_text = "0",
     .help = "how far a layout's batch may be from that"},
    {"sequence", 's', ERG_OPTION_LONG, "S", AT(sequence), 1, 1e9, .help = "tokens of a sequence"},
    {"engine", 'e', ERG_OPTION_TEXT, "NAME", AT(engine),
     .help = "what trains: a name of the catalogue (data/engines) or a file; the job's unless "
             "given"},
    {"recompute", 'r', ERG_OPTION_CHOICE, "WHAT", AT(recompute), .choices = erg_recompute_names,
     .help = "only layouts that compute this again; all are tried unless given"},
    {"per-stage", 'p', ERG_OPTION_FLAG, NULL, AT(per_stage),
     .help = "each stage recomputes and offloads what is best for it, in place of all the same"},
    {"objective", 'O', ERG_OPTION_CHOICE, "WHAT", AT(objective), .choices = objectives,
     .help = "what is best, over the GPUs' clocks too; with --deadline least_energy unless given, "
             "else fastest"},
    {"deadline", 'D', ERG_OPTION_DOUBLE, "SECONDS", AT(deadline_s), 1e-6, 1e9,
     .help = "of an iteration"},
    {"energy-budget", 'E', ERG_OPTION_DOUBLE, "JOULES", AT(energy_j), 1e-6, 1e18,
     .help = "of an iteration, all GPUs together"},
    {"power-budget", 'P', ERG_OPTION_DOUBLE, "WATTS", AT(power_w), 1e-6, 1e15,
     .help = "mean over an iteration, all GPUs together"},
    {"memory-budget", 'm', ERG_OPTION_BYTES, "BYTES", AT(memory_bytes), 1, 1e18,
     .help = "what a GPU has for tensors; 90 % of its memory unless given"},
    {"host-memory", 'H', ERG_OPTION_BYTES, "BYTES", AT(host_bytes), 1, 1e18,
     .help = "what a node has for offloaded activations; the cluster's unless given"},
    {"top", 't', ERG_OPTION_LONG, "K", AT(top), 1, 1000, .default_text = "10",
     .help = "how many are shown"},
    {"layout", 'l', ERG_OPTION_TEXT, "TEXT", AT(layout),
     .help = "only this one, for example t=2,c=2,p=8,l=2: tensor, context, pipeline, layers of a "
             "chunk; b microbatch; v virtual stages, which may differ in layers, in place of l"},
    {"why", 'w', ERG_OPTION_TEXT, "TEXT", AT(why),
     .help = "this one beside the best: what makes it slower, or what forbids it"},
    {"planner", 'a', ERG_OPTION_CHOICE, "WHOSE", AT(planner), .choices = planners,
     .default_text = "ergon",
     .help = "arena: the published planner of the cluster scheduler Arena, for 1, 2, 4, 8 or 16 "
             "GPUs: of each number of stages its plan, and those worth a search"},
    {"export", 'x', ERG_OPTION_CHOICE, "SOFTWARE", AT(export), .choices = exports,
     .help =
         "print the best, or that of --layout, as what this software is started with; job: as a "
         "job for ergon optimize; profile: frontiers for every number of GPUs, for ergon "
         "simulate"},
    {"output", 'o', ERG_OPTION_FILE, "DIR", AT(output),
     .help = "write layouts.json, layouts.html, job.yaml, the job with the best layout, and "
             "plan.json, its clocks"},
    {0},
};

/* ---- what was asked ---- */

static int load_machine(struct planning *at, struct erg_error *err)
{
    const struct plan_values *values = at->values;
    if (values->cluster && (erg_cluster_load(&at->cluster, values->cluster, err) != 0 ||
                            erg_gpu_load(&at->gpu, at->cluster->gpu, err) != 0))
        return -1;
    if (values->engine && erg_engine_load(&at->engine, values->engine, err) != 0)
        return -1;
    if (!at->engine && !at->job->engine)
        return erg_fail(err, ERG_USAGE,
                        "%s does not say what trains it; expected the key 'engine' there or "
                        "--engine NAME, for example megatron-a100 (data/engines)",
                        at->job->path);
    return erg_engine_check_gpu(at->engine ? at->engine : at->job->engine,
                                at->gpu ? at->gpu : at->job->gpu, err);
}

static void note_point(void *context, const struct erg_layout_candidate *candidate)
{
    enum { MOST = 20000 }; /* as many as a page can draw */
    struct planning *at = context;
    struct erg_layout_energy energy;
    if (at->points.count >= MOST)
        return;
    erg_layout_energy(&energy, &at->energy, &candidate->layout, 0,
                      candidate->time.items[ERG_TIME_UNEVEN]);
    ERG_PUSH(&at->points, items,
             (struct erg_layout_point){(float)candidate->time.total, (float)energy.total_j,
                                       (float)candidate->peak_bytes});
}

static struct erg_layout_search search_for(struct planning *at, const struct erg_cluster *cluster)
{
    const struct plan_values *values = at->values;
    const struct erg_job *job = at->job;
    const double batch =
        values->batch != ERG_NOT_GIVEN
            ? (double)values->batch
            : (double)job->layout.data * job->layout.microbatch * job->layout.microbatches;
    return (struct erg_layout_search){
        .time = at->energy.time,
        .sequence = job->layout.sequence,
        .batch_least = (long)ceil(batch * (1 - values->slack)),
        .batch_most = (long)floor(batch * (1 + values->slack)),
        .memory_bytes = isnan(values->memory_bytes)
                            ? ERG_MEMORY_USABLE_SHARE * at->energy.gpu->memory_bytes
                            : values->memory_bytes,
        .memory_slack = isnan(values->memory_bytes) ? 0 : ERG_MEMORY_ERROR,
        .host_bytes = isnan(values->host_bytes) ? cluster->host_memory_bytes : values->host_bytes,
        .recomputes = values->recompute >= 0 ? 1u << values->recompute : ERG_RECOMPUTE_ALL,
        .offload = at->energy.time.engine->host_link_bandwidth > 0,
        .unequal = true,
        .per_stage = values->per_stage,
        .top = erg_plan_searched((size_t)values->top),
        .each = values->output ? note_point : NULL,
        .context = at,
    };
}

static int prepare(struct planning *at, const char *path, struct erg_error *err)
{
    const struct plan_values *values = at->values;
    const struct erg_job_overrides overrides = {
        .sequence = values->sequence != ERG_NOT_GIVEN ? values->sequence : 0, .any_layout = true};
    if (erg_job_load(&at->job, path, &overrides, err) != 0 || load_machine(at, err) != 0)
        return -1;
    const struct erg_job *job = at->job;
    const struct erg_cluster *cluster = at->cluster ? at->cluster : &job->cluster;
    struct plan_gpus gpus = {0};
    if (!values->gpus)
        ERG_PUSH(&gpus, items, erg_plan_gpus_of(cluster));
    else if (erg_plan_list_gpus(&gpus, values->gpus, cluster, err) != 0) {
        free(gpus.items);
        return -1;
    }
    at->energy.gpu = at->gpu ? at->gpu : job->gpu;
    erg_time_machine_init(&at->machine, at->energy.gpu, cluster);
    at->energy.time =
        (struct erg_time_request){job->model, at->engine ? at->engine : job->engine, &at->machine};
    at->search_count = gpus.count;
    at->searches = erg_xcalloc(gpus.count, sizeof *at->searches);
    for (size_t i = 0; i < gpus.count; i++) {
        at->searches[i] = search_for(at, cluster);
        at->searches[i].gpus = gpus.items[i];
    }
    free(gpus.items);
    if (erg_time_machine_check(&at->machine, at->searches[at->search_count - 1].gpus, err) != 0)
        return -1;
    at->query = (struct erg_goal){
        .objective = values->objective >= 0       ? (enum erg_objective)values->objective
                     : !isnan(values->deadline_s) ? ERG_LEAST_ENERGY
                                                  : ERG_FASTEST,
        .deadline_s = isnan(values->deadline_s) ? 0 : values->deadline_s,
        .energy_j = isnan(values->energy_j) ? 0 : values->energy_j,
        .power_w = isnan(values->power_w) ? 0 : values->power_w,
    };
    return 0;
}

static void release(struct planning *at)
{
    if (at->counts)
        erg_layout_counts_release(at->counts, at->search_count);
    free(at->counts);
    erg_layout_choice_release(&at->choice);
    erg_layout_candidate_release(&at->remedy.layout);
    erg_layout_found_release(&at->found);
    free(at->points.items);
    free(at->searches);
    erg_engine_free(at->engine);
    erg_gpu_free(at->gpu);
    erg_cluster_free(at->cluster);
    erg_job_free(at->job);
}

/* Options that would have no effect beside others. */
static int check_options(const struct plan_values *values, bool json, struct erg_error *err)
{
    const bool one = values->layout || values->why;
    if (values->layout && values->why)
        return erg_fail(err, ERG_USAGE, "--layout and --why were both given; expected one of them");
    if (json && values->export >= 0)
        return erg_fail(err, ERG_USAGE,
                        "--json and --export were both given; expected one of them");
    if (values->planner == PLANNER_ARENA &&
        (one || values->output || values->slack > 0 || values->objective >= 0 ||
         values->recompute >= 0 || values->per_stage || !isnan(values->host_bytes) ||
         !isnan(values->deadline_s) || !isnan(values->energy_j) || !isnan(values->power_w) ||
         (values->export >= 0 && values->export != PLAN_EXPORT_PROFILE)))
        return erg_fail(err, ERG_USAGE,
                        "--planner arena plans time and memory at the highest clock, and all "
                        "layers are recomputed; it goes with --gpus, --cluster, --batch, "
                        "--sequence, --engine, --memory-budget, --json and --export profile");
    if (values->export == PLAN_EXPORT_PROFILE &&
        (one || values->output || values->slack > 0 || values->objective >= 0 ||
         !isnan(values->deadline_s) || !isnan(values->energy_j) || !isnan(values->power_w)))
        return erg_fail(err, ERG_USAGE,
                        "--export profile prints whole frontiers of one batch; --layout, --why, "
                        "--output, --batch-slack, objectives and bounds do not go with it");
    if (values->why && (json || values->export >= 0))
        return erg_fail(err, ERG_USAGE,
                        "--why is text for people; --json and --export go with --layout");
    if (values->why && (values->objective >= 0 || !isnan(values->deadline_s) ||
                        !isnan(values->energy_j) || !isnan(values->power_w)))
        return erg_fail(err, ERG_USAGE,
                        "--why compares layouts at the highest clock; objectives and budgets go "
                        "with --layout");
    if (one && values->output)
        return erg_fail(err, ERG_USAGE,
                        "--output writes all layouts; it goes neither with --layout, whose job "
                        "--export job prints, nor with --why");
    return 0;
}

/* On nodes of several kinds. */
static int find_mixed(struct planning *at, const struct erg_cluster *cluster, bool json,
                      struct erg_error *err)
{
    const struct plan_values *values = at->values;
    if (values->export == PLAN_EXPORT_PROFILE)
        return erg_fail(err, ERG_USAGE,
                        "the cluster has nodes of several kinds; --export profile is for those of "
                        "one");
    return erg_plan_mixed(at, cluster, json, err);
}

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    struct planning at = {.values = call->values};
    const bool json = call->common.json;
    int status = check_options(at.values, json, err);
    if (!status)
        status = prepare(&at, call->arguments[0], err);
    const struct erg_cluster *cluster = at.cluster ? at.cluster : at.job ? &at.job->cluster : NULL;
    if (!status && at.search_count > 1 && (at.values->layout || at.values->why))
        status = erg_fail(err, ERG_USAGE,
                          "--gpus gives %zu numbers of GPUs; --layout and --why need one",
                          at.search_count);
    if (!status && at.values->planner == PLANNER_ARENA)
        status = erg_plan_arena(&at, json, err);
    else if (!status && cluster->more_count > 0)
        status = find_mixed(&at, cluster, json, err);
    else if (!status)
        status = at.values->why                             ? erg_plan_explain(&at, err)
                 : at.values->export == PLAN_EXPORT_PROFILE ? erg_plan_print_profile(&at, err)
                                                            : erg_plan_answer(&at, json, err);
    release(&at);
    return status;
}

const struct erg_command erg_cmd_plan = {
    .name = "plan",
    .summary = "find how to spread a job over GPUs",
    .arguments = "JOB.yaml",
    .least_arguments = 1,
    .most_arguments = 1,
    .common = ERG_COMMON_JSON,
    .values_bytes = sizeof(struct plan_values),
    .options = options,
    .details =
        "Tries every tensor, context, pipeline and data degree, virtual stages, microbatch,\n"
        "recomputation and the least offloading that fits, and shows the best layouts. With an\n"
        "objective, a bound or several numbers of GPUs the clock of every instruction is\n"
        "chosen, too. Of the job's own layout only the batch counts: its microbatches times their "
        "size\n"
        "times its copies.",
    .examples = "  ergon plan examples/kwai/llama-65b.yaml\n"
                "  ergon plan examples/kwai/llama-65b.yaml --gpus 64 --why t=8,p=4,l=2\n"
                "  ergon plan examples/kwai/llama-65b.yaml --deadline 9.5\n"
                "  ergon plan examples/kwai/llama2-7b.yaml --gpus any\n",
    .run = run,
};
