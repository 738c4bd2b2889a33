/* ergon simulate --sweep: many simulations, here or under Slurm. */
#define _GNU_SOURCE /* realpath */
#include "api/simulate_sweep.h"
#include "io/print.h"

#include "base/digits.h"
#include "base/log.h"
#include "base/table.h"
#include "cluster/sweep/sweep.h"
#include "io/file.h"
#include "io/json.h"
#include "io/subprocess.h"
#include "report/report.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the script for Slurm ---- */

/* name='/absolute/path' */
static int add_path(struct erg_text *out, const char *name, const char *path, struct erg_error *err)
{
    char *absolute = realpath(path, NULL);
    if (!absolute)
        return erg_fail(err, ERG_FAILED, "finding '%s': %s", path, strerror(errno));
    erg_text_printf(out, "%s=", name);
    erg_subprocess_quote(out, absolute);
    erg_text_add(out, "\n");
    free(absolute);
    return 0;
}

static int print_script(FILE *out, const struct erg_sweep_input *request,
                        const struct erg_sweep *sweep, struct erg_error *err)
{
    size_t points = erg_sweep_points(sweep);
    struct erg_text text = {0};
    if ((size_t)request->slurm > points)
        return erg_fail(err, ERG_USAGE, "--slurm: %ld tasks for %zu simulation%s, expected no more",
                        request->slurm, points, erg_plural(points));
    erg_text_printf(
        &text,
        "#!/bin/sh\n"
        "#SBATCH --job-name=ergon-sweep\n"
        "#SBATCH --array=1-%ld\n"
        "# %zu simulations in %ld tasks, each with a store of its own. Run with sh, this\n"
        "# script submits them and a last job that merges their results when they have\n"
        "# ended, simulates what they left, and writes the page. Add what your site\n"
        "# wants (partition, account, cores, time) as further #SBATCH lines.\n"
        "set -eu\n",
        request->slurm, points, request->slurm);
    int result = erg_dir_make(request->output, err);
    if (result == 0 && request->program)
        result = add_path(&text, "ergon", request->program, err);
    else
        erg_text_add(&text, "ergon=ergon\n");
    if (result == 0)
        result = add_path(&text, "sweep", request->file, err);
    if (result == 0)
        result = add_path(&text, "output", request->output, err);
    erg_text_printf(&text,
                    "case \"${SLURM_ARRAY_TASK_ID-submit}\" in\n"
                    "submit)\n"
                    "    tasks=$(sbatch --parsable \"$0\")\n"
                    "    exec sbatch --dependency=\"afterany:${tasks%%%%;*}\" --array=0 \"$0\" ;;\n"
                    "0)\n"
                    "    exec \"$ergon\" simulate --sweep \"$sweep\" --output \"$output\" ;;\n"
                    "*)\n"
                    "    exec \"$ergon\" simulate --sweep \"$sweep\" --output \"$output\" \\\n"
                    "        --part \"$SLURM_ARRAY_TASK_ID/%ld\" ;;\n"
                    "esac\n",
                    request->slurm);
    if (result == 0)
        fputs(text.data, out);
    erg_text_release(&text);
    return result;
}

/* ---- what came out ---- */

/* "12.31 ± 0.40", in a unit: four digits of the mean, and the interval as far as those go. */
static void add_interval(struct erg_table *table, const json_t *metric, double unit)
{
    double mean = erg_json_number_or(metric, "mean", NAN) / unit,
           half_width = erg_json_number_or(metric, "half_width", NAN) / unit;
    int digits = mean == 0 || !isfinite(mean) ? 0 : (int)fmax(0, 3 - floor(log10(fabs(mean))));
    if (!isfinite(mean))
        erg_table_add(table, "-");
    else if (!isfinite(half_width))
        erg_table_add(table, "%.*f", digits, mean);
    else
        erg_table_add(table, "%.*f ± %.*f", digits, mean, digits, half_width);
}

/* "-18.0 (-24.1 to -11.2) %" */
static void add_change(struct erg_table *table, const json_t *metric)
{
    const json_t *change = json_object_get(metric, "change");
    double mean = 100 * erg_json_number_or(change, "mean", NAN);
    double low = 100 * erg_json_number_or(change, "low", NAN),
           high = 100 * erg_json_number_or(change, "high", NAN);
    if (!isfinite(mean))
        erg_table_add(table, "%s", "");
    else if (!isfinite(low))
        erg_table_add(table, "%+.1f %%", mean);
    else
        erg_table_add(table, "%+.1f (%+.1f to %+.1f) %%", mean, low, high);
}

static const json_t *metric_of(const json_t *policy, const char *key)
{
    return json_object_get(json_object_get(policy, "metrics"), key);
}

static void print_load(FILE *out, const json_t *policies, const char *reference_name)
{
    struct erg_table table = {.columns = 5};
    const json_t *policy;
    size_t i;
    erg_table_add(&table, "policy");
    erg_table_add(&table, "in system, h");
    erg_table_add(&table, "to %s", reference_name);
    erg_table_add(&table, "samples/s");
    erg_table_add(&table, "energy, GJ");
    json_array_foreach(policies, i, policy)
    {
        const json_t *time = metric_of(policy, "mean_time_in_system_s");
        erg_table_add(&table, "%s", json_string_value(json_object_get(policy, "name")));
        add_interval(&table, time, 3600);
        add_change(&table, time);
        add_interval(&table, metric_of(policy, "mean_throughput"), 1);
        add_interval(&table, metric_of(policy, "energy_j"), 1e9);
    }
    erg_print_table(out, &table, "  ");
}

static void print_groups(FILE *out, const json_t *document)
{
    const char *reference = json_string_value(json_object_get(document, "reference"));
    const json_t *group, *load;
    size_t g, l;
    json_array_foreach(json_object_get(document, "groups"), g, group)
    {
        const char *trace = json_string_value(json_object_get(group, "trace"));
        json_array_foreach(json_object_get(group, "loads"), l, load)
        {
            fprintf(out, "%s, %s, load %g", json_string_value(json_object_get(group, "cluster")),
                    trace ? trace : "all traces", erg_json_number_or(load, "load", NAN));
            if (isfinite(erg_json_number_or(group, "power_cap", NAN)))
                fprintf(out, ", at most %.0f %% of the power",
                        100 * erg_json_number_or(group, "power_cap", NAN));
            fprintf(out, "\n");
            print_load(out, json_object_get(load, "policies"), reference);
        }
    }
}

/* Names each job that was not served once, where several policies or caps share its fate, too. */
static void warn_of_unserved(const json_t *document, const struct erg_sweep *sweep)
{
    const json_t *group, *job;
    json_t *said = json_object();
    struct erg_text line = {0};
    size_t g, i;
    json_array_foreach(json_object_get(document, "groups"), g, group)
    {
        json_array_foreach(json_object_get(group, "unserved"), i, job)
        {
            line.count = 0;
            erg_text_add(&line, json_string_value(json_object_get(job, "message")));
            if (sweep->clusters_count > 1)
                erg_text_printf(&line, " (%s)",
                                json_string_value(json_object_get(group, "cluster")));
            if (!json_object_get(said, line.data))
                erg_log(ERG_LOG_WARNING, "%s", line.data);
            json_object_set_new(said, line.data, json_true());
        }
    }
    json_decref(said);
    erg_text_release(&line);
}

static int write_files(const char *folder, const struct erg_sweep *sweep,
                       struct erg_documents *store, const json_t *document, struct erg_error *err)
{
    struct erg_text path = {0}, rows = {0};
    int result = erg_sweep_table(sweep, store, &rows, err);
    erg_text_printf(&path, "%s/sweep.csv", folder);
    if (result == 0)
        result = erg_file_write(path.data, rows.data, rows.count, err);
    path.count = 0;
    erg_text_printf(&path, "%s/sweep.json", folder);
    if (result == 0)
        result = erg_json_write(path.data, document, err);
    path.count = 0;
    erg_text_printf(&path, "%s/report.html", folder);
    if (result == 0)
        result = erg_report_sweep_write(path.data, document, err);
    erg_text_release(&path);
    erg_text_release(&rows);
    return result;
}

static int report(FILE *text, FILE *json, const struct erg_sweep_input *request,
                  const struct erg_sweep *sweep, struct erg_documents *store, struct erg_error *err)
{
    json_t *document;
    if (erg_sweep_document(sweep, store, &document, err) != 0)
        return -1;
    warn_of_unserved(document, sweep);
    int result = write_files(request->output, sweep, store, document, err);
    if (result == 0) {
        erg_print_json(json, json_incref(document));
        print_groups(text, document);
    }
    json_decref(document);
    return result;
}

/* ---- running ---- */

static int parse_part(struct erg_sweep_part *part, const char *text, struct erg_error *err)
{
    const char *at = text;
    int index, count;
    if (!erg_take_digits(&at, 1, 4, &index) || !erg_take_char(&at, '/') ||
        !erg_take_digits(&at, 1, 4, &count) || *at || index < 1 || index > count)
        return erg_fail(err, ERG_USAGE,
                        "--part: expected K/N with K from 1 to N, as in 2/8, got '%s'", text);
    *part = (struct erg_sweep_part){(unsigned)index - 1, (unsigned)count};
    return 0;
}

static int run_sweep(FILE *text, FILE *json, const struct erg_sweep_input *request,
                     const struct erg_sweep *sweep, const struct erg_sweep_part *part,
                     struct erg_error *err)
{
    struct erg_documents *store;
    if (erg_sweep_store_open(&store, request->output, part, err) != 0)
        return -1;
    int result = erg_sweep_run(sweep, store, part, err);
    if (result != 0 && err->status == ERG_INTERRUPTED)
        erg_fail(err, ERG_INTERRUPTED,
                 "interrupted; finished simulations are stored, run the same command to continue");
    else if (!request->part) {
        /* A few that failed do not take the others' page away. */
        struct erg_error reason;
        if (report(text, json, request, sweep, store, result == 0 ? err : &reason) != 0)
            result = -1;
    }
    erg_documents_close(store);
    return result;
}

int erg_simulate_sweep(FILE *text, FILE *json, const struct erg_sweep_input *request,
                       struct erg_error *err)
{
    struct erg_sweep_part part = {0, 1};
    struct erg_sweep *sweep;
    if (!request->output)
        return erg_fail(err, ERG_USAGE, "--sweep needs --output DIR, the folder of its results");
    if (request->part && request->slurm != ERG_NOT_GIVEN)
        return erg_fail(err, ERG_USAGE, "--part and --slurm exclude each other");
    if ((request->part && parse_part(&part, request->part, err) != 0) ||
        erg_sweep_load(&sweep, request->file, err) != 0)
        return -1;
    int result = request->slurm != ERG_NOT_GIVEN
                     ? print_script(text, request, sweep, err)
                     : run_sweep(text, json, request, sweep, &part, err);
    erg_sweep_free(sweep);
    return result;
}
