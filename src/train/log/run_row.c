/* Makes the row of a run: windows of its log, their layout, their median. */
#define _DEFAULT_SOURCE /* strsep */

#include "train/log/run_row.h"

#include "base/log.h"
#include "base/text.h"
#include "io/file.h"
#include "io/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the lines of a log ---- */

struct log_window {
    size_t session;      /* the first session with the same conditions */
    double steps, ms;    /* undisturbed steps, and their mean in ms */
    bool whole;          /* the log has only steps of this layout */
    double energy_j;     /* of all its steps; NaN: unknown */
    double memory_bytes; /* NaN: unknown */
};

struct log_windows {
    struct log_window *items;
    size_t count, capacity;
    size_t damaged, first_damaged; /* number of lines, and the first of them */
};

static size_t first_alike(const struct erg_run_sessions *sessions, size_t index)
{
    size_t first = 0;
    while (!erg_run_sessions_are_alike(&sessions->items[first], &sessions->items[index]))
        first++;
    return first;
}

/* Reads a line; false: not a line of a log. */
static bool read_window(struct log_window *window, const struct erg_run_sessions *sessions,
                        const char *line)
{
    json_t *object = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
    const json_t *undisturbed = json_object_get(object, "undisturbed");
    const double step = erg_json_number_or(object, "step", NAN),
                 all = erg_json_number_or(object, "window_steps", NAN);
    *window = (struct log_window){
        .steps = erg_json_number_or(undisturbed, "steps", NAN),
        .ms = erg_json_number_or(undisturbed, "ms", NAN),
        .energy_j = erg_json_number_or(object, "energy_j", NAN),
        .memory_bytes = erg_json_number_or(object, "memory_bytes", NAN),
    };
    const size_t session = erg_run_sessions_find(sessions, step);
    const bool good = step >= 1 && all >= 1 && all <= 1e12 && window->steps >= 0 &&
                      window->steps <= all && (window->steps < 1 || window->ms > 0) &&
                      session < sessions->count;
    window->whole = window->steps == all;
    window->session = good ? first_alike(sessions, session) : 0;
    json_decref(object);
    return good;
}

static void read_log(struct log_windows *windows, const struct erg_run_sessions *sessions,
                     const char *text)
{
    char *copy = erg_xstrdup(text);
    size_t number = 0;
    for (char *rest = copy, *line; (line = strsep(&rest, "\n")) != NULL;) {
        struct log_window window;
        number++;
        if (!*line)
            continue;
        if (read_window(&window, sessions, line))
            ERG_PUSH(windows, items, window);
        else if (windows->damaged++ == 0)
            windows->first_damaged = number;
    }
    free(copy);
}

/* ---- the row ---- */

/* Chooses the layout with the most undisturbed steps; the later one of equal ones. */
static size_t choose_session(const struct log_windows *windows,
                             const struct erg_run_sessions *sessions)
{
    double *steps = erg_xcalloc(sessions->count, sizeof *steps);
    size_t best = 0;
    for (size_t i = 0; i < windows->count; i++)
        steps[windows->items[i].session] += windows->items[i].steps;
    for (size_t i = 0; i < sessions->count; i++)
        best = steps[i] >= steps[best] && first_alike(sessions, i) == i ? i : best;
    free(steps);
    return best;
}

static int by_time(const void *a, const void *b)
{
    double x = ((const struct log_window *)a)->ms, y = ((const struct log_window *)b)->ms;
    return (x > y) - (x < y);
}

/*
 * The quantile of the steps' time, from windows sorted by time. If the share ends exactly with a
 * window, the mean of it and the next one.
 */
static double quantile_ms(const struct log_window *items, size_t count, double steps, double share)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        sum += items[i].steps;
        if (sum > share * steps || i + 1 == count)
            return items[i].ms;
        if (sum == share * steps)
            return (items[i].ms + items[i + 1].ms) / 2;
    }
    return NAN;
}

/* Statistics of the windows of one session; returns the median, s. Sorts them. */
static double summarize(struct erg_fit_run *run, struct log_window *items, size_t count,
                        double steps)
{
    double energy_j = 0, energy_steps = 0, memory_bytes = NAN;
    qsort(items, count, sizeof *items, by_time);
    for (size_t i = 0; i < count; i++) {
        memory_bytes = fmax(memory_bytes, items[i].memory_bytes);
        if (items[i].whole && !isnan(items[i].energy_j)) {
            energy_j += items[i].energy_j;
            energy_steps += items[i].steps;
        }
    }
    const double median_ms = quantile_ms(items, count, steps, 0.5);
    const double between_ms =
        quantile_ms(items, count, steps, 0.75) - quantile_ms(items, count, steps, 0.25);
    run->steps = (long)steps;
    run->spread = count > 1 ? between_ms / 2 / median_ms : (double)NAN;
    run->memory_bytes = memory_bytes;
    run->energy_j = energy_steps > 0 ? energy_j / energy_steps : (double)NAN;
    return 1e-3 * median_ms;
}

/* Moves the windows of a session that have undisturbed steps to the front; returns their number. */
static size_t select_windows(struct log_windows *windows, size_t session, double *steps,
                             struct erg_fit_run *run)
{
    size_t count = 0;
    *steps = 0;
    for (size_t i = 0; i < windows->count; i++) {
        const struct log_window window = windows->items[i];
        run->lines += window.session == session;
        run->lines_other += window.session != session;
        if (window.session != session || window.steps < 1)
            continue;
        windows->items[count++] = window;
        *steps += window.steps;
    }
    run->lines_damaged = windows->damaged;
    return count;
}

static int measure(struct erg_fit_row *row, struct erg_fit_run *run, struct log_windows *windows,
                   size_t session, const char *name, struct erg_error *err)
{
    double steps;
    if (!windows->count)
        return erg_fail(err, ERG_FAILED,
                        "%s/metrics.jsonl: none of its %zu lines is a line of a log, expected the "
                        "steps of a run that this ergon or a later one trained",
                        name, windows->damaged);
    const size_t count = select_windows(windows, session, &steps, run);
    if (steps < ERG_RUN_ROW_LEAST_STEPS)
        return erg_fail(err, ERG_FAILED,
                        "%s/metrics.jsonl: its %zu line%s of one layout have %g undisturbed steps, "
                        "expected at least %d: not among the first three of a start, not traced, "
                        "not after a validation, not while a checkpoint is written",
                        name, run->lines, erg_plural(run->lines), steps, ERG_RUN_ROW_LEAST_STEPS);
    row->time_s = summarize(run, windows->items, count, steps);
    return 0;
}

/* ---- model, layout and cluster ---- */

/* Rows of the same model share one. */
static int find_model(struct erg_fit_rows *rows, const struct erg_run_session *session,
                      const char *name, const struct erg_model **model, struct erg_error *err)
{
    struct erg_text key = {0}, place = {0};
    struct erg_model *made = NULL;
    erg_text_printf(&key, "%s\n%d %ld %ld", session->config, session->tied, session->vocabulary,
                    session->words);
    erg_text_printf(&place, "%s/%s: the model's config.json", name, erg_run_sessions_name);
    *model = NULL;
    for (size_t i = 0; i < rows->models.count && !*model; i++)
        if (!strcmp(rows->models.items[i].name, key.data))
            *model = rows->models.items[i].model;
    int status =
        *model ? 0
               : erg_model_parse(&made, place.data, session->config, strlen(session->config), err);
    if (made) {
        made->tied = session->tied;
        if (session->vocabulary != made->vocab) {
            made->vocab = session->vocabulary;
            made->words = session->words;
            made->vocab_is_padded = true;
        }
        ERG_PUSH(&rows->models, items, (struct erg_fit_model){made, key.data});
        key = (struct erg_text){0};
        *model = made;
    }
    erg_text_release(&key);
    erg_text_release(&place);
    return status;
}

static int check_session(const struct erg_run_session *session, const struct erg_model *model,
                         const char *name, struct erg_error *err)
{
    const struct erg_layout *layout = &session->layout;
    if (session->kinds > 1)
        return erg_fail(err, ERG_FAILED,
                        "%s/%s: the run's cluster has GPUs of %ld kinds, and an engine's constants "
                        "are for one kind; expected a run on one kind",
                        name, erg_run_sessions_name, session->kinds);
    if (session->plan_method && strcmp(session->plan_method, "sequential") != 0)
        return erg_fail(err, ERG_FAILED,
                        "%s/%s: the run was trained by point %ld of a plan's method %s, and an "
                        "engine's constants are those of GPUs at their own clocks; expected a run "
                        "without a plan",
                        name, erg_run_sessions_name, session->plan_point, session->plan_method);
    if (erg_layout_check(layout, model, err) != 0)
        return erg_fail_context(err, "%s/%s", name, erg_run_sessions_name);
    if (session->ranks != erg_layout_gpus(layout))
        return erg_fail(err, ERG_FAILED, "%s/%s: %ld ranks, expected the %ld of the layout", name,
                        erg_run_sessions_name, session->ranks, erg_layout_gpus(layout));
    return 0;
}

static void copy_cluster(struct erg_cluster *cluster, const struct erg_run_session *session,
                         struct erg_arena *arena)
{
    *cluster = (struct erg_cluster){
        .nodes = (int)session->cluster.nodes,
        .gpus_per_node = (int)session->cluster.gpus_per_node,
        .gpu = erg_arena_strdup(arena, session->cluster.gpu),
        .intra_node_bandwidth = session->cluster.intra_node_bandwidth,
        .inter_node_bandwidth = session->cluster.inter_node_bandwidth,
        .host_memory_bandwidth = session->cluster.host_memory_bandwidth,
        .shared_link_bandwidth = session->cluster.shared_link_bandwidth,
        .adapters_per_node = (double)session->cluster.adapters_per_node,
    };
}

static void warn(const struct erg_fit_run *run, const struct log_windows *windows, const char *name)
{
    const size_t all = run->lines + run->lines_other + run->lines_damaged;
    if (run->lines_damaged)
        erg_log(ERG_LOG_WARNING,
                "%s/metrics.jsonl: %zu of %zu lines, the first of them line %zu, are skipped; "
                "expected complete lines of a log",
                name, run->lines_damaged, all, windows->first_damaged);
    if (run->lines_other)
        erg_log(ERG_LOG_WARNING,
                "%s/metrics.jsonl: %zu of %zu lines are skipped; the run continued with another "
                "layout, device, model or plan, and a row describes one",
                name, run->lines_other, all);
}

static int add_row(struct erg_fit_rows *rows, const struct erg_run_sessions *sessions,
                   struct log_windows *windows, const char *name, struct erg_cluster *cluster,
                   struct erg_error *err)
{
    struct erg_fit_run *run = erg_arena_alloc(&rows->arena, sizeof *run);
    const size_t index = choose_session(windows, sessions);
    const struct erg_run_session *session = &sessions->items[index];
    struct erg_fit_row row = {
        .layout = erg_layout_copy(&session->layout, &rows->arena),
        .batch = erg_layout_batch(&session->layout),
        .weight = 1,
        .path = erg_arena_strdup(&rows->arena, name),
        .device = erg_arena_strdup(&rows->arena, session->device),
        .sequence_parallel = session->sequence_parallel ? ERG_FIT_PARALLEL : ERG_FIT_WHOLE,
        .run = run,
    };
    run->model = erg_arena_strdup(&rows->arena, session->model);
    run->type = erg_arena_strdup(&rows->arena, session->type);
    if (find_model(rows, session, name, &row.model, err) ||
        check_session(session, row.model, name, err) ||
        measure(&row, run, windows, index, name, err))
        return -1;
    warn(run, windows, name);
    if (cluster)
        copy_cluster(cluster, session, &rows->arena);
    ERG_PUSH(rows, items, row);
    return 0;
}

int erg_run_row_parse(struct erg_fit_rows *rows, const char *name, const char *sessions,
                      const char *metrics, struct erg_cluster *cluster, struct erg_error *err)
{
    struct erg_run_sessions of_run = {0};
    struct log_windows windows = {0};
    struct erg_text place = {0};
    erg_text_printf(&place, "%s/%s", name, erg_run_sessions_name);
    int status = erg_run_sessions_parse(&of_run, place.data, sessions, err);
    if (status == 0) {
        if (of_run.left_out)
            erg_log(ERG_LOG_WARNING, "%s: %zu line%s skipped; expected complete lines", place.data,
                    of_run.left_out, of_run.left_out == 1 ? " is" : "s are");
        read_log(&windows, &of_run, metrics);
        status = add_row(rows, &of_run, &windows, name, cluster, err);
    }
    free(windows.items);
    erg_text_release(&place);
    erg_run_sessions_release(&of_run);
    return status;
}

/* Explains a folder without the file: not a run, or one of an older ergon. */
static int explain_missing(const char *folder, struct erg_error *err)
{
    char *older = erg_file_path(folder, "run.json");
    const bool is_run = access(older, F_OK) == 0;
    free(older);
    return is_run
               ? erg_fail(err, ERG_FAILED,
                          "%s: the run has no file %s with its GPUs and its layout; expected a run "
                          "of this ergon or a later one",
                          folder, erg_run_sessions_name)
               : erg_fail(
                     err, ERG_FAILED,
                     "%s: there is no file %s; expected the folder of a run (ergon train --output)",
                     folder, erg_run_sessions_name);
}

/* Removes a last line that has no end yet. */
static void cut_unfinished(char *text)
{
    char *end = strrchr(text, '\n');
    *(end ? end + 1 : text) = '\0';
}

static int add_folder(struct erg_fit_rows *rows, const char *folder, bool trains,
                      struct erg_cluster *cluster, struct erg_error *err)
{
    char *paths[] = {erg_file_path(folder, erg_run_sessions_name),
                     erg_file_path(folder, "metrics.jsonl")};
    char *sessions = NULL, *metrics = NULL;
    int status = access(paths[0], F_OK) == 0 ? 0 : explain_missing(folder, err);
    if (status == 0)
        status = erg_file_read(paths[0], 0, &sessions, NULL, err) ||
                         erg_file_read(paths[1], 0, &metrics, NULL, err)
                     ? -1
                     : 0;
    if (status == 0 && trains) {
        cut_unfinished(sessions);
        cut_unfinished(metrics);
    }
    if (status == 0)
        status = erg_run_row_parse(rows, folder, sessions, metrics, cluster, err);
    free(sessions);
    free(metrics);
    free(paths[0]);
    free(paths[1]);
    return status;
}

int erg_run_row_add(struct erg_fit_rows *rows, const char *folder, struct erg_cluster *cluster,
                    struct erg_error *err)
{
    return add_folder(rows, folder, false, cluster, err);
}

int erg_run_row_add_training(struct erg_fit_rows *rows, const char *folder, struct erg_error *err)
{
    return add_folder(rows, folder, true, NULL, err);
}
