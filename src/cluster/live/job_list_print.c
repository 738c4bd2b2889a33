/* Live jobs as a table and as JSON. */
#include "cluster/live/job_list_print.h"

#include "io/json.h"
#include "io/print.h"

#include <math.h>
#include <time.h>

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
        reported ? erg_job_state_names[report->state] : NULL, "iteration", report->iteration,
        "iterations", known ? line->request.iterations : NAN, "iterations_per_s", line->speed,
        "checkpoint", report->checkpoint, "joules", report->joules, "expected_end_unix_s",
        end_unix_s(line), "submitted_unix_s", known ? line->request.submitted_unix_s : NAN, "why",
        line->why, "expected_begin_unix_s", line->begins_unix_s);
}

void erg_live_list_print_json(FILE *out, const struct erg_live_list *list)
{
    json_t *jobs = json_array();
    for (size_t i = 0; i < list->count; i++)
        json_array_append_new(jobs, line_document(&list->items[i]));
    erg_print_json(out, erg_json_pack("{s:s, s:i, s:o}", "schema", "ergon.jobs", "schema_version",
                                      1, "jobs", jobs));
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

void erg_live_list_print(FILE *out, const struct erg_live_list *list)
{
    static const char *const heads[] = {"job",       "user", "name",  "GPUs",   "nodes", "for",
                                        "iteration", "of",   "per s", "begins", "ends",  "state"};
    enum { COLUMNS = sizeof heads / sizeof *heads };
    struct erg_table table = {.columns = COLUMNS};
    if (!list->count) {
        fputs("There are no jobs.\n", out);
        return;
    }
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
    erg_print_table(out, &table, "");
}
