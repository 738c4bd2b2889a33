/* ergon memory JOB.yaml: the memory of each stage of a layout, and how much to offload. */
#include "api/memory_query.h"
#include "cli/cli.h"
#include "io/print.h"
#include "report/text/memory_print.h"

#include "io/json.h"
#include "report/report.h"

struct memory_values {
    struct erg_memory_wish wish;
    const char *report;
};

static const char *const accountings[] = {"arena", "framework", "static", NULL};
static const char *const copies[] = {"group", "layer", NULL};

#define AT(member) offsetof(struct memory_values, member)
static const struct erg_option options[] = {
    {"gpus", 'n', ERG_OPTION_LONG, "N", AT(wish.gpus), 1, 1e7,
     .help = "number of GPUs (default: the cluster's)"},
    {"batch", 'b', ERG_OPTION_LONG, "B", AT(wish.batch), 1, ERG_JOB_MOST_BATCH,
     .help = "sequences per iteration (default: the job's)"},
    {"sequence", 's', ERG_OPTION_LONG, "S", AT(wish.sequence), 1, 1e9,
     .help = "tokens per sequence (default: the job's)"},
    {"layout", 'l', ERG_OPTION_TEXT, "TEXT", AT(wish.layout),
     .help = "degrees, for example t=2,c=2,p=8,l=2: t tensor, c context, p pipeline; l layers per "
             "chunk, or v virtual stages; b microbatch; e ranks that share the experts; fsdp ranks "
             "that share weights"},
    {"recompute", 'r', ERG_OPTION_CHOICE, "WHAT", AT(wish.recompute),
     .choices = erg_recompute_names, .help = "outputs to recompute in the backward pass"},
    {"offload", 'a', ERG_OPTION_DOUBLE, "RATIO", AT(wish.offload), 0, 1,
     .help = "share of the activations to offload to host memory"},
    {"solve-offload", 'S', ERG_OPTION_TEXT, "BYTES|gpu", AT(wish.solve),
     .help = "find the smallest ratio that fits into this memory per GPU, for example 64GiB; gpu: "
             "into the memory of each stage's GPU"},
    {"per-stage", 'p', ERG_OPTION_FLAG, NULL, AT(wish.per_stage),
     .help = "with --solve-offload: a ratio for each stage"},
    {"copies", 'c', ERG_OPTION_CHOICE, "UNIT", AT(wish.copies), .choices = copies,
     .default_text = "group", .help = "unit of a copy: a whole chunk, or a layer"},
    {"accounting", 'A', ERG_OPTION_CHOICE, "KIND", AT(wish.accounting), .choices = accountings,
     .help = "arena: bytes of the tensors; framework: bytes of the blocks of a caching allocator; "
             "static: bytes of the buffers of ergon's own training (default: the engine's, else "
             "arena)"},
    {"engine", 'e', ERG_OPTION_TEXT, "NAME", AT(wish.engine),
     .help = "also print the times of copies and messages with this engine, and how long compute "
             "waits for copies: a name of the catalogue, or a file"},
    {"report", 'o', ERG_OPTION_FILE, "FILE", AT(report),
     .help = "write an HTML page of memory over time"},
    {0},
};

static int show(const struct erg_invocation *call, const struct erg_memory_answer *answer,
                struct erg_error *err)
{
    const struct memory_values *values = call->values;
    json_t *document = erg_memory_document(answer);
    int status = values->report ? erg_report_memory_write(values->report, document, err) : 0;
    if (status == 0 && call->common.json) {
        erg_print_json(stdout, json_incref(document));
    } else if (status == 0) {
        erg_memory_print(stdout, answer);
    }
    json_decref(document);
    return status;
}

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    const struct memory_values *values = call->values;
    struct erg_memory_wish wish = values->wish;
    struct erg_memory_asked asked;
    wish.path = call->arguments[0];
    wish.dashes = true;
    int status = erg_memory_ask(&asked, &wish, err);
    if (status == 0)
        status = show(call, &asked.answer, err);
    if (status == 0)
        status = erg_memory_say_unfit(&asked.answer, true, err);
    erg_memory_asked_release(&asked);
    return status;
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
