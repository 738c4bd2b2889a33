/* ergon fit ROWS.csv or --from RUN: fits the constants of a training engine to measured
 * iterations. */
#include "cli/answer_show.h"
#include "cli/cli.h"

#include <string.h>

enum { MOST_FOLDS = 20 };

struct fit_values {
    struct erg_option_list runs;
    const char *job, *cluster, *engine, *keys, *output;
    long folds;
};

#define AT(member) offsetof(struct fit_values, member)
static const struct erg_option options[] = {
    {"from", 'r', ERG_OPTION_FILES, "RUN", AT(runs),
     .help = "add a row from this folder of a run of ergon train; may be given several times"},
    {"engine", 'e', ERG_OPTION_TEXT, "NAME", AT(engine),
     .help = "engine with the initial constants, which also provides those that are not fitted: a "
             "name or a file (default: ergon, if all rows come from runs)"},
    {"cluster", 'c', ERG_OPTION_FILE, "FILE", AT(cluster),
     .help = "cluster on which the rows were measured (default: that of the runs)"},
    {"job", 'j', ERG_OPTION_FILE, "JOB.yaml", AT(job), .help = "take the cluster from this job"},
    {"constants", 'k', ERG_OPTION_TEXT, "KEY,…", AT(keys),
     .default_text = "gemm_efficiency,layer_overhead_us,link_efficiency,network_efficiency",
     .help = "constants to fit, at most eight"},
    {"folds", 'f', ERG_OPTION_LONG, "N", AT(folds), 2, MOST_FOLDS, .default_text = "5",
     .help = "parts of the rows for cross-validation"},
    {"output", 'o', ERG_OPTION_FILE, "FILE.yaml", AT(output),
     .help = "write the engine with its fitted constants"},
    {0},
};

/* Fills what was not given and does not follow from other options. */
static int make_question(struct erg_ask_fit *question, const struct erg_invocation *call,
                         struct erg_error *err)
{
    const struct fit_values *values = call->values;
    const struct erg_option_list *runs = &values->runs;
    *question = (struct erg_ask_fit){
        .size = sizeof *question,
        .rows = call->argument_count ? call->arguments[0] : NULL,
        .runs = runs->items,
        .run_count = runs->count,
        .job = values->job,
        .cluster = values->cluster,
        .keys = values->keys,
        .output = values->output,
        .folds = values->folds,
    };
    if (!question->rows && !runs->count)
        return erg_fail(err, ERG_USAGE,
                        "\"ergon fit\" needs ROWS.csv or --from RUN; see \"ergon fit --help\"");
    for (size_t i = 0; i < runs->count; i++)
        for (size_t before = 0; before < i; before++)
            if (!strcmp(runs->items[before], runs->items[i]))
                return erg_fail(err, ERG_USAGE,
                                "--from: the run '%s' was given twice; expected each run once",
                                runs->items[i]);
    question->engine = values->engine ? values->engine : question->rows ? NULL : "ergon";
    return question->engine
               ? 0
               : erg_fail(err, ERG_USAGE, "\"ergon fit\" needs the option --engine NAME (%s)",
                          "engine with the initial constants: a name or a file");
}

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    struct erg_ask_fit question;
    struct erg_answer *answer = NULL;
    if (make_question(&question, call, err) != 0)
        return -1;
    return erg_answer_show(erg_ask_fit(&answer, &question, err), &answer, call->common.json, err);
}

const struct erg_command erg_cmd_fit = {
    .name = "fit",
    .summary = "fit a training engine's constants to measured iterations",
    .arguments = "[ROWS.csv]",
    .most_arguments = 1,
    .common = ERG_COMMON_JSON,
    .values_bytes = sizeof(struct fit_values),
    .options = options,
    .details =
        "ROWS.csv has a row for every measured iteration, with the columns model (a name of the\n"
        "catalogue or a path), sequence (tokens), gpus, batch (sequences), t, c, p (tensor,\n"
        "context and pipeline degree) and time_s or tokens_per_s (all GPUs together).\n"
        "Optional columns: microbatch, l (layers of a chunk) or v (chunks of a stage), recompute\n"
        "(none, norms, activation, balanced, full), offload (0 to 1) and device (the name of the "
        "GPU).\n"
        "\n"
        "--from RUN adds a row that ergon train measured: the median time of its steps, without "
        "the\n"
        "first step of each start and without steps during a trace, a validation or a checkpoint.\n"
        "\n"
        "The fit minimises the squared error of the logarithm of the time. In cross-validation, "
        "each\n"
        "part of the rows is predicted with constants fitted to the other parts: this gives the "
        "error\n"
        "on held-out rows, and the spread of these constants is their uncertainty.",
    .examples =
        "  ergon fit rows.csv --cluster cluster.yaml --engine megatron-kwai-h800\n"
        "  ergon fit rows.csv -j job.yaml -e megatron-a100 -k gemm_efficiency -o mine.yaml\n"
        "  ergon fit --from run1 --from run2 -k gemm_efficiency -f 2 -o mine.yaml\n",
    .run = run,
};
