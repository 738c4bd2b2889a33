/* ergon jobs: what managed jobs have and do. */
#include "cli/cli.h"

#include "cli/live_option.h"
#include "cluster/live/job_list.h"
#include "io/json.h"
#include "io/print.h"

#include <math.h>
#include <time.h>

struct jobs_values {
    const char *live;
    bool all;
};

#define AT(member) offsetof(struct jobs_values, member)
static const struct erg_option options[] = {
    {"live", 'l', ERG_OPTION_FILE, "LIVE.yaml", AT(live), .help = ERG_LIVE_OPTION_HELP},
    {"all", 'a', ERG_OPTION_FLAG, NULL, AT(all),
     .help = "also jobs of other users, and those that have ended and that Slurm still knows"},
    {0},
};

static double end_unix_s(const struct erg_live_line *line)
{
    return isnan(line->left_s) ? NAN : (double)time(NULL) + line->left_s;
}

static json_t *line_document(const struct erg_live_line *line)
{
    const bool known = line->is_readable, reported = line->report.incarnation > 0;
    const struct erg_report none = {.iteration = NAN, .checkpoint = NAN, .joules = NAN};
    const struct erg_report *report = reported ? &line->report : &none;
    return erg_json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:i, s:f, s:I, s:s, s:f, s:f, s:f, s:f, s:f, "
        "s:f, "
        "s:f, s:s, s:f}",
        "id", line->id, "token", line->token, "user", line->user, "name",
        known ? line->request.name : NULL, "state", line->state, "reason", line->reason, "says",
        erg_live_line_says(line), "nodes", line->nodes, "gpus", line->gpus, "running_s",
        line->since_s, "incarnation", (json_int_t)line->report.incarnation, "report",
        reported ? erg_report_state_name(report->state) : NULL, "iteration", report->iteration,
        "iterations", known ? line->request.iterations : NAN, "iterations_per_s", line->speed,
        "checkpoint", report->checkpoint, "joules", report->joules, "expected_end_unix_s",
        end_unix_s(line), "submitted_unix_s", known ? line->request.submitted_unix_s : NAN, "why",
        line->why, "expected_begin_unix_s", line->begins_unix_s);
}

static void print_json(const struct erg_live_list *list)
{
    json_t *jobs = json_array();
    for (size_t i = 0; i < list->count; i++)
        json_array_append_new(jobs, line_document(&list->items[i]));
    erg_print_json(stdout, erg_json_pack("{s:s, s:i, s:o}", "schema", "ergon.jobs", "schema_version", 1,
                                 "jobs", jobs));
}

static void add_number(struct erg_table *table, int digits, double value)
{
    if (isnan(value))
        erg_table_add(table, "-");
    else
        erg_table_add(table, "%.*g", digits, value);
}

static void add_duration(struct erg_table *table, double seconds)
{
    const double minutes = floor(seconds / 60);
    if (isnan(seconds))
        erg_table_add(table, "-");
    else if (minutes < 60)
        erg_table_add(table, "%.0f min", minutes);
    else
        erg_table_add(table, "%.0f h %02.0f", floor(minutes / 60), fmod(minutes, 60));
}

static void add_time(struct erg_table *table, double unix_s)
{
    char text[32];
    time_t at = isnan(unix_s) || unix_s > 1e11 ? 0 : (time_t)unix_s;
    struct tm parts;
    if (at && localtime_r(&at, &parts) && strftime(text, sizeof text, "%m-%d %H:%M", &parts))
        erg_table_add(table, "%s", text);
    else
        erg_table_add(table, "-");
}

static void print_table(const struct erg_live_list *list)
{
    static const char *const heads[] = {"job",       "user", "name",  "GPUs",   "nodes", "for",
                                        "iteration", "of",   "per s", "begins", "ends",  "state"};
    enum { COLUMNS = sizeof heads / sizeof *heads };
    struct erg_table table = {.columns = COLUMNS};
    erg_print_heads(&table, heads, COLUMNS);
    for (size_t i = 0; i < list->count; i++) {
        const struct erg_live_line *line = &list->items[i];
        const bool reported = line->report.incarnation > 0;
        erg_table_add(&table, "%s", line->id);
        erg_table_add(&table, "%s", line->user);
        erg_table_add(&table, "%s", line->is_readable ? line->request.name : "-");
        add_number(&table, 15, line->gpus ? line->gpus : (double)NAN);
        erg_table_add(&table, "%s", *line->nodes ? line->nodes : "-");
        add_duration(&table, line->since_s);
        add_number(&table, 15, reported ? line->report.iteration : NAN);
        add_number(&table, 15, line->is_readable ? line->request.iterations : NAN);
        add_number(&table, 3, line->speed);
        add_time(&table, line->waits ? line->begins_unix_s : NAN);
        add_time(&table, end_unix_s(line));
        if (line->waits && line->why)
            erg_table_add(&table, "%s: %s", erg_live_line_says(line), line->why);
        else
            erg_table_add(&table, "%s", erg_live_line_says(line));
    }
    erg_print_table(stdout, &table, "");
}

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    const struct jobs_values *values = call->values;
    struct erg_live_file *live;
    struct erg_live_list list = {0};
    if (erg_live_option_load(&live, values->live, err) != 0)
        return -1;
    int result =
        erg_live_list_read(&list, live->slurm.partition, live->slurm.spool, values->all, err);
    if (result == 0 && call->common.json)
        print_json(&list);
    else if (result == 0 && list.count)
        print_table(&list);
    else if (result == 0)
        puts("There are no jobs.");
    erg_live_list_release(&list);
    erg_live_file_free(live);
    return result;
}

const struct erg_command erg_cmd_jobs = {
    .name = "jobs",
    .summary = "list the jobs that the cluster's scheduler manages",
    .arguments = "",
    .least_arguments = 0,
    .most_arguments = 0,
    .common = ERG_COMMON_JSON,
    .values_bytes = sizeof(struct jobs_values),
    .options = options,
    .details = "Of each of your jobs what it has, for how long, how far it is and when it should "
               "end as it runs\nnow: from Slurm, and from what its trainer reports.",
    .examples = "  ergon jobs --live live.yaml\n"
                "  ergon jobs --all --json\n",
    .run = run,
};
