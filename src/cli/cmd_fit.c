/* ergon fit ROWS.csv or --from RUN: the constants of a training engine that explain measured
 * iterations. */
#include "api/fitting.h"
#include "cli/cli.h"
#include "io/print.h"

#include "base/table.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

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
     .help = "what is fitted, at most eight"},
    {"folds", 'f', ERG_OPTION_LONG, "N", AT(folds), 2, ERG_FIT_MOST_FOLDS, .default_text = "5",
     .help = "parts of the rows, each of which is predicted from the others"},
    {"output", 'o', ERG_OPTION_FILE, "FILE.yaml", AT(output),
     .help = "write the engine with its fitted constants"},
    {0},
};

/* What is neither said nor follows. */
static int make_wish(struct erg_fitting_wish *wish, const struct erg_invocation *call,
                     struct erg_error *err)
{
    const struct fit_values *values = call->values;
    const struct erg_option_list *runs = &values->runs;
    *wish = (struct erg_fitting_wish){
        .rows = call->argument_count ? call->arguments[0] : NULL,
        .runs = runs->items,
        .run_count = runs->count,
        .job = values->job,
        .cluster = values->cluster,
        .keys = values->keys,
        .output = values->output,
        .folds = values->folds,
    };
    if (!wish->rows && !runs->count)
        return erg_fail(err, ERG_USAGE,
                        "\"ergon fit\" needs ROWS.csv or --from RUN; see \"ergon fit --help\".");
    for (size_t i = 0; i < runs->count; i++)
        for (size_t before = 0; before < i; before++)
            if (!strcmp(runs->items[before], runs->items[i]))
                return erg_fail(err, ERG_USAGE,
                                "--from: the run '%s' is named twice; expected it once, since a "
                                "row counts as often as it is there",
                                runs->items[i]);
    wish->engine = values->engine ? values->engine : wish->rows ? NULL : "ergon";
    return wish->engine
               ? 0
               : erg_fail(err, ERG_USAGE, "\"ergon fit\" needs the option --engine NAME (%s).",
                          "name or file of the engine whose constants are the start, and "
                          "stay where not fitted");
}

/* ---- what comes out ---- */

static void add_errors(struct erg_table *table, const char *name,
                       const struct erg_fit_errors *errors)
{
    erg_table_add(table, "%s", name);
    erg_table_add(table, "%.2f %%", 100 * errors->mean);
    erg_table_add(table, "%.2f %%", 100 * errors->most);
    erg_table_add(table, "%.3f", errors->spearman);
}

/* "t1 c1 p2 d1, 4 x 2 x 4096" */
static void add_layout(struct erg_table *table, const struct erg_fit_row *row)
{
    const struct erg_layout *layout = &row->layout;
    struct erg_text text = {0};
    erg_text_printf(&text, "t%ld c%ld p%ld d%ld", layout->tensor, layout->context, layout->pipeline,
                    layout->data);
    if (layout->virtual_stages > 1)
        erg_text_printf(&text, " v%ld", layout->virtual_stages);
    erg_text_printf(&text, ", %ld x %ld x %ld", layout->microbatches, layout->microbatch,
                    layout->sequence);
    if (strcmp(erg_layout_recompute_name(layout), "none") != 0)
        erg_text_printf(&text, ", %s", erg_layout_recompute_name(layout));
    if (row->sequence_parallel == ERG_FIT_PARALLEL)
        erg_text_add(&text, ", sp");
    erg_table_add(table, "%s", text.data);
    erg_text_release(&text);
}

/* A number of a run in its unit, or that it is not known. */
static void add_known(struct erg_table *table, const char *sign, double value, const char *unit)
{
    if (isnan(value))
        erg_table_add(table, "not known");
    else
        erg_table_add(table, "%s%.3g %s", sign, value, unit);
}

/* What the runs have measured. */
static void add_runs(struct erg_text *text, const struct erg_fitting *at)
{
    static const char *const heads[] = {"run",    "device", "layout",    "steps",
                                        "step",   "spread", "tok/s",     "predicted",
                                        "memory", "energy", "predicted", ""};
    struct erg_table table = {.columns = sizeof heads / sizeof *heads};
    for (size_t i = 0; i < table.columns; i++)
        erg_table_add(&table, "%s", heads[i]);
    for (size_t i = 0; i < at->rows.count; i++) {
        const struct erg_fit_row *row = &at->rows.items[i];
        if (!row->run)
            continue;
        erg_table_add(&table, "%s", row->path);
        erg_table_add(&table, "%s", row->device);
        add_layout(&table, row);
        erg_table_add(&table, "%ld", row->run->steps);
        erg_table_add(&table, "%.4g ms", 1e3 * row->time_s);
        add_known(&table, "± ", 100 * row->run->spread, "%");
        erg_table_add(&table, "%.5g", erg_fitting_rate(row));
        erg_table_add(&table, "%.4g ms", 1e3 * erg_fitting_s(at, i));
        add_known(&table, "", row->run->memory_bytes / 0x1p30, "GiB");
        add_known(&table, "", row->run->energy_j, "J");
        erg_table_add(&table, "%.3g J", erg_fitting_j(at, row));
        erg_table_add(&table, "%s", "");
    }
    if (at->wish->run_count) {
        erg_table_text(text, &table, "");
        erg_text_add(text, "\n");
    }
    erg_table_release(&table);
}

static void print_text(const struct erg_fitting *at)
{
    struct erg_table constants = {.columns = 4}, errors = {.columns = 4};
    struct erg_text text = {0}, untold = {0};
    erg_table_add(&constants, "constant");
    erg_table_add(&constants, "start");
    erg_table_add(&constants, "fitted");
    erg_table_add(&constants, "uncertainty");
    for (size_t k = 0; k < at->fit.constants; k++) {
        erg_table_add(&constants, "%s", at->keys[k]);
        erg_table_add(&constants, "%.4g", erg_fitting_unit(at->start, at->keys[k]));
        erg_table_add(&constants, "%.4g", erg_fitting_unit(&at->fit.engine, at->keys[k]));
        if (isinf(at->fit.uncertainty[k])) {
            erg_table_add(&constants, "not told");
            erg_text_printf(&untold, "%s%s", untold.count ? ", " : "", at->keys[k]);
        } else {
            erg_table_add(&constants, "± %.1f %%", 100 * at->fit.uncertainty[k]);
        }
    }
    erg_table_add(&errors, "error");
    erg_table_add(&errors, "mean");
    erg_table_add(&errors, "worst");
    erg_table_add(&errors, "rank agreement");
    add_errors(&errors, "of the rows fitted to", &at->fit.fitted);
    add_errors(&errors, "of rows held out", &at->fit.held_out);
    add_runs(&text, at);
    erg_table_text(&text, &constants, "");
    erg_text_add(&text, "\n");
    erg_table_text(&text, &errors, "");
    erg_text_printf(&text, "\n%zu rows; held out in %ld folds:", at->rows.count, at->wish->folds);
    for (long fold = 0; fold < at->wish->folds; fold++)
        erg_text_printf(&text, " %.2f %%", 100 * at->fit.fold_mean[fold]);
    const size_t worst = at->fit.fitted.worst;
    const struct erg_fit_row *row = &at->rows.items[worst];
    struct erg_arena arena = {0};
    erg_text_printf(&text, "\nFurthest off: %s: %.4g s measured, %.4g s predicted\n",
                    erg_fit_row_place(row, &arena), row->time_s, erg_fitting_s(at, worst));
    erg_arena_release(&arena);
    if (untold.count)
        erg_text_printf(&text,
                        "These rows do not tell: %s.\n"
                        "Either they do not depend on it, or another constant does the same to all "
                        "of them.\n",
                        untold.data);
    fputs(text.data, stdout);
    erg_text_release(&text);
    erg_text_release(&untold);
    erg_table_release(&constants);
    erg_table_release(&errors);
}

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    struct erg_fitting_wish wish;
    struct erg_fitting at;
    if (make_wish(&wish, call, err) != 0)
        return -1;
    int status = erg_fitting_run(&at, &wish, err);
    if (status == 0 && call->common.json)
        erg_print_json(stdout, erg_fitting_document(&at));
    else if (status == 0)
        print_text(&at);
    erg_fitting_release(&at);
    return status;
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
