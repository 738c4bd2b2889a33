/* ergon layout JOB.yaml: the best layouts of a job, and why a given layout is not the best. */
#include "cli/answer_show.h"
#include "cli/cli.h"

struct layout_values {
    const char *gpus, *cluster, *engine, *layout, *why, *output;
    const char *recompute, *objective, *planner, *export;
    long batch, sequence, top;
    double slack, deadline_s, energy_j, power_w, memory_bytes, host_bytes;
    bool per_stage, fsdp, slots;
};

#define AT(member) offsetof(struct layout_values, member)
static const struct erg_option options[] = {
    {"gpus", 'n', ERG_OPTION_TEXT, "N|A-B|any", AT(gpus),
     .help = "number of GPUs; with several numbers or ranges of whole nodes (32,64-128), find how "
             "many to use, and on a mixed cluster which; any: up to all of the cluster's (default: "
             "all of the cluster's)"},
    {"cluster", 'c', ERG_OPTION_FILE, "FILE", AT(cluster), .help = "cluster (default: the job's)"},
    {"batch", 'b', ERG_OPTION_LONG, "B", AT(batch), 1, ERG_JOB_MOST_BATCH,
     .help = "sequences per iteration (default: the job's)"},
    {"batch-slack", 'B', ERG_OPTION_DOUBLE, "RATIO", AT(slack), 0, 0.5, .default_text = "0",
     .help = "largest relative difference between a layout's batch and B"},
    {"sequence", 's', ERG_OPTION_LONG, "S", AT(sequence), 1, 1e9,
     .help = "tokens per sequence (default: the job's)"},
    {"engine", 'e', ERG_OPTION_TEXT, "NAME", AT(engine),
     .help =
         "training engine: a name of the catalogue (data/engines) or a file (default: the job's)"},
    {"recompute", 'r', ERG_OPTION_WORD, "WHAT", AT(recompute), .words = ERG_WORDS_RECOMPUTE,
     .help = "only layouts that recompute this (default: try all)"},
    {"per-stage", 'p', ERG_OPTION_FLAG, NULL, AT(per_stage),
     .help =
         "choose recomputation and offloading for each stage (default: the same for all stages)"},
    {"fsdp", 'f', ERG_OPTION_FLAG, NULL, AT(fsdp),
     .help =
         "include layouts of one stage that shard weights and gradients over data ranks (FSDP)"},
    {"objective", 'O', ERG_OPTION_WORD, "WHAT", AT(objective), .words = ERG_WORDS_OBJECTIVE,
     .help = "objective; also chooses the GPUs' clocks (default: fastest; with --deadline "
             "least_energy)"},
    {"deadline", 'D', ERG_OPTION_DOUBLE, "SECONDS", AT(deadline_s), 1e-6, 1e9,
     .help = "upper limit of the time of an iteration"},
    {"energy-budget", 'E', ERG_OPTION_DOUBLE, "JOULES", AT(energy_j), 1e-6, 1e18,
     .help = "upper limit of the energy of an iteration, all GPUs together"},
    {"power-budget", 'P', ERG_OPTION_DOUBLE, "WATTS", AT(power_w), 1e-6, 1e15,
     .help = "upper limit of the mean power during an iteration, all GPUs together"},
    {"memory-budget", 'm', ERG_OPTION_BYTES, "BYTES", AT(memory_bytes), 1, 1e18,
     .help = "memory per GPU for tensors (default: 90 % of its memory)"},
    {"host-memory", 'H', ERG_OPTION_BYTES, "BYTES", AT(host_bytes), 1, 1e18,
     .help = "memory per node for offloaded activations (default: the cluster's)"},
    {"top", 't', ERG_OPTION_LONG, "K", AT(top), 1, 1000, .default_text = "10",
     .help = "number of layouts to print"},
    {"layout", 'l', ERG_OPTION_TEXT, "TEXT", AT(layout),
     .help = "only this layout, for example t=2,c=2,p=8,l=2: t tensor, c context, p pipeline "
             "degree; l layers per chunk, or v virtual stages, which may differ in layers; b "
             "microbatch; e ranks that share the experts; fsdp ranks that share weights"},
    {"why", 'w', ERG_OPTION_TEXT, "TEXT", AT(why),
     .help = "compare this layout with the best: what makes it slower, or why it is not allowed"},
    {"slots", 0, ERG_OPTION_FLAG, NULL, AT(slots),
     .help = "print which slots of each node the groups of the best layout take, and the layers of "
             "each stage; uses the cluster's chassis"},
    {"planner", 'a', ERG_OPTION_WORD, "WHOSE", AT(planner), .words = ERG_WORDS_PLANNER,
     .default_text = "ergon",
     .help = "arena: the published planner of the cluster scheduler Arena, for 1, 2, 4, 8 or 16 "
             "GPUs; prints its plan for each number of stages, and which of them it would search"},
    {"export", 'x', ERG_OPTION_WORD, "SOFTWARE", AT(export), .words = ERG_WORDS_EXPORT,
     .help =
         "print the best layout, or that of --layout, as arguments of this software; job: as a job "
         "for ergon optimize; profile: frontiers for every number of GPUs, for ergon simulate"},
    {"output", 'o', ERG_OPTION_FILE, "DIR", AT(output),
     .help = "write layouts.json, layouts.html, job.yaml (the job with the best layout) and "
             "plan.json (its clocks)"},
    {0},
};

/* An export and a comparison of two layouts are text alone. */
static int check_json(const struct layout_values *values, struct erg_error *err)
{
    if (values->export)
        return erg_fail(err, ERG_USAGE,
                        "--json and --export were both given; expected one of them");
    return values->why ? erg_fail(err, ERG_USAGE,
                                  "--why prints text for people; expected it without --json "
                                  "(--layout prints one layout as JSON)")
                       : 0;
}

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    const struct layout_values *values = call->values;
    const struct erg_layouts_options input = {
        .size = sizeof input,
        .gpus = values->gpus,
        .batch = erg_given_number(values->batch),
        .batch_slack = values->slack,
        .layout = values->layout,
        .recompute = values->recompute,
        .per_stage = values->per_stage,
        .objective = values->objective,
        .deadline_s = erg_given_amount(values->deadline_s),
        .energy_j = erg_given_amount(values->energy_j),
        .power_w = erg_given_amount(values->power_w),
        .memory_bytes = erg_given_amount(values->memory_bytes),
        .host_bytes = erg_given_amount(values->host_bytes),
        .top = values->top,
        .fsdp = values->fsdp,
    };
    const struct erg_ask_layouts question = {
        .size = sizeof question,
        .job = call->arguments[0],
        .options = &input,
        .cluster = values->cluster,
        .engine = values->engine,
        .sequence = erg_given_number(values->sequence),
        .why = values->why,
        .export_as = values->export,
        .planner = values->planner,
        .slots = values->slots,
        .folder = values->output,
    };
    struct erg_answer *answer = NULL;
    if (call->common.json && check_json(values, err) != 0)
        return -1;
    return erg_answer_show(erg_ask_layouts(&answer, &question, err), &answer, call->common.json,
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
    .values_bytes = sizeof(struct layout_values),
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
