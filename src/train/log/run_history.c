/* Thins the course of a run. */
#include "train/log/run_history.h"

#include "base/memory.h"
#include "io/json.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

enum { MOST_ROWS = 2048 };

static const char *const keys[ERG_RUN_COLUMNS] = {
    [ERG_RUN_STEP] = "step",
    [ERG_RUN_TOKENS] = "tokens",
    [ERG_RUN_TIME] = "time_s",
    [ERG_RUN_LOSS] = "loss",
    [ERG_RUN_VALIDATION_LOSS] = "validation_loss",
    [ERG_RUN_GRADIENT_NORM] = "gradient_norm",
    [ERG_RUN_LEARNING_RATE] = "learning_rate",
    [ERG_RUN_STEP_MS] = "step_ms",
    [ERG_RUN_TOKENS_PER_S] = "tokens_per_s",
    [ERG_RUN_MFU] = "mfu",
    [ERG_RUN_POWER] = "power_w",
    [ERG_RUN_J_PER_TOKEN] = "j_per_token",
    [ERG_RUN_J_PER_TOKEN_UNCERTAINTY] = "j_per_token_uncertainty",
};

static double number_or_nan(const json_t *value)
{
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

/* The sum over all ranks with a value. */
static double sum_of(const json_t *array)
{
    double sum = NAN;
    for (size_t i = 0; i < json_array_size(array); i++) {
        double value = number_or_nan(json_array_get(array, i));
        sum = isnan(sum) ? value : isnan(value) ? sum : sum + value;
    }
    return sum;
}

static struct erg_run_row row_of(const json_t *line, double time_s)
{
    struct erg_run_row row;
    for (size_t i = 0; i < ERG_RUN_COLUMNS; i++)
        row.values[i] = erg_json_number_or(line, keys[i], NAN);
    double mean_ms = erg_json_number_or(json_object_get(line, "step_ms"), "mean", NAN);
    double steps = erg_json_number_or(line, "window_steps", NAN);
    row.values[ERG_RUN_STEP_MS] = mean_ms;
    row.values[ERG_RUN_POWER] = sum_of(json_object_get(line, "power_w"));
    row.values[ERG_RUN_TIME] = time_s + (isfinite(mean_ms * steps) ? 1e-3 * mean_ms * steps : 0);
    return row;
}

static bool is_validated(const struct erg_run_row *row)
{
    return isfinite(row->values[ERG_RUN_VALIDATION_LOSS]);
}

/* Keeps one of every two rows. */
static void thin(struct erg_run_history *history)
{
    size_t kept = 0;
    for (size_t i = 0; i + 1 < history->count; i += 2) {
        const struct erg_run_row *pair = &history->items[i];
        history->items[kept++] = pair[!is_validated(&pair[0]) && is_validated(&pair[1])];
    }
    history->count = kept;
    history->stride *= 2;
}

void erg_run_history_add(struct erg_run_history *history, const json_t *line)
{
    double before_s = history->seen ? history->last.values[ERG_RUN_TIME] : 0;
    history->stride = history->stride ? history->stride : 1;
    history->last = row_of(line, before_s);
    history->energy_j += erg_json_number_or(line, "energy_j", NAN);
    json_t *trials = json_object_get(line, "trials");
    if (trials) {
        json_decref(history->trials);
        history->trials = json_incref(trials);
    }
    if (history->seen++ % history->stride != 0 && !is_validated(&history->last))
        return;
    if (history->count == MOST_ROWS)
        thin(history);
    ERG_PUSH(history, items, history->last);
}

json_t *erg_run_history_columns(const struct erg_run_history *history)
{
    json_t *columns = json_object();
    size_t count = history->count;
    bool more = history->seen > 0 &&
                history->items[count - 1].values[ERG_RUN_STEP] < history->last.values[ERG_RUN_STEP];
    for (size_t i = 0; i < ERG_RUN_COLUMNS; i++) {
        json_t *column = json_array();
        for (size_t k = 0; k < count; k++)
            json_array_append_new(column, erg_json_number(history->items[k].values[i]));
        if (more)
            json_array_append_new(column, erg_json_number(history->last.values[i]));
        json_object_set_new(columns, keys[i], column);
    }
    return columns;
}

void erg_run_history_release(struct erg_run_history *history)
{
    free(history->items);
    json_decref(history->trials);
    *history = (struct erg_run_history){0};
}
