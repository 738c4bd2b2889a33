/* Rows of the profiles that ergon simulate reads. */
#include "layout/exchange/profile_rows.h"

#include "io/csv.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

double erg_profile_rows_rounded(double value)
{
    char digits[32];
    double result = value;
    snprintf(digits, sizeof digits, "%.6g", value);
    erg_parse_double(digits, &result);
    return result;
}

void erg_profile_rows_family(const struct erg_model *model, char family[80])
{
    static const char file[] = "/config.json";
    size_t length = strlen(model->name), begin;
    if (length >= sizeof file && strcmp(model->name + length - (sizeof file - 1), file) == 0)
        length -= sizeof file - 1;
    for (begin = length; begin > 0 && model->name[begin - 1] != '/';)
        begin--;
    snprintf(family, 80, "%.*s", (int)(length - begin), model->name + begin);
}

void erg_profile_rows_size(const struct erg_model *model, char size[32])
{
    double parameters = erg_model_parameters(model);
    if (parameters >= 1e9)
        snprintf(size, 32, "%.3gB", parameters / 1e9);
    else
        snprintf(size, 32, "%.3gM", parameters / 1e6);
}

void erg_profile_rows_header(struct erg_text *out)
{
    erg_text_add(out, "model,param_num,global_batch,gpu_type,num_nodes,gpus_per_node,iter_time_s,"
                      "gpu_power_w\n");
}

void erg_profile_rows_row(struct erg_text *out, const struct erg_profile_shape *shape,
                          double time_s, double power_w)
{
    char family[80], size[32];
    erg_profile_rows_family(shape->model, family);
    erg_profile_rows_size(shape->model, size);
    erg_csv_add(out, family);
    erg_csv_add(out, size);
    erg_csv_add_long(out, shape->batch);
    erg_csv_add(out, shape->gpu);
    erg_csv_add_long(out, shape->nodes);
    erg_csv_add_long(out, shape->node_gpus);
    erg_csv_add_double(out, time_s);
    erg_csv_add_double(out, power_w);
    erg_csv_end_row(out);
}

/* The slowest point that is at most one step slower than this one, otherwise the next point. */
static size_t next_point(const struct erg_frontier *frontier, size_t at)
{
    const double step = 0.03, most_s = (1 + step) * frontier->points[at].time_s;
    size_t next = at + 1;
    while (next + 1 < frontier->count && frontier->points[next + 1].time_s <= most_s)
        next++;
    return next;
}

static void add_frontier(struct erg_text *out, const struct erg_profile_shape *shape,
                         const struct erg_frontier *frontier)
{
    double gpus = (double)(shape->nodes * shape->node_gpus), before_s = 0, before_w = INFINITY;
    for (size_t at = 0; at < frontier->count; at = next_point(frontier, at)) {
        const struct erg_point *point = &frontier->points[at];
        double time_s = erg_profile_rows_rounded(point->time_s);
        double power_w = erg_profile_rows_rounded(point->energy_j / point->time_s / gpus);
        if (time_s <= before_s || power_w >= before_w)
            continue; /* so near that its digits are equal */
        erg_profile_rows_row(out, shape, time_s, power_w);
        before_s = time_s;
        before_w = power_w;
    }
}

int erg_profile_rows(struct erg_text *out, const struct erg_layout_choice_request *request,
                     const char *gpu, int gpus_per_node, struct erg_error *err)
{
    erg_profile_rows_header(out);
    for (size_t i = 0; i < request->search_count; i++) {
        const struct erg_layout_search *search = &request->searches[i];
        struct erg_layout_choice_request one = *request;
        struct erg_layout_choice choice = {0};
        struct erg_profile_shape shape = {
            .model = search->model,
            .gpu = gpu,
            .batch = search->batch_least,
            .nodes = search->gpus > gpus_per_node ? search->gpus / gpus_per_node : 1};
        shape.node_gpus = search->gpus / shape.nodes;
        one.searches = search;
        one.search_count = 1;
        one.whole_union = true;
        int status = erg_layout_choose(&choice, &one, err);
        if (status == 0) {
            struct erg_frontier frontier = {0};
            erg_layout_union(&frontier, choice.options, choice.count);
            add_frontier(out, &shape, &frontier);
            erg_frontier_release(&frontier);
        } else if (err->status == ERG_INFEASIBLE) {
            erg_profile_rows_row(out, &shape, -1, NAN);
        }
        erg_layout_choice_release(&choice);
        if (status != 0 && err->status != ERG_INFEASIBLE)
            return -1;
    }
    return 0;
}

/* ---- rows read ---- */

struct profile_table {
    struct erg_csv *csv;
    size_t type, nodes, gpus, time, power; /* columns */
};

static int open_table(struct profile_table *table, const struct erg_text *rows,
                      struct erg_error *err)
{
    if (erg_csv_parse(&table->csv, "profile.csv", rows->data, rows->count, err) != 0)
        return -1;
    if (erg_csv_require(table->csv, "gpu_type", &table->type, err) == 0 &&
        erg_csv_require(table->csv, "num_nodes", &table->nodes, err) == 0 &&
        erg_csv_require(table->csv, "gpus_per_node", &table->gpus, err) == 0 &&
        erg_csv_require(table->csv, "iter_time_s", &table->time, err) == 0 &&
        erg_csv_require(table->csv, "gpu_power_w", &table->power, err) == 0)
        return 0;
    erg_csv_free(table->csv);
    return -1;
}

static bool is_of(const struct profile_table *table, size_t row, const char *gpu)
{
    return strcmp(erg_csv_text(table->csv, row, table->type), gpu) == 0;
}

/* An empty field is NAN. */
static int read_power(double *power_w, const struct profile_table *table, size_t row,
                      struct erg_error *err)
{
    *power_w = NAN;
    return *erg_csv_text(table->csv, row, table->power)
               ? erg_csv_double(table->csv, row, table->power, power_w, err)
               : 0;
}

int erg_profile_rows_one_gpu(double *time_s, double *power_w, const struct erg_text *rows,
                             const char *gpu, struct erg_error *err)
{
    struct profile_table table;
    int result = open_table(&table, rows, err);
    *time_s = *power_w = NAN;
    if (result != 0)
        return -1;
    for (size_t row = 0; result == 0 && row < erg_csv_rows(table.csv); row++) {
        long nodes, gpus;
        double row_s, row_w;
        if (!is_of(&table, row, gpu))
            continue;
        *time_s = isnan(*time_s) ? INFINITY : *time_s;
        result = erg_csv_long(table.csv, row, table.nodes, &nodes, err) ||
                         erg_csv_long(table.csv, row, table.gpus, &gpus, err) ||
                         erg_csv_double(table.csv, row, table.time, &row_s, err) ||
                         read_power(&row_w, &table, row, err)
                     ? -1
                     : 0;
        if (result == 0 && nodes == 1 && gpus == 1 && row_s > 0 && row_s < *time_s) {
            *time_s = row_s;
            *power_w = row_w;
        }
    }
    erg_csv_free(table.csv);
    return result;
}

static void add_unchanged(struct erg_text *out, const struct profile_table *table, size_t row)
{
    for (size_t column = 0; erg_csv_header(table->csv, column); column++)
        erg_csv_add(out, erg_csv_text(table->csv, row, column));
    erg_csv_end_row(out);
}

static int add_scaled(struct erg_text *out, const struct profile_table *table, size_t row,
                      double times, double powers, struct erg_error *err)
{
    double time_s, power_w;
    if (erg_csv_double(table->csv, row, table->time, &time_s, err) != 0 ||
        read_power(&power_w, table, row, err) != 0)
        return -1;
    if (!(time_s > 0)) { /* nothing fits */
        add_unchanged(out, table, row);
        return 0;
    }
    for (size_t column = 0; erg_csv_header(table->csv, column); column++)
        if (column == table->time)
            erg_csv_add_double(out, time_s * times);
        else if (column == table->power && !isnan(power_w))
            erg_csv_add_double(out, power_w * powers);
        else
            erg_csv_add(out, erg_csv_text(table->csv, row, column));
    erg_csv_end_row(out);
    return 0;
}

static void add_header(struct erg_text *out, const struct profile_table *table)
{
    for (size_t column = 0; erg_csv_header(table->csv, column); column++)
        erg_csv_add(out, erg_csv_header(table->csv, column));
    erg_csv_end_row(out);
}

/* The rows become `out`, unless it failed. */
static int end_table(struct erg_text *rows, struct erg_text *out, struct profile_table *table,
                     int result)
{
    erg_csv_free(table->csv);
    erg_text_release(result == 0 ? rows : out);
    if (result == 0)
        *rows = *out;
    return result;
}

int erg_profile_rows_scale(struct erg_text *rows, const char *gpu, double times, double powers,
                           struct erg_error *err)
{
    struct profile_table table;
    struct erg_text out = {0};
    int result = open_table(&table, rows, err);
    if (result != 0)
        return -1;
    add_header(&out, &table);
    for (size_t row = 0; result == 0 && row < erg_csv_rows(table.csv); row++) {
        if (is_of(&table, row, gpu))
            result = add_scaled(&out, &table, row, times, powers, err);
        else
            add_unchanged(&out, &table, row);
    }
    return end_table(rows, &out, &table, result);
}

static int is_of_shape(bool *is, const struct profile_table *table, size_t row,
                       const struct erg_profile_shape *shape, struct erg_error *err)
{
    long nodes, gpus;
    if (erg_csv_long(table->csv, row, table->nodes, &nodes, err) != 0 ||
        erg_csv_long(table->csv, row, table->gpus, &gpus, err) != 0)
        return -1;
    *is = is_of(table, row, shape->gpu) && nodes == shape->nodes && gpus == shape->node_gpus;
    return 0;
}

int erg_profile_rows_replace(struct erg_text *rows, const struct erg_profile_shape *shape,
                             const struct erg_frontier *frontier, struct erg_error *err)
{
    const double gpus = (double)(shape->nodes * shape->node_gpus);
    struct profile_table table;
    struct erg_text out = {0};
    int result = open_table(&table, rows, err);
    if (result != 0)
        return -1;
    add_header(&out, &table);
    for (size_t row = 0; result == 0 && row < erg_csv_rows(table.csv); row++) {
        bool is = false;
        result = is_of_shape(&is, &table, row, shape, err);
        if (!is)
            add_unchanged(&out, &table, row);
    }
    for (size_t i = 0; result == 0 && i < frontier->count; i++) {
        const struct erg_point *point = &frontier->points[i];
        erg_profile_rows_row(&out, shape, point->time_s, point->energy_j / point->time_s / gpus);
    }
    return end_table(rows, &out, &table, result);
}
