/* ergon layout JOB.yaml: the best layouts of a job, and why a given layout is not the best. */
#include "api/plan_answer.h"
#include "cli/cli.h"

#include <math.h>
#include <stdio.h>

static const char *const exports[] = {"megatron", "torchtitan", "profile", "job", NULL};
static const char *const planners[] = {"ergon", "arena", NULL};
/* In the order of enum erg_objective. */
static const char *const objectives[] = {"fastest", "least_energy", NULL};

#define AT(member) offsetof(struct erg_planning_wish, member)
static const struct erg_option options[] = {
    {"gpus", 'n', ERG_OPTION_TEXT, "N|A-B|any", AT(wish.gpus),
     .help = "number of GPUs; with several numbers or ranges of whole nodes (32,64-128), find how "
             "many to use, and on a mixed cluster which; any: up to all of the cluster's (default: "
             "all of the cluster's)"},
    {"cluster", 'c', ERG_OPTION_FILE, "FILE", AT(wish.cluster),
     .help = "cluster (default: the job's)"},
    {"batch", 'b', ERG_OPTION_LONG, "B", AT(wish.batch), 1, ERG_JOB_MOST_BATCH,
     .help = "sequences per iteration (default: the job's)"},
    {"batch-slack", 'B', ERG_OPTION_DOUBLE, "RATIO", AT(wish.slack), 0, 0.5, .default_text = "0",
     .help = "largest relative difference between a layout's batch and B"},
    {"sequence", 's', ERG_OPTION_LONG, "S", AT(wish.sequence), 1, 1e9,
     .help = "tokens per sequence (default: the job's)"},
    {"engine", 'e', ERG_OPTION_TEXT, "NAME", AT(wish.engine),
     .help =
         "training engine: a name of the catalogue (data/engines) or a file (default: the job's)"},
    {"recompute", 'r', ERG_OPTION_CHOICE, "WHAT", AT(wish.recompute),
     .choices = erg_recompute_names, .help = "only layouts that recompute this (default: try all)"},
    {"per-stage", 'p', ERG_OPTION_FLAG, NULL, AT(wish.per_stage),
     .help =
         "choose recomputation and offloading for each stage (default: the same for all stages)"},
    {"fsdp", 'f', ERG_OPTION_FLAG, NULL, AT(wish.fsdp),
     .help =
         "include layouts of one stage that shard weights and gradients over data ranks (FSDP)"},
    {"objective", 'O', ERG_OPTION_CHOICE, "WHAT", AT(wish.objective), .choices = objectives,
     .help = "objective; also chooses the GPUs' clocks (default: fastest; with --deadline "
             "least_energy)"},
    {"deadline", 'D', ERG_OPTION_DOUBLE, "SECONDS", AT(wish.deadline_s), 1e-6, 1e9,
     .help = "upper limit of the time of an iteration"},
    {"energy-budget", 'E', ERG_OPTION_DOUBLE, "JOULES", AT(wish.energy_j), 1e-6, 1e18,
     .help = "upper limit of the energy of an iteration, all GPUs together"},
    {"power-budget", 'P', ERG_OPTION_DOUBLE, "WATTS", AT(wish.power_w), 1e-6, 1e15,
     .help = "upper limit of the mean power during an iteration, all GPUs together"},
    {"memory-budget", 'm', ERG_OPTION_BYTES, "BYTES", AT(wish.memory_bytes), 1, 1e18,
     .help = "memory per GPU for tensors (default: 90 % of its memory)"},
    {"host-memory", 'H', ERG_OPTION_BYTES, "BYTES", AT(wish.host_bytes), 1, 1e18,
     .help = "memory per node for offloaded activations (default: the cluster's)"},
    {"top", 't', ERG_OPTION_LONG, "K", AT(wish.top), 1, 1000, .default_text = "10",
     .help = "number of layouts to print"},
    {"layout", 'l', ERG_OPTION_TEXT, "TEXT", AT(wish.layout),
     .help = "only this layout, for example t=2,c=2,p=8,l=2: t tensor, c context, p pipeline "
             "degree; l layers per chunk, or v virtual stages, which may differ in layers; b "
             "microbatch; e ranks that share the experts; fsdp ranks that share weights"},
    {"why", 'w', ERG_OPTION_TEXT, "TEXT", AT(why),
     .help = "compare this layout with the best: what makes it slower, or why it is not allowed"},
    {"slots", 0, ERG_OPTION_FLAG, NULL, AT(slots),
     .help = "print which slots of a node the groups of the best layout take, and their layers; "
             "uses the cluster's chassis"},
    {"planner", 'a', ERG_OPTION_CHOICE, "WHOSE", AT(planner), .choices = planners,
     .default_text = "ergon",
     .help = "arena: the published planner of the cluster scheduler Arena, for 1, 2, 4, 8 or 16 "
             "GPUs; prints its plan for each number of stages, and which of them it would search"},
    {"export", 'x', ERG_OPTION_CHOICE, "SOFTWARE", AT(export), .choices = exports,
     .help =
         "print the best layout, or that of --layout, as arguments of this software; job: as a job "
         "for ergon optimize; profile: frontiers for every number of GPUs, for ergon simulate"},
    {"output", 'o', ERG_OPTION_FILE, "DIR", AT(output),
     .help = "write layouts.json, layouts.html, job.yaml (the job with the best layout) and "
             "plan.json (its clocks)"},
    {0},
};

/* Rejects options that would have no effect with others. */
static int check_options(const struct erg_planning_wish *values, bool json, struct erg_error *err)
{
    const struct erg_layout_wish *wish = &values->wish;
    const bool one = wish->layout || values->why;
    if (wish->layout && values->why)
        return erg_fail(err, ERG_USAGE, "--layout and --why were both given; expected one of them");
    if (wish->layout && wish->fsdp)
        return erg_fail(err, ERG_USAGE,
                        "--fsdp extends a search, and --layout fixes one layout; expected one of "
                        "them (a layout sets fsdp=N)");
    if (json && values->export >= 0)
        return erg_fail(err, ERG_USAGE,
                        "--json and --export were both given; expected one of them");
    if (values->planner == ERG_PLANNER_ARENA &&
        (one || values->output || wish->slack > 0 || wish->objective >= 0 || wish->recompute >= 0 ||
         wish->per_stage || wish->fsdp || !isnan(wish->host_bytes) || !isnan(wish->deadline_s) ||
         !isnan(wish->energy_j) || !isnan(wish->power_w) ||
         (values->export >= 0 && values->export != ERG_PLAN_EXPORT_PROFILE)))
        return erg_fail(
            err, ERG_USAGE,
            "--planner arena plans time and memory at the highest clock with full recomputation; "
            "expected it with no options other than --gpus, --cluster, --batch, --sequence, "
            "--engine, --memory-budget, --json and --export profile");
    if (values->export == ERG_PLAN_EXPORT_PROFILE &&
        (one || values->output || wish->slack > 0 || wish->objective >= 0 ||
         !isnan(wish->deadline_s) || !isnan(wish->energy_j) || !isnan(wish->power_w)))
        return erg_fail(err, ERG_USAGE,
                        "--export profile prints whole frontiers of one batch; expected it without "
                        "--layout, --why, --output, --batch-slack, objectives and limits");
    if (values->why && (json || values->export >= 0))
        return erg_fail(
            err, ERG_USAGE,
            "--why prints text for people; expected --json and --export with --layout instead");
    if (values->why && (wish->objective >= 0 || !isnan(wish->deadline_s) ||
                        !isnan(wish->energy_j) || !isnan(wish->power_w)))
        return erg_fail(err, ERG_USAGE,
                        "--why compares layouts at the highest clock; expected objectives and "
                        "budgets with --layout instead");
    if (values->slots &&
        (values->why || values->output || values->export >= 0 ||
         values->planner == ERG_PLANNER_ARENA || wish->per_stage || !isnan(wish->deadline_s) ||
         !isnan(wish->energy_j) || !isnan(wish->power_w)))
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

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    return check_options(call->values, call->common.json, err) != 0
               ? -1
               : erg_planning_answer(stdout, call->values, call->arguments[0], call->common.json,
                                     err);
}

const struct erg_command erg_cmd_layout = {
    .name = "layout",
    .former_name = "plan",
    .summary = "find how to spread a job over GPUs",
    .arguments = "JOB.yaml",
    .least_arguments = 1,
    .most_arguments = 1,
    .common = ERG_COMMON_JSON,
    .values_bytes = sizeof(struct erg_planning_wish),
    .options = options,
    .details =
        "Tries every tensor, context, pipeline and data degree, virtual stages, microbatch,\n"
        "recomputation and the least offloading that fits, and prints the best layouts. With an\n"
        "objective, a limit or several numbers of GPUs, it also chooses the clock of every "
        "instruction.\n"
        "It ignores the layout in JOB.yaml except for the batch: microbatches times microbatch "
        "size times\n"
        "replicas.",
    .examples = "  ergon layout examples/kwai/llama-65b.yaml\n"
                "  ergon layout examples/kwai/llama-65b.yaml --gpus 64 --why t=8,p=4,l=2\n"
                "  ergon layout examples/kwai/llama-65b.yaml --deadline 9.5\n"
                "  ergon layout examples/kwai/llama2-7b.yaml --gpus any\n",
    .run = run,
};
