/* ergon import: converts files of other tools to files of ergon, or prints what they measured. */
#include "cli/answer_show.h"
#include "cli/cli.h"
#include "ergon/job.h"
#include "ergon/kernels.h"

#include <stdio.h>
#include <string.h>

struct import_values {
    const char *output, *cluster, *profiles, *recording, *categories;
    long gpus, batch;
    bool csv;
};

#define AT(member) offsetof(struct import_values, member)
static const struct erg_option options[] = {
    {"output", 'o', ERG_OPTION_FILE, "DIR", AT(output),
     .help = "calculon: write config.json, gpu.yaml, engine.yaml and job.yaml to this folder"},
    {"gpus", 'n', ERG_OPTION_LONG, "N", AT(gpus), 1, 1e7,
     .help = "calculon: number of GPUs, a multiple of a node's (default: one node)"},
    {"batch", 'b', ERG_OPTION_LONG, "B", AT(batch), 1, ERG_JOB_MOST_MICROBATCHES,
     .help = "calculon: sequences per iteration (default: one per GPU)"},
    {"cluster", 'c', ERG_OPTION_FILE, "FILE", AT(cluster),
     .help = "trace: cluster on which the jobs run, as for ergon simulate"},
    {"profiles", 'P', ERG_OPTION_FILE, "DIR", AT(profiles),
     .help = "trace: folder with the profiles of the models"},
    {"recording", 'r', ERG_OPTION_FILE, "FILE", AT(recording),
     .help = "kineto: recording that ergon record wrote on the same node at the same time; adds "
             "energies"},
    {"categories", 'k', ERG_OPTION_WORD, "RULE", AT(categories), .words = ERG_WORDS_CATEGORIES,
     .help = "kineto: ergon: ergon's categories (default); charllm: those of a published study"},
    {"csv", 0, ERG_OPTION_FLAG, NULL, AT(csv), .help = "kineto: print CSV (default: a table)"},
    {0},
};

static const char *const formats[] = {"calculon", "trace", "kineto", NULL};
enum { CALCULON, TRACE, KINETO };

/* Returns true if an option was given that only traces of kernels have. */
static bool is_of_kernels(const struct erg_invocation *call)
{
    const struct import_values *values = call->values;
    return values->recording || values->categories || values->csv;
}

static int import_calculon(const struct erg_invocation *call, struct erg_error *err)
{
    const struct import_values *values = call->values;
    if (call->argument_count != 3 || !values->output || values->cluster || values->profiles ||
        is_of_kernels(call))
        return erg_fail(err, ERG_USAGE,
                        "\"ergon import calculon\" needs MODEL.json, SYSTEM.json and --output DIR, "
                        "and accepts --gpus and --batch");
    const struct erg_ask_calculon question = {.size = sizeof question,
                                              .model = call->arguments[1],
                                              .system = call->arguments[2],
                                              .folder = values->output,
                                              .gpus = erg_given_number(values->gpus),
                                              .batch = erg_given_number(values->batch)};
    struct erg_answer *answer = NULL;
    return erg_answer_show(erg_ask_calculon(&answer, &question, err), &answer, call->common.json,
                           err);
}

static int import_kineto(const struct erg_invocation *call, struct erg_error *err)
{
    const struct import_values *values = call->values;
    const struct erg_kernels_options input = {.size = sizeof input,
                                              .files = call->arguments + 1,
                                              .file_count = call->argument_count - 1,
                                              .recording = values->recording,
                                              .categories = values->categories};
    if (values->output || values->cluster || values->profiles || values->gpus != ERG_NOT_GIVEN ||
        values->batch != ERG_NOT_GIVEN || call->common.seed != ERG_NOT_GIVEN ||
        (values->csv && call->common.json))
        return erg_fail(err, ERG_USAGE,
                        "\"ergon import kineto\" needs FILE..., and accepts --recording, "
                        "--categories, and --csv or --json");
    struct erg_kernels *kernels;
    if (erg_kernels_import(&kernels, &input, err) != 0)
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
        return erg_fail(
            err, ERG_USAGE,
            "\"ergon import\" got the format '%.80s', expected 'calculon', 'trace' or 'kineto'",
            what);
    if (call->argument_count != 2 || !values->cluster || !values->profiles || values->output ||
        values->gpus != ERG_NOT_GIVEN || values->batch != ERG_NOT_GIVEN || call->common.json ||
        is_of_kernels(call))
        return erg_fail(err, ERG_USAGE,
                        "\"ergon import trace\" needs LOG, --cluster FILE and --profiles DIR, and "
                        "accepts --seed");
    const struct erg_ask_trace question = {.size = sizeof question,
                                           .cluster = values->cluster,
                                           .profiles = values->profiles,
                                           .log = call->arguments[1],
                                           .seed = (uint64_t)erg_given_number(call->common.seed)};
    struct erg_answer *answer = NULL;
    return erg_answer_show(erg_ask_trace(&answer, &question, err), &answer, false, err);
}

const struct erg_command erg_cmd_import = {
    .name = "import",
    .summary = "import Calculon systems, cluster logs and GPU traces",
    .arguments = "calculon MODEL.json SYSTEM.json | trace LOG | kineto FILE...",
    .argument_choices = formats,
    .least_arguments = 2,
    .most_arguments = SIZE_MAX,
    .values_bytes = sizeof(struct import_values),
    .options = options,
    .details = "calculon: converts a system. Values that it lacks, above all power, come from the "
               "most similar\n"
               "GPU of the catalogue.\n"
               "trace: converts a log of Philly, Helios, Acme, PAI, Pollux or Arena, recognised by "
               "its columns, to\n"
               "a trace for ergon simulate on standard output. Models missing from the log are "
               "drawn at random.\n"
               "kineto: reads GPU traces of a training run, one per rank, written by PyTorch's "
               "profiler or ergon\n"
               "train, plain or gzipped. Prints the seconds of each category of kernels and, with "
               "a recording,\n"
               "the joules.\n"
               "ergon-import(1) describes what is left out.",
    .examples = "  ergon import calculon gpt3-175B.json a100_80g.json -n 64 -b 256 -o imported\n"
                "  ergon layout imported/job.yaml\n"
                "  ergon import trace cluster_log.csv -c cluster.yaml -P profiles > trace.csv\n"
                "  ergon import kineto rank-*.json.gz --recording node.rec\n",
    .run = run,
};
