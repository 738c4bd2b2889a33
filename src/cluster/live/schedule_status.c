/* Prints the status of a controller as lines and tables. */
#include "cluster/live/schedule_status.h"

#include "base/quantity.h"
#include "cluster/live/schedule_counts.h"
#include "io/print.h"

#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { NAME_COLUMNS = 32, REASON_COLUMNS = 100, NOTES = 10, TROUBLES = 10 };

/* ---- cells ---- */

/* On one line, truncated to this many columns. */
static void add_short(struct erg_text *out, const char *text, size_t columns)
{
    struct erg_text line = {0};
    erg_text_add_printable(&line, text);
    if (erg_text_width(line.data) > columns) {
        const char *end = line.data;
        for (size_t width = 0; width < columns - 3; width++)
            for (end++; ((unsigned char)*end & 0xC0) == 0x80;)
                end++;
        erg_text_add_bytes(out, line.data, (size_t)(end - line.data));
        erg_text_add(out, "...");
    } else {
        erg_text_add(out, line.data);
    }
    erg_text_release(&line);
}

static const char *duration(char out[ERG_FORMAT_BYTES], double seconds)
{
    if (isnan(seconds))
        snprintf(out, ERG_FORMAT_BYTES, "-");
    else
        erg_format_duration(out, fmax(0, seconds));
    return out;
}

/* "2026-11-27 22:07:41", or its time of day alone. */
static const char *local_time(char out[ERG_FORMAT_BYTES], double unix_s, bool with_date)
{
    struct tm local;
    const time_t whole = fabs(unix_s) < 1e12 ? (time_t)unix_s : 0;
    if (!(fabs(unix_s) < 1e12) || !localtime_r(&whole, &local) ||
        strftime(out, ERG_FORMAT_BYTES, "%Y-%m-%d %H:%M:%S", &local) == 0)
        return "-";
    const char *space = strchr(out, ' ');
    return with_date || !space ? out : space + 1;
}

static void add_whole(struct erg_table *table, double value)
{
    if (isnan(value))
        erg_table_add(table, "-");
    else
        erg_table_add(table, "%.0f", value);
}

/* "12 bert-large (anna)" */
static void add_job(struct erg_table *table, const json_t *job)
{
    struct erg_text text = {0};
    const double id = erg_json_number_or(job, "id", NAN);
    const char *name = erg_schedule_string(job, "name"), *user = erg_schedule_string(job, "user");
    if (isnan(id))
        erg_text_add(&text, "-");
    else
        erg_text_printf(&text, "%.0f", id);
    erg_text_add(&text, *name ? " " : "");
    add_short(&text, name, NAME_COLUMNS);
    erg_text_add(&text, *user ? " (" : "");
    add_short(&text, user, NAME_COLUMNS);
    erg_text_add(&text, *user ? ")" : "");
    erg_table_add(table, "%s", text.data);
    erg_text_release(&text);
}

/* The digits at the end of a name. */
static size_t digits_of(const char *name)
{
    const size_t length = strlen(name);
    size_t count = 0;
    while (count < length && isdigit((unsigned char)name[length - 1 - count]))
        count++;
    return count < 10 ? count : 9;
}

/* Returns true if the names differ only in the number at their ends, which is one higher in
 * `next`. */
static bool follows(const char *name, const char *next)
{
    const size_t length = strlen(name), digits = digits_of(name);
    return digits > 0 && strlen(next) == length && digits_of(next) == digits &&
           strncmp(name, next, length - digits) == 0 &&
           atol(next + length - digits) == atol(name + length - digits) + 1;
}

/* "h[001-004],h007" for sorted names. */
static void add_nodes(struct erg_table *table, const json_t *nodes)
{
    struct erg_text text = {0};
    const size_t count = json_array_size(nodes);
    for (size_t first = 0, last; first < count; first = last + 1) {
        const char *name = json_string_value(json_array_get(nodes, first)), *end = name;
        for (last = first; name && last + 1 < count; last++) {
            const char *next = json_string_value(json_array_get(nodes, last + 1));
            if (!next || !follows(end, next))
                break;
            end = next;
        }
        if (!name)
            continue;
        const size_t head = strlen(name) - digits_of(name);
        erg_text_add(&text, text.count ? "," : "");
        if (end == name)
            erg_text_add_printable(&text, name);
        else
            erg_text_printf(&text, "%.*s[%s-%s]", (int)head, name, name + head, end + head);
    }
    struct erg_text cell = {0};
    add_short(&cell, text.count ? text.data : "-", REASON_COLUMNS);
    erg_table_add(table, "%s", cell.data);
    erg_text_release(&cell);
    erg_text_release(&text);
}

/* ---- parts ---- */

static void print_cluster(struct erg_text *out, const json_t *status)
{
    static const char *const texts[ERG_GPU_USES] = {"with managed jobs", "with other jobs", "free",
                                                    "on nodes that are not up"};
    const char *policy = erg_schedule_string(status, "policy");
    char now[ERG_FORMAT_BYTES];
    struct erg_schedule_counts counts;
    size_t gpus = 0;
    erg_schedule_count(&counts, status);
    for (int use = 0; use < ERG_GPU_USES; use++)
        gpus += counts.gpus[use];
    erg_text_printf(out, "%s, policy %s: %zu GPU%s on %zu node%s",
                    local_time(now, erg_json_number_or(status, "at_unix_s", NAN), true),
                    *policy ? policy : "-", gpus, erg_plural(gpus), counts.nodes,
                    erg_plural(counts.nodes));
    for (int use = 0; use < ERG_GPU_USES; use++)
        if (counts.gpus[use] > 0 || use == ERG_GPU_MANAGED || use == ERG_GPU_FREE)
            erg_text_printf(out, ", %zu %s", counts.gpus[use], texts[use]);
    erg_text_add(out, "\n");
    erg_schedule_counts_release(&counts);
}

static void print_power(struct erg_text *out, const json_t *status)
{
    const json_t *power = json_object_get(status, "power");
    const double now_w = erg_json_number_or(power, "now_w", NAN);
    const double cap_w = erg_json_number_or(power, "cap_w", NAN);
    const double idle_w = erg_json_number_or(power, "idle_w", NAN);
    char text[ERG_FORMAT_BYTES];
    if (isnan(now_w))
        return;
    erg_text_printf(out, "Power: %s", erg_format_quantity(text, now_w, "W"));
    if (!isnan(cap_w))
        erg_text_printf(out, " of a cap of %s", erg_format_quantity(text, cap_w, "W"));
    if (!isnan(idle_w))
        erg_text_printf(out, ", %s without jobs", erg_format_quantity(text, idle_w, "W"));
    erg_text_add(out, "\n");
}

/* Warnings that readers need first. */
static void print_troubles(struct erg_text *out, const json_t *status)
{
    const json_t *node;
    size_t n, count = 0;
    if (!erg_schedule_flag(status, "answers"))
        erg_text_add(out, "The resource manager does not answer: this is the last known state.\n");
    json_array_foreach(json_object_get(status, "nodes"), n, node)
    {
        const char *state = erg_schedule_string(node, "state");
        const char *reason = erg_schedule_string(node, "reason");
        if (strcmp(state, "down") != 0 && strcmp(state, "draining") != 0 &&
            strcmp(state, "unknown") != 0)
            continue;
        if (count++ >= TROUBLES)
            continue;
        erg_text_add(out, "Node ");
        add_short(out, erg_schedule_string(node, "name"), NAME_COLUMNS);
        erg_text_printf(out, ": %s%s", state, *reason ? ", " : "");
        add_short(out, reason, REASON_COLUMNS);
        erg_text_add(out, "\n");
    }
    if (count > TROUBLES)
        erg_text_printf(out, "%zu more nodes are down, draining or unknown\n", count - TROUBLES);
}

static void add_running(struct erg_table *table, const json_t *job, double at_s)
{
    char text[ERG_FORMAT_BYTES];
    const char *phase = erg_schedule_string(job, "phase");
    const double gpus = erg_json_number_or(job, "gpus", NAN);
    const double intended = erg_json_number_or(job, "gpus_intended", NAN);
    const double done = erg_json_number_or(job, "iteration", NAN);
    const double all = erg_json_number_or(job, "iterations", NAN);
    const double starts = erg_json_number_or(job, "starts", NAN);
    add_job(table, job);
    erg_table_add(table, "%s", *phase ? phase : "-");
    if (!isnan(intended) && intended != gpus)
        erg_table_add(table, "%.0f to %.0f", gpus, intended);
    else
        add_whole(table, gpus);
    add_whole(table, erg_json_number_or(job, "point", NAN));
    if (isnan(done) || !(all > 0))
        erg_table_add(table, "-");
    else
        erg_table_add(table, "%.0f %%", floor(100 * fmin(1, done / all)));
    if (isnan(erg_json_number_or(job, "iteration_s", NAN)))
        erg_table_add(table, "-");
    else
        erg_table_add_number(table, 3, erg_json_number_or(job, "iteration_s", NAN));
    erg_table_add(table, "%s", duration(text, erg_json_number_or(job, "ends_unix_s", NAN) - at_s));
    add_whole(table, starts > 0 ? starts - 1 : starts);
    add_nodes(table, json_object_get(job, "nodes"));
}

static void add_waiting(struct erg_table *table, const json_t *job, double at_s)
{
    char text[ERG_FORMAT_BYTES];
    struct erg_text reason = {0};
    const char *phase = erg_schedule_string(job, "phase");
    add_job(table, job);
    add_whole(table, erg_json_number_or(job, "gpus_asked", NAN));
    erg_table_add(table, "%s",
                  duration(text, at_s - erg_json_number_or(job, "submitted_unix_s", NAN)));
    erg_table_add(table, "%s",
                  duration(text, erg_json_number_or(job, "starts_unix_s", NAN) - at_s));
    if (erg_schedule_flag(job, "needs_attention"))
        erg_text_add(&reason, "needs attention: ");
    else if (*phase && strcmp(phase, "waiting") != 0)
        erg_text_printf(&reason, "%s: ", phase);
    add_short(&reason,
              *erg_schedule_string(job, "reason") ? erg_schedule_string(job, "reason") : "-",
              REASON_COLUMNS);
    erg_table_add(table, "%s", reason.data);
    erg_text_release(&reason);
}

static void print_jobs(struct erg_text *out, const json_t *status)
{
    static const char *const running_heads[] = {
        "job", "phase", "GPUs", "point", "done", "s/iteration", "ends in", "restarts", "nodes"};
    static const char *const waiting_heads[] = {"job", "GPUs", "waited", "starts in",
                                                "why it waits"};
    const double at_s = erg_json_number_or(status, "at_unix_s", NAN);
    struct erg_table running = {0}, waiting = {0};
    const json_t *job;
    size_t i, running_count = 0, waiting_count = 0;
    erg_print_heads(&running, running_heads, sizeof running_heads / sizeof *running_heads);
    erg_print_heads(&waiting, waiting_heads, sizeof waiting_heads / sizeof *waiting_heads);
    json_array_foreach(json_object_get(status, "jobs"), i, job)
    {
        if (erg_schedule_has_gpus(job)) {
            add_running(&running, job, at_s);
            running_count++;
        } else if (!erg_schedule_is_over(job)) {
            add_waiting(&waiting, job, at_s);
            waiting_count++;
        }
    }
    erg_text_printf(out, "\nJobs with GPUs: %zu\n", running_count);
    if (running_count > 0)
        erg_table_text(out, &running, "  ");
    erg_text_printf(out,
                    "\n"
                    "Waiting jobs: %zu\n",
                    waiting_count);
    if (waiting_count > 0)
        erg_table_text(out, &waiting, "  ");
    erg_table_release(&running);
    erg_table_release(&waiting);
}

static void print_notes(struct erg_text *out, const json_t *status)
{
    const json_t *notes = json_object_get(status, "notes");
    const size_t count = json_array_size(notes);
    char text[ERG_FORMAT_BYTES];
    if (count > 0)
        erg_text_add(out, "\nLast decisions and actions\n");
    for (size_t i = count > NOTES ? count - NOTES : 0; i < count; i++) {
        const json_t *note = json_array_get(notes, i);
        erg_text_printf(out, "  %s  ",
                        local_time(text, erg_json_number_or(note, "at_unix_s", NAN), false));
        erg_text_add_printable(out, erg_schedule_string(note, "text"));
        erg_text_add(out, "\n");
    }
}

void erg_schedule_status_print(FILE *file, const json_t *status)
{
    struct erg_text out = {0};
    print_cluster(&out, status);
    print_power(&out, status);
    print_troubles(&out, status);
    print_jobs(&out, status);
    print_notes(&out, status);
    fputs(out.data, file);
    erg_text_release(&out);
}
