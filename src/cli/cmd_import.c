/* ergon import: other tools' files as files of ours, or as what they say. */
#include "cli/answer_show.h"
#include "cli/cli.h"
#include "ergon/job.h"
#include "ergon/kernels.h"

#include <stdio.h>
#include <string.h>

struct import_values {
    const char *output, *cluster, *profiles, *recording;
    long gpus, batch;
    int categories;
    bool csv;
};

static const char *const rules[] = {"ergon", "charllm", NULL};

#define AT(member) offsetof(struct import_values, member)
static const struct erg_option options[] = {
    {"output", 'o', ERG_OPTION_FILE, "DIR", AT(output),
     .help = "calculon: write config.json, gpu.yaml, engine.yaml and job.yaml there"},
    {"gpus", 'n', ERG_OPTION_LONG, "N", AT(gpus), 1, 1e7,
     .help = "calculon: GPUs in all, of whole nodes (default: one node)"},
    {"batch", 'b', ERG_OPTION_LONG, "B", AT(batch), 1, ERG_JOB_MOST_MICROBATCHES,
     .help = "calculon: sequences of an iteration (default: one for each GPU)"},
    {"cluster", 'c', ERG_OPTION_FILE, "FILE", AT(cluster),
     .help = "trace: the cluster on which its jobs are to run, as for ergon simulate"},
    {"profiles", 'P', ERG_OPTION_FILE, "DIR", AT(profiles),
     .help = "trace: the folder of the profiles of their models"},
    {"recording", 'r', ERG_OPTION_FILE, "FILE", AT(recording),
     .help = "kineto: what ergon record wrote meanwhile on the same node: gives joules"},
    {"categories", 'k', ERG_OPTION_CHOICE, "RULE", AT(categories), .choices = rules,
     .help = "kineto: by ergon's dictionary (default), or by the rule of a published study"},
    {"csv", 0, ERG_OPTION_FLAG, NULL, AT(csv), .help = "kineto: print CSV instead of a table"},
    {0},
};

static const char *const formats[] = {"calculon", "trace", "kineto", NULL};
enum { CALCULON, TRACE, KINETO };

/* Whether an option that only traces of kernels have was given. */
static bool is_of_kernels(const struct erg_invocation *call)
{
    const struct import_values *values = call->values;
    return values->recording || values->categories >= 0 || values->csv;
}

static int import_calculon(const struct erg_invocation *call, struct erg_error *err)
{
    const struct import_values *values = call->values;
    if (call->argument_count != 3 || !values->output || values->cluster || values->profiles ||
        is_of_kernels(call))
        return erg_fail(err, ERG_USAGE,
                        "\"ergon import calculon\" needs MODEL.json, SYSTEM.json and --output DIR, "
                        "and takes --gpus and --batch");
    const struct erg_ask_calculon question = {
        .size = sizeof question,
        .model = call->arguments[1],
        .system = call->arguments[2],
        .folder = values->output,
        .gpus = values->gpus == ERG_NOT_GIVEN ? 0 : values->gpus,
        .batch = values->batch == ERG_NOT_GIVEN ? 0 : values->batch};
    struct erg_answer *answer = NULL;
    return erg_answer_show(erg_ask_calculon(&answer, &question, err), &answer, call->common.json,
                           err);
}

static int import_kineto(const struct erg_invocation *call, struct erg_error *err)
{
    const struct import_values *values = call->values;
    const struct erg_kernels_options wish = {
        .size = sizeof wish,
        .files = call->arguments + 1,
        .file_count = call->argument_count - 1,
        .recording = values->recording,
        .categories = values->categories >= 0 ? rules[values->categories] : NULL};
    if (values->output || values->cluster || values->profiles || values->gpus != ERG_NOT_GIVEN ||
        values->batch != ERG_NOT_GIVEN || call->common.seed != ERG_NOT_GIVEN ||
        (values->csv && call->common.json))
        return erg_fail(err, ERG_USAGE,
                        "\"ergon import kineto\" takes FILE..., --recording, --categories, and "
                        "--csv or --json");
    struct erg_kernels *kernels;
    if (erg_kernels_import(&kernels, &wish, err) != 0)
        return -1;
    if (call->common.json)
        puts(erg_kernels_json(kernels));
    else
        fputs(values->csv ? erg_kernels_csv(kernels) : erg_kernels_text(kernels), stdout);
    erg_kernels_free(kernels);
    return 0;
}

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    const struct import_values *values = call->values;
    const char *what = call->arguments[0];
    if (!strcmp(what, formats[CALCULON]))
        return import_calculon(call, err);
    if (!strcmp(what, formats[KINETO]))
        return import_kineto(call, err);
    if (strcmp(what, formats[TRACE]) != 0)
        return erg_fail(err, ERG_USAGE,
                        "files of '%.80s' cannot be imported, expected 'calculon', 'trace' or "
                        "'kineto'",
                        what);
    if (call->argument_count != 2 || !values->cluster || !values->profiles || values->output ||
        values->gpus != ERG_NOT_GIVEN || values->batch != ERG_NOT_GIVEN || call->common.json ||
        is_of_kernels(call))
        return erg_fail(err, ERG_USAGE,
                        "\"ergon import trace\" needs LOG, --cluster FILE and --profiles DIR, and "
                        "takes --seed");
    const struct erg_ask_trace question = {
        .size = sizeof question,
        .cluster = values->cluster,
        .profiles = values->profiles,
        .log = call->arguments[1],
        .seed = call->common.seed == ERG_NOT_GIVEN ? 0 : (uint64_t)call->common.seed};
    struct erg_answer *answer = NULL;
    return erg_answer_show(erg_ask_trace(&answer, &question, err), &answer, false, err);
}

const struct erg_command erg_cmd_import = {
    .name = "import",
    .summary = "files of other tools: systems of Calculon, logs of clusters, traces of GPUs",
    .arguments = "calculon MODEL.json SYSTEM.json | trace LOG | kineto FILE...",
    .argument_choices = formats,
    .least_arguments = 2,
    .most_arguments = SIZE_MAX,
    .values_bytes = sizeof(struct import_values),
    .options = options,
    .details =
        "calculon: what a system does not say, power above all, is taken from the GPU of the\n"
        "catalogue that is nearest to it.\n"
        "trace: a log as of Philly, Helios, Acme, PAI, Pollux or Arena, told by its columns, "
        "becomes a\n"
        "trace for ergon simulate on standard output; models that it does not name are drawn.\n"
        "kineto: traces of the GPUs of a training, one of each rank, as PyTorch's profiler and "
        "ergon "
        "train\n"
        "write them, plain or compressed by gzip: prints the seconds, and with a recording the "
        "joules,\n"
        "of every category of kernels.\n"
        "What is left out, and why: ergon-import(1).",
    .examples = "  ergon import calculon gpt3-175B.json a100_80g.json -n 64 -b 256 -o imported\n"
                "  ergon layout imported/job.yaml\n"
                "  ergon import trace cluster_log.csv -c cluster.yaml -P profiles > trace.csv\n"
                "  ergon import kineto rank-*.json.gz --recording node.rec\n",
    .run = run,
};
