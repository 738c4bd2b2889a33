/* ergon memory JOB.yaml: the memory of each stage of a layout, and how much to offload. */
#include "cli/answer_show.h"
#include "cli/cli.h"

struct memory_values {
    long gpus, batch, sequence;
    const char *layout, *engine, *solve, *report, *recompute, *accounting;
    int copies;
    double offload;
    bool per_stage;
};

static const char *const copies[] = {"group", "layer", NULL};

#define AT(member) offsetof(struct memory_values, member)
static const struct erg_option options[] = {
    {"gpus", 'n', ERG_OPTION_LONG, "N", AT(gpus), 1, 1e7,
     .help = "number of GPUs (default: the cluster's)"},
    {"batch", 'b', ERG_OPTION_LONG, "B", AT(batch), 1, ERG_JOB_MOST_BATCH,
     .help = "sequences per iteration (default: the job's)"},
    {"sequence", 's', ERG_OPTION_LONG, "S", AT(sequence), 1, 1e9,
     .help = "tokens per sequence (default: the job's)"},
    {"layout", 'l', ERG_OPTION_TEXT, "TEXT", AT(layout),
     .help = "degrees, for example t=2,c=2,p=8,l=2: t tensor, c context, p pipeline; l layers per "
             "chunk, or v virtual stages; b microbatch; e ranks that share the experts; fsdp ranks "
             "that share weights"},
    {"recompute", 'r', ERG_OPTION_WORD, "WHAT", AT(recompute), .words = ERG_WORDS_RECOMPUTE,
     .help = "outputs to recompute in the backward pass"},
    {"offload", 'a', ERG_OPTION_DOUBLE, "RATIO", AT(offload), 0, 1,
     .help = "share of the activations to offload to host memory"},
    {"solve-offload", 'S', ERG_OPTION_TEXT, "BYTES|gpu", AT(solve),
     .help = "find the smallest ratio that fits into this memory per GPU, for example 64GiB; gpu: "
             "into the memory of each stage's GPU"},
    {"per-stage", 'p', ERG_OPTION_FLAG, NULL, AT(per_stage),
     .help = "with --solve-offload: a ratio for each stage"},
    {"copies", 'c', ERG_OPTION_CHOICE, "UNIT", AT(copies), .choices = copies,
     .default_text = "group", .help = "unit of a copy: a whole chunk, or a layer"},
    {"accounting", 'A', ERG_OPTION_WORD, "KIND", AT(accounting), .words = ERG_WORDS_ACCOUNTING,
     .help = "arena: bytes of the tensors; framework: bytes of the blocks of a caching allocator; "
             "static: bytes of the buffers of ergon's own training (default: the engine's, else "
             "arena)"},
    {"engine", 'e', ERG_OPTION_TEXT, "NAME", AT(engine),
     .help = "also print the times of copies and messages with this engine, and how long compute "
             "waits for copies: a name of the catalogue, or a file"},
    {"report", 'o', ERG_OPTION_FILE, "FILE", AT(report),
     .help = "write an HTML page of memory over time"},
    {0},
};

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    const struct memory_values *values = call->values;
    const struct erg_memory_options input = {
        .size = sizeof input,
        .layout = values->layout,
        .gpus = erg_given_number(values->gpus),
        .batch = erg_given_number(values->batch),
        .solve_offload = values->solve,
        .per_stage = values->per_stage,
        .accounting = values->accounting,
        .layer_copies = values->copies == 1,
    };
    const struct erg_ask_memory question = {
        .size = sizeof question,
        .job = call->arguments[0],
        .options = &input,
        .engine = values->engine,
        .sequence = erg_given_number(values->sequence),
        .recompute = values->recompute,
        .offload = isnan(values->offload) ? NULL : &values->offload,
        .page = values->report,
    };
    struct erg_answer *answer = NULL;
    return erg_answer_show(erg_ask_memory(&answer, &question, err), &answer, call->common.json,
                           err);
}

const struct erg_command erg_cmd_memory = {
    .name = "memory",
    .summary = "print the memory of every stage of a layout, and how much to offload",
    .arguments = "JOB.yaml",
    .least_arguments = 1,
    .most_arguments = 1,
    .common = ERG_COMMON_JSON,
    .values_bytes = sizeof(struct memory_values),
    .options = options,
    .details = "Follows every allocation of one GPU of each stage through two iterations. Default "
               "of --layout: the\n"
               "job's own degrees. If the layout does not fit the GPU, the exit status is 3, and "
               "the output names\n"
               "the smallest change that makes it fit.",
    .examples = "  ergon memory examples/kwai/llama-65b.yaml\n"
                "  ergon memory examples/kwai/llama-65b.yaml -l t=4,p=8,l=2 -r none -a 0.3\n"
                "  ergon memory examples/kwai/llama-65b.yaml --solve-offload 64GiB "
                "--per-stage\n"
                "  ergon memory examples/kwai/llama-65b.yaml --accounting framework "
                "--report memory.html\n",
    .run = run,
};
