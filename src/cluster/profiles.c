/* The published profiles as a source of speeds. */
#include "cluster/speeds.h"

#include "base/memory.h"
#include "base/text.h"
#include "io/csv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The published rules (speeds.h). */
#define LOCALITY_FACTOR 0.9
#define SIZE_FACTOR 1.8
#define ITERATION_MOST_S 300
#define REPLICA_MARGIN 1.2
#define MEMORY_SHARE 0.8

/* A model at a batch: what rows of both files are about. */
struct model {
    const char *family, *size; /* of the CSV */
    double parameters;
    long batch;
};

struct profiles {
    struct erg_csv *times, *memory;
    struct {
        struct model *items;
        size_t count, capacity;
    } models;
    struct {
        struct row {
            size_t model, row;
            struct erg_gpu_shape shape;
            double time_s;
        } * items;
        size_t count, capacity;
    } rows;
    struct {
        struct replica {
            size_t model;
            int gpus;
            double bytes;
        } * items;
        size_t count, capacity;
    } replicas;
    struct {
        int *items; /* GPU counts, rising */
        size_t count, capacity;
    } counts;
};

static bool read_parameters(const char *text, double *parameters)
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

/* Columns that both files begin with. */
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

static bool same_model(const struct model *a, const struct model *b)
{
    return a->batch == b->batch && !strcmp(a->size, b->size) && !strcmp(a->family, b->family);
}

static int read_model(struct profiles *profiles, const struct erg_csv *csv, size_t row,
                      const struct model_columns *columns, size_t *index, struct erg_error *err)
{
    struct model model = {.family = erg_csv_text(csv, row, columns->family),
                          .size = erg_csv_text(csv, row, columns->size)};
    if (erg_csv_long(csv, row, columns->batch, &model.batch, err) != 0)
        return -1;
    if (!read_parameters(model.size, &model.parameters))
        return erg_csv_fail(csv, row, err,
                            "column 'param_num': expected a number of parameters such as 760M or "
                            "2.6B, got '%s'",
                            model.size);
    for (*index = 0; *index < profiles->models.count; ++*index)
        if (same_model(&profiles->models.items[*index], &model))
            return 0;
    ERG_PUSH(&profiles->models, items, model);
    return 0;
}

static void add_count(struct profiles *profiles, int count)
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

static int read_times(struct profiles *profiles, const struct erg_fleet *fleet,
                      struct erg_error *err)
{
    const struct erg_csv *csv = profiles->times;
    struct model_columns columns;
    size_t type, nodes, gpus, time;
    if (find_model_columns(csv, &columns, err) != 0 ||
        erg_csv_require(csv, "gpu_type", &type, err) != 0 ||
        erg_csv_require(csv, "num_nodes", &nodes, err) != 0 ||
        erg_csv_require(csv, "gpus_per_node", &gpus, err) != 0 ||
        erg_csv_require(csv, "iter_time_s", &time, err) != 0)
        return -1;
    for (size_t i = 0; i < erg_csv_rows(csv); i++) {
        struct row row = {.row = i};
        long node_count, gpu_count;
        if (read_model(profiles, csv, i, &columns, &row.model, err) != 0 ||
            erg_csv_long(csv, i, nodes, &node_count, err) != 0 ||
            erg_csv_long(csv, i, gpus, &gpu_count, err) != 0 ||
            erg_csv_double(csv, i, time, &row.time_s, err) != 0)
            return -1;
        if (node_count < 1 || node_count > 100000 || gpu_count < 1 || gpu_count > 1024)
            return erg_csv_fail(csv, i, err,
                                "expected 1 to 100000 nodes with 1 to 1024 GPUs each, got %ld and "
                                "%ld",
                                node_count, gpu_count);
        if (row.time_s <= 0 && row.time_s != -1)
            return erg_csv_fail(csv, i, err,
                                "column 'iter_time_s': expected seconds above 0, or -1 for what "
                                "cannot run, got %g",
                                row.time_s);
        row.shape.type = erg_fleet_type(fleet, erg_csv_text(csv, i, type));
        row.shape.nodes = (int)node_count;
        row.shape.gpus_per_node = (int)gpu_count;
        if (row.shape.type < 0)
            continue;
        add_count(profiles, erg_shape_gpus(&row.shape));
        ERG_PUSH(&profiles->rows, items, row);
    }
    return 0;
}

static int read_memory(struct profiles *profiles, struct erg_error *err)
{
    const struct erg_csv *csv = profiles->memory;
    struct model_columns columns;
    size_t gpus, memory;
    if (find_model_columns(csv, &columns, err) != 0 ||
        erg_csv_require(csv, "num_gpus", &gpus, err) != 0 ||
        erg_csv_require(csv, "dp_replica_mem_gb", &memory, err) != 0)
        return -1;
    for (size_t i = 0; i < erg_csv_rows(csv); i++) {
        struct replica replica;
        long count;
        double gb;
        if (read_model(profiles, csv, i, &columns, &replica.model, err) != 0 ||
            erg_csv_long(csv, i, gpus, &count, err) != 0 ||
            erg_csv_double(csv, i, memory, &gb, err) != 0)
            return -1;
        if (count < 1 || count > 1000000)
            return erg_csv_fail(csv, i, err, "column 'num_gpus': expected 1 to 1000000, got %ld",
                                count);
        if (gb < 0 && gb != -1)
            return erg_csv_fail(csv, i, err,
                                "column 'dp_replica_mem_gb': expected gigabytes, or -1 for what "
                                "does not fit, got %g",
                                gb);
        replica.gpus = (int)count;
        replica.bytes = gb < 0 ? INFINITY : gb * 1e9;
        ERG_PUSH(&profiles->replicas, items, replica);
    }
    return 0;
}

/* Iteration times by model and shape; NAN where there is none. */
struct times {
    const struct profiles *profiles;
    const struct erg_speeds *speeds;
    double *items;
};

static double *time_of(const struct times *times, size_t model, int shape)
{
    return &times->items[model * (size_t)times->speeds->shapes_count + (size_t)shape];
}

static int fill_times(struct times *times, struct erg_error *err)
{
    const struct profiles *profiles = times->profiles;
    size_t cells = profiles->models.count * (size_t)times->speeds->shapes_count;
    times->items = erg_xmalloc((cells + 1) * sizeof *times->items);
    for (size_t i = 0; i < cells; i++)
        times->items[i] = NAN;
    for (size_t i = 0; i < profiles->rows.count; i++) {
        const struct row *row = &profiles->rows.items[i];
        int shape = erg_speeds_shape(times->speeds, row->shape.type, row->shape.nodes,
                                     row->shape.gpus_per_node);
        if (shape < 0) /* of nodes unlike the fleet's */
            continue;
        double *time = time_of(times, row->model, shape);
        if (!isnan(*time) && *time != row->time_s)
            return erg_csv_fail(profiles->times, row->row, err,
                                "%g s, but an earlier row gives this model %g s on the same GPUs",
                                row->time_s, *time);
        *time = row->time_s;
    }
    return 0;
}

/* Samples per second of a row, and false where it is none that counts. */
static bool row_speed(const struct times *times, const struct model *model, size_t row_model,
                      int shape, double *samples_per_s)
{
    double time = shape >= 0 ? *time_of(times, row_model, shape) : NAN;
    if (isnan(time) || time > ITERATION_MOST_S)
        return false;
    *samples_per_s = erg_speeds_round((double)model->batch / time);
    return true;
}

/* How many sizes of its family lie between a model and a larger one, plus one. */
static int size_steps(const struct profiles *profiles, const struct model *small,
                      const struct model *large)
{
    int steps = 0;
    for (size_t i = 0; i < profiles->models.count; i++) {
        const struct model *other = &profiles->models.items[i];
        bool counted = strcmp(other->family, small->family) != 0 ||
                       other->parameters <= small->parameters ||
                       other->parameters > large->parameters;
        for (size_t j = 0; j < i && !counted; j++) /* at another batch */
            counted = !strcmp(profiles->models.items[j].family, other->family) &&
                      profiles->models.items[j].parameters == other->parameters;
        steps += !counted;
    }
    return steps;
}

/* The next larger model of the family, at the same batch, that has a row of the shape. */
static bool larger_speed(const struct times *times, const struct model *model, int shape,
                         double *samples_per_s, int *steps)
{
    const struct profiles *profiles = times->profiles;
    const struct model *best = NULL;
    for (size_t i = 0; i < profiles->models.count; i++) {
        const struct model *other = &profiles->models.items[i];
        double speed;
        if (other->batch == model->batch && other->parameters > model->parameters &&
            !strcmp(other->family, model->family) &&
            (!best || other->parameters < best->parameters) &&
            row_speed(times, model, i, shape, &speed)) {
            best = other;
            *samples_per_s = speed;
        }
    }
    if (best)
        *steps = size_steps(profiles, model, best);
    return best != NULL;
}

/* `plain`: without the factors for what was not measured. */
static double model_speed(const struct times *times, const struct model *model, size_t index,
                          int shape, bool plain)
{
    const struct erg_gpu_shape *gpus = &times->speeds->shapes[shape];
    double speed;
    int steps;
    if (index < times->profiles->models.count && row_speed(times, model, index, shape, &speed))
        return speed;
    int best = erg_speeds_best(times->speeds, gpus->type, erg_shape_gpus(gpus));
    if (index < times->profiles->models.count && row_speed(times, model, index, best, &speed)) {
        int quotient = times->speeds->shapes[best].gpus_per_node / gpus->gpus_per_node;
        return plain ? speed : speed * pow(LOCALITY_FACTOR, ilogb(quotient));
    }
    if (larger_speed(times, model, shape, &speed, &steps))
        return plain ? speed : speed * pow(SIZE_FACTOR, steps);
    return ERG_SPEED_NONE;
}

static bool replica_fits(const struct profiles *profiles, size_t model, int gpus, double memory)
{
    for (size_t i = profiles->replicas.count; i-- > 0;) { /* later rows replace earlier ones */
        const struct replica *replica = &profiles->replicas.items[i];
        if (replica->model == model && replica->gpus == gpus)
            return REPLICA_MARGIN * replica->bytes <= MEMORY_SHARE * memory;
    }
    return false;
}

static void fill_workload(struct erg_speeds *speeds, const struct times *times, int workload,
                          const struct erg_trace_workload *what)
{
    const struct profiles *profiles = times->profiles;
    struct model model = {.family = what->family, .size = what->size, .batch = what->batch};
    size_t index = 0;
    if (!read_parameters(what->size, &model.parameters))
        return; /* no size that profiles could have */
    while (index < profiles->models.count && !same_model(&profiles->models.items[index], &model))
        index++;
    for (int shape = 0; shape < speeds->shapes_count; shape++) {
        const struct erg_gpu_shape *gpus = &speeds->shapes[shape];
        double memory = speeds->fleet->types[gpus->type].memory_bytes;
        double speed = model_speed(times, &model, index, shape, false);
        erg_speeds_set(speeds, ERG_PLANS_ANY, workload, shape, speed, (double)model.batch / speed);
        if (!replica_fits(profiles, index, erg_shape_gpus(gpus), memory))
            continue;
        speed = model_speed(times, &model, index, shape, true);
        erg_speeds_set(speeds, ERG_PLANS_DATA_PARALLEL, workload, shape, speed,
                       (double)model.batch / speed);
    }
}

static int load_table(struct erg_csv **csv, const char *folder, const char *name,
                      struct erg_error *err)
{
    struct erg_text path = {0};
    erg_text_printf(&path, "%s/%s", folder, name);
    int result = erg_csv_load(csv, path.data, err);
    erg_text_release(&path);
    return result;
}

static int load(struct profiles *profiles, struct erg_speeds **out, const char *folder,
                const struct erg_fleet *fleet, const struct erg_job_trace *trace,
                struct erg_error *err)
{
    if (load_table(&profiles->times, folder, "prof_optimal.csv", err) != 0 ||
        load_table(&profiles->memory, folder, "dp_mem.csv", err) != 0 ||
        read_times(profiles, fleet, err) != 0 || read_memory(profiles, err) != 0)
        return -1;
    if (profiles->rows.count == 0) {
        struct erg_arena arena = {0};
        erg_fail(err, ERG_FAILED,
                 "%s/prof_optimal.csv: no row is about a GPU type of the cluster, which has %s",
                 folder, erg_fleet_type_names(fleet, &arena));
        erg_arena_release(&arena);
        return -1;
    }
    struct erg_speeds *speeds = erg_speeds_new(fleet, trace->workloads_count,
                                               profiles->counts.items, profiles->counts.count);
    struct times times = {profiles, speeds, NULL};
    int result = fill_times(&times, err);
    for (size_t i = 0; i < trace->workloads_count && result == 0; i++)
        fill_workload(speeds, &times, (int)i, &trace->workloads[i]);
    free(times.items);
    if (result == 0)
        *out = speeds;
    else
        erg_speeds_free(speeds);
    return result;
}

int erg_speeds_load(struct erg_speeds **speeds, const char *folder, const struct erg_fleet *fleet,
                    const struct erg_job_trace *trace, struct erg_error *err)
{
    struct profiles profiles = {0};
    int result = load(&profiles, speeds, folder, fleet, trace, err);
    free(profiles.models.items);
    free(profiles.rows.items);
    free(profiles.replicas.items);
    free(profiles.counts.items);
    erg_csv_free(profiles.times);
    erg_csv_free(profiles.memory);
    return result;
}
