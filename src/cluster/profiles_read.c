/* Reads the file of profiles. */
#include "cluster/profiles_internal.h"

#include "base/memory.h"
#include "base/text.h"
#include "io/file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool erg_profiles_size(const char *text, double *parameters)
{
    static const struct {
        char suffix;
        double factor;
    } units[] = {{'K', 1e3}, {'M', 1e6}, {'B', 1e9}, {'T', 1e12}};
    size_t length = strlen(text);
    char digits[32];
    if (length < 2 || length >= sizeof digits)
        return false;
    memcpy(digits, text, length - 1);
    digits[length - 1] = '\0';
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (text[length - 1] == units[i].suffix && erg_parse_double(digits, parameters)) {
            *parameters *= units[i].factor;
            return *parameters > 0;
        }
    return false;
}

/* The columns that identify a model. */
struct model_columns {
    size_t family, size, batch;
};

static int find_model_columns(const struct erg_csv *csv, struct model_columns *columns,
                              struct erg_error *err)
{
    if (erg_csv_require(csv, "model", &columns->family, err) != 0 ||
        erg_csv_require(csv, "param_num", &columns->size, err) != 0 ||
        erg_csv_require(csv, "global_batch", &columns->batch, err) != 0)
        return -1;
    return 0;
}

size_t erg_profiles_find(const struct erg_profiles *profiles, const struct erg_profile_model *model)
{
    size_t index = 0;
    for (; index < profiles->models.count; index++) {
        const struct erg_profile_model *other = &profiles->models.items[index];
        if (other->batch == model->batch && !strcmp(other->size, model->size) &&
            !strcmp(other->family, model->family))
            break;
    }
    return index;
}

static int read_model(struct erg_profiles *profiles, const struct erg_csv *csv, size_t row,
                      const struct model_columns *columns, size_t *index, struct erg_error *err)
{
    struct erg_profile_model model = {.family = erg_csv_text(csv, row, columns->family),
                                      .size = erg_csv_text(csv, row, columns->size)};
    if (erg_csv_long(csv, row, columns->batch, &model.batch, err) != 0)
        return -1;
    if (model.batch < 1)
        return erg_csv_fail(csv, row, err,
                            "column 'global_batch': expected a whole number above 0, got %ld",
                            model.batch);
    if (!erg_profiles_size(model.size, &model.parameters))
        return erg_csv_fail(csv, row, err,
                            "column 'param_num': expected a number of parameters such as 760M or "
                            "2.6B, got '%s'",
                            model.size);
    *index = erg_profiles_find(profiles, &model);
    if (*index == profiles->models.count)
        ERG_PUSH(&profiles->models, items, model);
    return 0;
}

static void add_count(struct erg_profiles *profiles, int count)
{
    size_t at = 0;
    while (at < profiles->counts.count && profiles->counts.items[at] < count)
        at++;
    if (at < profiles->counts.count && profiles->counts.items[at] == count)
        return;
    ERG_RESERVE(&profiles->counts, items, 1);
    memmove(profiles->counts.items + at + 1, profiles->counts.items + at,
            (profiles->counts.count++ - at) * sizeof *profiles->counts.items);
    profiles->counts.items[at] = count;
}

struct time_columns {
    struct model_columns model;
    size_t type, nodes, gpus, time;
    ptrdiff_t power;
};

static int find_time_columns(const struct erg_csv *csv, struct time_columns *columns,
                             struct erg_error *err)
{
    columns->power = erg_csv_find(csv, "gpu_power_w");
    if (find_model_columns(csv, &columns->model, err) != 0 ||
        erg_csv_require(csv, "gpu_type", &columns->type, err) != 0 ||
        erg_csv_require(csv, "num_nodes", &columns->nodes, err) != 0 ||
        erg_csv_require(csv, "gpus_per_node", &columns->gpus, err) != 0 ||
        erg_csv_require(csv, "iter_time_s", &columns->time, err) != 0)
        return -1;
    return 0;
}

static int read_power(const struct erg_csv *csv, size_t row, ptrdiff_t column, double *power_w,
                      struct erg_error *err)
{
    *power_w = NAN;
    if (column < 0 || !*erg_csv_text(csv, row, (size_t)column))
        return 0;
    if (erg_csv_double(csv, row, (size_t)column, power_w, err) != 0)
        return -1;
    if (*power_w <= 0 || *power_w > 1e5)
        return erg_csv_fail(csv, row, err,
                            "column 'gpu_power_w': expected watts of one GPU above 0, at most "
                            "100000, got %g",
                            *power_w);
    return 0;
}

static int read_times(struct erg_profiles *profiles, const struct erg_fleet *fleet,
                      struct erg_error *err)
{
    const struct erg_csv *csv = profiles->times;
    struct time_columns columns;
    if (find_time_columns(csv, &columns, err) != 0)
        return -1;
    for (size_t i = 0; i < erg_csv_rows(csv); i++) {
        struct erg_profile_row row = {.row = i};
        long nodes, gpus;
        if (read_model(profiles, csv, i, &columns.model, &row.model, err) != 0 ||
            erg_csv_long(csv, i, columns.nodes, &nodes, err) != 0 ||
            erg_csv_long(csv, i, columns.gpus, &gpus, err) != 0 ||
            erg_csv_double(csv, i, columns.time, &row.time_s, err) != 0 ||
            read_power(csv, i, columns.power, &row.power_w, err) != 0)
            return -1;
        if (nodes < 1 || nodes > 100000 || gpus < 1 || gpus > 1024)
            return erg_csv_fail(csv, i, err,
                                "expected 1 to 100000 nodes with 1 to 1024 GPUs each, got %ld and "
                                "%ld",
                                nodes, gpus);
        if (row.time_s <= 0 && row.time_s != -1)
            return erg_csv_fail(
                csv, i, err,
                "column 'iter_time_s': expected seconds above 0, or -1 where it cannot run, got %g",
                row.time_s);
        row.shape.type = erg_fleet_type(fleet, erg_csv_text(csv, i, columns.type));
        row.shape.nodes = (int)nodes;
        row.shape.gpus_per_node = (int)gpus;
        if (row.shape.type < 0)
            continue;
        double idle_w = fleet->types[row.shape.type].idle_power_w;
        if (row.power_w < idle_w)
            return erg_csv_fail(csv, i, err,
                                "column 'gpu_power_w': %g W are less than the %g W that such a GPU "
                                "draws idle",
                                row.power_w, idle_w);
        add_count(profiles, erg_shape_gpus(&row.shape));
        ERG_PUSH(&profiles->rows, items, row);
    }
    return 0;
}

int erg_profiles_parse(struct erg_profiles *profiles, const char *name, const char *text,
                       size_t length, const struct erg_fleet *fleet, struct erg_error *err)
{
    if (erg_csv_parse(&profiles->times, name, text, length, err) != 0 ||
        read_times(profiles, fleet, err) != 0)
        return -1;
    if (profiles->rows.count > 0)
        return 0;
    struct erg_arena arena = {0};
    erg_fail(err, ERG_FAILED, "%s: no row is about a GPU type of the cluster, which has %s", name,
             erg_fleet_type_names(fleet, &arena));
    erg_arena_release(&arena);
    return -1;
}

int erg_profiles_read(struct erg_profiles *profiles, const char *folder,
                      const struct erg_fleet *fleet, struct erg_error *err)
{
    struct erg_text path = {0};
    char *text;
    size_t length;
    erg_text_printf(&path, "%s/prof_optimal.csv", folder);
    int result = erg_file_read(path.data, 0, &text, &length, err);
    if (result == 0) {
        result = erg_profiles_parse(profiles, path.data, text, length, fleet, err);
        free(text);
    }
    erg_text_release(&path);
    return result;
}

void erg_profiles_release(struct erg_profiles *profiles)
{
    free(profiles->models.items);
    free(profiles->rows.items);
    free(profiles->counts.items);
    erg_csv_free(profiles->times);
}
