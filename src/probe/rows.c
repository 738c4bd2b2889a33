/* Measures the items of a program, and writes and reads the file of measurements. */
#include "probe/probe.h"

#include "base/clock.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/random.h"
#include "device/profiler.h"
#include "io/csv.h"
#include "io/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the file ---- */

static const char *const columns[] = {
    "gpus",       "shape",        "item",        "time_s",        "energy_j",
    "time_error", "energy_error", "clock_mhz",   "temperature_c", "window_s",
    "reasons",    "conditions",   "created_utc",
};
enum { COLUMNS = sizeof columns / sizeof *columns };

static int write_rows(const char *path, const struct erg_probe_rows *rows, struct erg_error *err)
{
    struct erg_text text = {0};
    for (size_t i = 0; i < COLUMNS; i++)
        erg_csv_add(&text, columns[i]);
    erg_csv_end_row(&text);
    for (size_t i = 0; i < rows->count; i++) {
        const struct erg_probe_row *row = &rows->items[i];
        const double numbers[] = {row->time_s,       row->energy_j,  row->time_error,
                                  row->energy_error, row->clock_mhz, row->temperature_c,
                                  row->window_s};
        erg_csv_add_long(&text, row->gpus);
        erg_csv_add(&text, row->shape);
        erg_csv_add(&text, row->item);
        for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++)
            erg_csv_add_double(&text, numbers[k]);
        erg_csv_add_long(&text, row->reasons);
        erg_csv_add(&text, row->conditions);
        erg_csv_add(&text, row->created_utc);
        erg_csv_end_row(&text);
    }
    int status = erg_file_write(path, text.data, text.count, err);
    erg_text_release(&text);
    return status;
}

static int read_text(const struct erg_csv *csv, size_t r, size_t column, char *out, size_t capacity,
                     struct erg_error *err)
{
    const char *text = erg_csv_text(csv, r, column);
    size_t length = strlen(text);
    if (length == 0 || length >= capacity)
        return erg_csv_fail(csv, r, err, "expected a %s of 1 to %zu bytes, got %zu",
                            erg_csv_header(csv, column), capacity - 1, length);
    memcpy(out, text, length + 1);
    return 0;
}

static bool is_date(const char *text)
{
    static const char form[] = "0000-00-00T00:00:00Z";
    int year, month, day, hour, minute, second;
    if (strlen(text) != sizeof form - 1)
        return false;
    for (size_t i = 0; i < sizeof form - 1; i++)
        if (form[i] == '0' ? text[i] < '0' || text[i] > '9' : text[i] != form[i])
            return false;
    sscanf(text, "%d-%d-%dT%d:%d:%dZ", &year, &month, &day, &hour, &minute, &second);
    return month >= 1 && month <= 12 && day >= 1 && day <= 31 && hour < 24 && minute < 60 &&
           second <= 60; /* a leap second */
}

static int read_row(const struct erg_csv *csv, size_t r, const size_t *column,
                    struct erg_probe_row *row, struct erg_error *err)
{
    double *const numbers[] = {&row->time_s,       &row->energy_j,  &row->time_error,
                               &row->energy_error, &row->clock_mhz, &row->temperature_c,
                               &row->window_s};
    long gpus;
    if (erg_csv_long(csv, r, column[0], &gpus, err) ||
        erg_csv_long(csv, r, column[10], &row->reasons, err))
        return -1;
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++)
        if (erg_csv_double(csv, r, column[3 + k], numbers[k], err))
            return -1;
    if (gpus < 1 || gpus > 4096 || !(row->time_s > 0) || !(row->energy_j > 0))
        return erg_csv_fail(
            csv, r, err,
            "expected a number of GPUs, a time and an energy above 0, got %ld, %g s "
            "and %g J",
            gpus, row->time_s, row->energy_j);
    if (!(row->clock_mhz > 0) || !(row->time_error >= 0) || !(row->energy_error >= 0))
        return erg_csv_fail(csv, r, err,
                            "expected a clock above 0 and errors of at least 0, got %g MHz, %g and "
                            "%g",
                            row->clock_mhz, row->time_error, row->energy_error);
    if (!(row->temperature_c >= -50 && row->temperature_c <= 150) || !(row->window_s > 0) ||
        row->reasons < 0)
        return erg_csv_fail(csv, r, err,
                            "expected a temperature of -50 to 150 C, a window above 0 s and "
                            "reasons of at least 0, got %g C, %g s and %ld",
                            row->temperature_c, row->window_s, row->reasons);
    row->gpus = (int)gpus;
    if (read_text(csv, r, column[1], row->shape, sizeof row->shape, err) ||
        read_text(csv, r, column[2], row->item, sizeof row->item, err) ||
        read_text(csv, r, column[11], row->conditions, sizeof row->conditions, err) ||
        read_text(csv, r, column[12], row->created_utc, sizeof row->created_utc, err))
        return -1;
    if (!is_date(row->created_utc))
        return erg_csv_fail(csv, r, err, "expected created_utc like 2026-11-22T02:32:04Z, got '%s'",
                            row->created_utc);
    return 0;
}

void erg_probe_row_gpu(const struct erg_probe_row *row, char *gpu, size_t capacity)
{
    const char *start = row->conditions;
    size_t length = strcspn(start, ",");
    const char *times = strstr(start, " x ");
    if (times && times < start + length) {
        length -= (size_t)(times + 3 - start);
        start = times + 3;
    }
    snprintf(gpu, capacity, "%.*s", (int)length, start);
}

/* Holds row r, the next one, against those before it: each thing once, and all of one machine. */
static int check_together(const struct erg_csv *csv, size_t r, const struct erg_probe_rows *rows,
                          const struct erg_probe_row *row, struct erg_error *err)
{
    const struct erg_probe_row *twin = erg_probe_rows_find(rows, row->shape, row->gpus, row->item);
    if (twin)
        return erg_csv_fail(csv, r, err,
                            "\"%s\" of the shape %s on %d GPU%s is in line %zu already; expected "
                            "it once",
                            row->item, row->shape, row->gpus, erg_plural((size_t)row->gpus),
                            erg_csv_line(csv, (size_t)(twin - rows->items)));
    for (size_t i = 0; i < rows->count; i++) {
        const struct erg_probe_row *other = &rows->items[i];
        char gpu[sizeof row->conditions], other_gpu[sizeof row->conditions];
        erg_probe_row_gpu(row, gpu, sizeof gpu);
        erg_probe_row_gpu(other, other_gpu, sizeof other_gpu);
        bool same_run = row->gpus == other->gpus && !strcmp(row->shape, other->shape);
        if (strcmp(gpu, other_gpu) != 0 ||
            (same_run && strcmp(row->conditions, other->conditions) != 0))
            return erg_csv_fail(csv, r, err,
                                "it was measured on '%s', but line %zu on '%s'; expected rows of "
                                "one device",
                                row->conditions, erg_csv_line(csv, i), other->conditions);
    }
    return 0;
}

int erg_probe_rows_load(struct erg_probe_rows *rows, const char *path, struct erg_error *err)
{
    struct erg_csv *csv;
    size_t column[COLUMNS];
    *rows = (struct erg_probe_rows){0};
    if (erg_csv_load(&csv, path, err))
        return -1;
    int status = 0;
    for (size_t i = 0; i < COLUMNS && !status; i++)
        status = erg_csv_require(csv, columns[i], &column[i], err);
    for (size_t r = 0; r < erg_csv_rows(csv) && !status; r++) {
        struct erg_probe_row row = {0};
        status = read_row(csv, r, column, &row, err) || check_together(csv, r, rows, &row, err);
        if (!status)
            ERG_PUSH(rows, items, row);
    }
    erg_csv_free(csv);
    if (status)
        erg_probe_rows_release(rows);
    return status ? -1 : 0;
}

void erg_probe_rows_release(struct erg_probe_rows *rows)
{
    free(rows->items);
    *rows = (struct erg_probe_rows){0};
}

const struct erg_probe_row *erg_probe_rows_find(const struct erg_probe_rows *rows,
                                                const char *shape, int gpus, const char *item)
{
    for (size_t i = 0; i < rows->count; i++) {
        const struct erg_probe_row *row = &rows->items[i];
        if (row->gpus == gpus && !strcmp(row->shape, shape) && !strcmp(row->item, item))
            return row;
    }
    return NULL;
}

/* ---- measuring ---- */

/*
 * The GPUs stay hot and no clock has to settle, so neither cooling nor settling; short windows,
 * several periods of the energy counter long, leave time for many items.
 */
static struct erg_profile_options profile_options(void)
{
    struct erg_profile_options options = erg_profile_options_default();
    options.window_s = 0.6;
    options.warmup_s = 0.3;
    options.cooldown_s = options.settle_s = 0;
    options.time_scatter_max = 0.035; /* of 0.12 s each, at the power cap */
    options.energy_scatter_max = 0.08;
    options.attempts = 2;
    options.growth = 1; /* all items must fit into three minutes */
    return options;
}

static void fill(struct erg_probe_row *row, const struct erg_measurement *result)
{
    row->time_s = result->time_s;
    row->energy_j = result->energy_j;
    row->time_error = result->time_sd;
    row->energy_error = result->energy_sd;
    row->clock_mhz = result->clock_mhz;
    row->temperature_c = 0.5 * (result->temperature_start_c + result->temperature_end_c);
    row->window_s = result->window_s;
    row->reasons = result->reasons;
    erg_utc_now(row->created_utc, sizeof row->created_utc);
}

static int measure_item(struct erg_device *device, const struct erg_probe_program *program,
                        const struct erg_probe_item *item, struct erg_probe_row *row,
                        struct erg_error *err)
{
    struct erg_measurement result;
    struct erg_profile_options options = profile_options();
    uint64_t key = erg_hash_u64(erg_hash_text(program->name), erg_hash_text(item->name));
    const struct erg_probe_item *work = &program->items[0]; /* the work before a rest */
    int status;
    if (item->family == ERG_PROBE_REST)
        status = erg_profile_rest(device, work->steps, work->step_count, item->since_s, &options,
                                  key, &result, err);
    else if (item->family == ERG_PROBE_BLOCKED)
        status =
            erg_profile_waiting(device, item->steps, item->step_count, &options, key, &result, err);
    else
        status = erg_profile(device, item->steps, item->step_count, 0, &options, key, &result, err);
    if (status)
        return erg_fail_context(err, "probing \"%s\" of the shape %s", item->name, program->name);
    fill(row, &result);
    return 0;
}

int erg_probe_measure(struct erg_device *device, const struct erg_probe_program *program,
                      const char *conditions, const char *path, struct erg_probe_rows *rows,
                      struct erg_error *err)
{
    for (size_t i = 0; i < program->count; i++) {
        const struct erg_probe_item *item = &program->items[i];
        erg_progress(program->name, i, program->count);
        const struct erg_probe_row *known =
            erg_probe_rows_find(rows, program->name, program->gpus, item->name);
        if (known && strcmp(known->conditions, conditions) != 0)
            return erg_fail(
                err, ERG_FAILED,
                "probing %s: \"%s\" was measured on %s before; expected rows of the same "
                "device, or another file for them",
                conditions, item->name, known->conditions);
        if (known)
            continue;
        struct erg_probe_row row = {.gpus = program->gpus};
        snprintf(row.shape, sizeof row.shape, "%s", program->name);
        snprintf(row.item, sizeof row.item, "%s", item->name);
        snprintf(row.conditions, sizeof row.conditions, "%s", conditions);
        if (erg_interrupt_check(err) || measure_item(device, program, item, &row, err))
            return -1;
        ERG_PUSH(rows, items, row);
        if (path && write_rows(path, rows, err))
            return -1;
        erg_log(ERG_LOG_INFO, "%s %s: %.6g s, %.6g J at %.0f MHz, %.0f C", row.shape, row.item,
                row.time_s, row.energy_j, row.clock_mhz, row.temperature_c);
    }
    erg_progress(program->name, program->count, program->count);
    return 0;
}
