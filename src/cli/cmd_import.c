/* ergon import: other tools' files as files of ours, or as what they say. */
#include "api/import_kernels.h"
#include "cli/cli.h"
#include "io/print.h"

#include "base/log.h"
#include "base/text.h"
#include "cluster/traces/trace_print.h"
#include "io/file.h"
#include "io/json.h"
#include "job/job.h"
#include "layout/exchange/calculon.h"

#include <stdio.h>
#include <stdlib.h>
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

/* The name of a file without folder and suffix; to be freed. */
static char *stem(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *name = erg_xstrdup(slash ? slash + 1 : path), *dot = strrchr(name, '.');
    if (dot && dot != name)
        *dot = '\0';
    return name;
}

static int read_model(struct erg_calculon_model *model, const char *path, struct erg_error *err)
{
    char *text;
    size_t length;
    if (erg_file_read(path, ERG_FILE_SMALL_BYTES, &text, &length, err) != 0)
        return -1;
    int status = erg_calculon_model_parse(model, path, text, length, err);
    free(text);
    return status;
}

static int read_system(struct erg_calculon_system *system, const char *path, struct erg_error *err)
{
    char *text;
    size_t length;
    if (erg_file_read(path, ERG_FILE_SMALL_BYTES, &text, &length, err) != 0)
        return -1;
    int status = erg_calculon_system_parse(system, path, text, length, err);
    free(text);
    return status;
}

static void print(const struct erg_invocation *call, const struct erg_job *job,
                  const struct erg_gpu *base)
{
    const struct import_values *values = call->values;
    double parameters = erg_model_parameters(job->model);
    long gpus = erg_cluster_gpus(&job->cluster);
    if (call->common.json) {
        json_t *root =
            erg_json_pack("{s:s, s:i, s:s, s:o, s:I, s:I, s:s}", "schema", "ergon.import",
                          "schema_version", 1, "model", job->model->name, "parameters",
                          erg_json_number(parameters), "gpus", (json_int_t)gpus, "batch",
                          (json_int_t)job->layout.microbatches, "gpu_base", base->name);
        erg_print_json(stdout, root);
        return;
    }
    printf("%s: %.4g billion parameters, %ld layers, sequences of %ld\n", job->model->name,
           parameters / 1e9, job->model->layers, job->layout.sequence);
    printf("%s: %ld GPUs in nodes of %d; what the system does not say is as in %s\n",
           job->gpu->name, gpus, job->cluster.gpus_per_node, base->name);
    printf("Written: config.json, gpu.yaml, engine.yaml and job.yaml in %s\n", values->output);
    puts("Its times are lower bounds: systems do not say what the host, gaps between kernels and "
         "some of the traffic cost.");
    if (strncmp(base->name, "A100", 4) == 0)
        printf(
            "An engine fitted to measured A100s: ergon plan %s/job.yaml --engine megatron-a100\n",
            values->output);
}

static int import_calculon(const struct erg_invocation *call, struct erg_error *err)
{
    const struct import_values *values = call->values;
    const char *const *arguments = call->arguments;
    const struct erg_job_overrides overrides = {.any_layout = true};
    struct erg_calculon_model model;
    struct erg_calculon_system system;
    struct erg_gpu *base = NULL;
    struct erg_job *job = NULL;
    struct erg_text path = {0};
    if (call->argument_count != 3 || !values->output || values->cluster || values->profiles ||
        is_of_kernels(call))
        return erg_fail(err, ERG_USAGE,
                        "\"ergon import calculon\" needs MODEL.json, SYSTEM.json and --output DIR, "
                        "and takes --gpus and --batch");
    if (read_model(&model, arguments[1], err) != 0 ||
        read_system(&system, arguments[2], err) != 0 ||
        erg_calculon_base_gpu(&base, &system, err) != 0)
        return -1;
    char *model_name = stem(arguments[1]), *system_name = stem(arguments[2]);
    long gpus = values->gpus != ERG_NOT_GIVEN ? values->gpus : system.networks[0].size;
    const struct erg_calculon_import import = {
        .model = &model,
        .system = &system,
        .model_name = model_name,
        .system_name = system_name,
        .gpus = gpus,
        .batch = values->batch != ERG_NOT_GIVEN ? values->batch : gpus,
    };
    erg_text_printf(&path, "%s/job.yaml", values->output);
    int status = erg_calculon_write(&import, base, values->output, err);
    if (status == 0)
        status = erg_job_load(&job, path.data, &overrides, err);
    if (status == 0)
        print(call, job, base);
    erg_job_free(job);
    erg_gpu_free(base);
    erg_text_release(&path);
    free(model_name);
    free(system_name);
    return status;
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
    return erg_import_kernels(stdout, &wish,
                              call->common.json ? ERG_IMPORT_JSON
                              : values->csv     ? ERG_IMPORT_CSV
                                                : ERG_IMPORT_TABLE,
                              err);
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
    return erg_trace_print_import(
        stdout, values->cluster, values->profiles, call->arguments[1],
        call->common.seed == ERG_NOT_GIVEN ? 0 : (uint64_t)call->common.seed, err);
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
                "  ergon plan imported/job.yaml\n"
                "  ergon import trace cluster_log.csv -c cluster.yaml -P profiles > trace.csv\n"
                "  ergon import kineto rank-*.json.gz --recording node.rec\n",
    .run = run,
};
