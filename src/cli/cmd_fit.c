/* ergon fit ROWS.csv or --from RUN: the constants of a training engine that explain measured
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
     .help = "a row from the folder of a run of ergon train; once for each run"},
    {"engine", 'e', ERG_OPTION_TEXT, "NAME", AT(engine),
     .help = "name or file of the engine whose constants are the start, and stay where not fitted "
             "(default: ergon where all rows are of runs)"},
    {"cluster", 'c', ERG_OPTION_FILE, "FILE", AT(cluster),
     .help = "the cluster that the rows were measured on (default: that of the runs)"},
    {"job", 'j', ERG_OPTION_FILE, "JOB.yaml", AT(job), .help = "the same, from a job"},
    {"constants", 'k', ERG_OPTION_TEXT, "KEY,…", AT(keys),
     .default_text = "gemm_efficiency,layer_overhead_us,link_efficiency,network_efficiency",
     .help = "constants to fit, at most eight"},
    {"folds", 'f', ERG_OPTION_LONG, "N", AT(folds), 2, MOST_FOLDS, .default_text = "5",
     .help = "parts of the rows, each of which is predicted from the others"},
    {"output", 'o', ERG_OPTION_FILE, "FILE.yaml", AT(output),
     .help = "write the engine with its fitted constants"},
    {0},
};

/* What is neither said nor follows. */
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
                        "\"ergon fit\" needs ROWS.csv or --from RUN; see \"ergon fit --help\".");
    for (size_t i = 0; i < runs->count; i++)
        for (size_t before = 0; before < i; before++)
            if (!strcmp(runs->items[before], runs->items[i]))
                return erg_fail(err, ERG_USAGE,
                                "--from: the run '%s' is named twice; expected it once, since a "
                                "row counts as often as it is there",
                                runs->items[i]);
    question->engine = values->engine ? values->engine : question->rows ? NULL : "ergon";
    return question->engine
               ? 0
               : erg_fail(err, ERG_USAGE, "\"ergon fit\" needs the option --engine NAME (%s).",
                          "name or file of the engine whose constants are the start, and "
                          "stay where not fitted");
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
        "context and pipeline degree) and time_s or tokens_per_s (all GPUs together);\n"
        "and, where they matter,\n"
        "microbatch, l (layers of a chunk) or v (chunks of a stage), recompute (none, norms,\n"
        "activation, balanced, full), offload (0 to 1) and device (the name of the GPU).\n"
        "\n"
        "--from RUN adds a row of what ergon train has measured: the median of its steps, without\n"
        "the first of a start, and without those beside a trace, a validation or a checkpoint.\n"
        "\n"
        "Constants are fitted by least squares of the logarithm of the time. Every part of the\n"
        "rows is also predicted by constants that were fitted to the other parts: that is the\n"
        "error of rows held out, and the spread of those constants is their uncertainty.",
    .examples =
        "  ergon fit rows.csv --cluster cluster.yaml --engine megatron-kwai-h800\n"
        "  ergon fit rows.csv -j job.yaml -e megatron-a100 -k gemm_efficiency -o mine.yaml\n"
        "  ergon fit --from run1 --from run2 -k gemm_efficiency -f 2 -o mine.yaml\n",
    .run = run,
};
