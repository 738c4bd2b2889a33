/* The published profiles as a source of speeds. */
#include "cluster/profiles_internal.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The published rules (speed_table.h). */
#define LOCALITY_FACTOR 0.9
#define SIZE_FACTOR 1.8

/* The rows of a model on a shape, the fastest first. */
struct measured {
    double time_s; /* of the fastest row; NAN: no row */
    size_t first, count;
};

struct times {
    const struct erg_profiles *profiles;
    const struct erg_speeds *speeds;
    struct measured *items; /* [model][shape] */
    struct {
        struct erg_operating_point *items;
        size_t count, capacity;
    } points; /* of rows with a power, by model and shape */
};

static struct measured *measured_of(const struct times *times, size_t model, int shape)
{
    return &times->items[model * (size_t)times->speeds->shapes_count + (size_t)shape];
}

/* A row and its shape. */
struct entry {
    const struct erg_profile_row *row;
    int shape;
};

static int compare_entries(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->row->model != y->row->model)
        return x->row->model < y->row->model ? -1 : 1;
    if (x->shape != y->shape)
        return x->shape - y->shape;
    if (x->row->time_s != y->row->time_s)
        return x->row->time_s < y->row->time_s ? -1 : 1;
    return x->row->row < y->row->row ? -1 : 1;
}

/* Another row of the same model and shape, slower than those before it. */
static int add_slower(struct times *times, struct measured *measured,
                      const struct erg_profile_row *row, struct erg_error *err)
{
    const struct erg_csv *csv = times->profiles->times;
    if (measured->count == 0 || isnan(row->power_w)) {
        if (row->time_s == measured->time_s)
            return 0; /* given twice */
        return erg_csv_fail(csv, row->row, err,
                            "%g s, but another row gives this model %g s on the same GPUs; "
                            "expected one, or a gpu_power_w in each",
                            row->time_s, measured->time_s);
    }
    if (measured->time_s < 0)
        return erg_csv_fail(csv, row->row, err,
                            "%g s, but by another row this model cannot run on these GPUs",
                            row->time_s);
    const struct erg_operating_point *before = &times->points.items[times->points.count - 1];
    double slowdown = row->time_s / measured->time_s;
    if (slowdown == before->slowdown && row->power_w == before->power_w)
        return 0;
    if (slowdown <= before->slowdown || row->power_w >= before->power_w)
        return erg_csv_fail(csv, row->row, err,
                            "%g s at %g W per GPU, but another row is at least as fast with %g W; "
                            "expected only rows that no other row beats",
                            row->time_s, row->power_w, before->power_w);
    ERG_PUSH(&times->points, items, (struct erg_operating_point){slowdown, row->power_w});
    measured->count++;
    return 0;
}

static int fill_measured(struct times *times, const struct entry *entries, size_t count,
                         struct erg_error *err)
{
    for (size_t i = 0; i < count; i++) {
        const struct erg_profile_row *row = entries[i].row;
        struct measured *measured = measured_of(times, row->model, entries[i].shape);
        if (!isnan(measured->time_s)) {
            if (add_slower(times, measured, row, err) != 0)
                return -1;
            continue;
        }
        *measured = (struct measured){.time_s = row->time_s, .first = times->points.count};
        if (!isnan(row->power_w) && row->time_s > 0) {
            ERG_PUSH(&times->points, items, (struct erg_operating_point){1, row->power_w});
            measured->count = 1;
        }
    }
    return 0;
}

static int fill_times(struct times *times, struct erg_error *err)
{
    const struct erg_profiles *profiles = times->profiles;
    size_t cells = profiles->models.count * (size_t)times->speeds->shapes_count, count = 0;
    struct entry *entries = erg_xmalloc(profiles->rows.count * sizeof *entries);
    times->items = erg_xmalloc((cells + 1) * sizeof *times->items);
    for (size_t i = 0; i < cells; i++)
        times->items[i] = (struct measured){.time_s = NAN};
    for (size_t i = 0; i < profiles->rows.count; i++) {
        const struct erg_profile_row *row = &profiles->rows.items[i];
        int shape = erg_speeds_shape(times->speeds, row->shape.type, row->shape.nodes,
                                     row->shape.gpus_per_node);
        if (shape >= 0) /* otherwise the row is for other nodes than the fleet's */
            entries[count++] = (struct entry){row, shape};
    }
    qsort(entries, count, sizeof *entries, compare_entries);
    int result = fill_measured(times, entries, count, err);
    free(entries);
    return result;
}

/* The valid rows of a model and shape; NULL: none. */
static const struct measured *row_of(const struct times *times, size_t model, int shape)
{
    const struct measured *row = shape >= 0 && model < times->profiles->models.count
                                     ? measured_of(times, model, shape)
                                     : NULL;
    return row && !isnan(row->time_s) && row->time_s <= ERG_ITERATION_MOST_S ? row : NULL;
}

/* How many sizes of its family lie between a model and a larger one, plus one. */
static int size_steps(const struct erg_profiles *profiles, const struct erg_profile_model *small,
                      const struct erg_profile_model *large)
{
    int steps = 0;
    for (size_t i = 0; i < profiles->models.count; i++) {
        const struct erg_profile_model *other = &profiles->models.items[i];
        bool counted = strcmp(other->family, small->family) != 0 ||
                       other->parameters <= small->parameters ||
                       other->parameters > large->parameters;
        for (size_t j = 0; j < i && !counted; j++) /* counted at another batch */
            counted = !strcmp(profiles->models.items[j].family, other->family) &&
                      profiles->models.items[j].parameters == other->parameters;
        steps += !counted;
    }
    return steps;
}

/* The next larger model of the family, at the same batch, that has a row of the shape. */
static const struct measured *larger_row(const struct times *times,
                                         const struct erg_profile_model *model, int shape,
                                         double *factor)
{
    const struct erg_profiles *profiles = times->profiles;
    const struct erg_profile_model *best = NULL;
    const struct measured *row = NULL;
    for (size_t i = 0; i < profiles->models.count; i++) {
        const struct erg_profile_model *other = &profiles->models.items[i];
        if (other->batch == model->batch && other->parameters > model->parameters &&
            !strcmp(other->family, model->family) &&
            (!best || other->parameters < best->parameters) && row_of(times, i, shape)) {
            best = other;
            row = row_of(times, i, shape);
        }
    }
    if (best)
        *factor = pow(SIZE_FACTOR, size_steps(profiles, model, best));
    return row;
}

/* The rows that describe a model on a shape. If they have another shape or size, multiply the speed
 * by *factor. NULL: there are none. */
static const struct measured *find_row(const struct times *times,
                                       const struct erg_profile_model *model, size_t index,
                                       int shape, double *factor)
{
    const struct erg_gpu_shape *gpus = &times->speeds->shapes[shape];
    const struct measured *row = row_of(times, index, shape);
    *factor = 1;
    if (row)
        return row;
    int best = erg_speeds_best(times->speeds, gpus->type, erg_shape_gpus(gpus));
    if ((row = row_of(times, index, best))) {
        int quotient = times->speeds->shapes[best].gpus_per_node / gpus->gpus_per_node;
        *factor = pow(LOCALITY_FACTOR, ilogb(quotient));
        return row;
    }
    return larger_row(times, model, shape, factor);
}

static double plain_speed(const void *context, const struct erg_trace_workload *what,
                          const struct erg_gpu_shape *shape, double samples_per_s, double factor)
{
    (void)context;
    (void)what;
    (void)shape;
    return samples_per_s * factor;
}

static const struct erg_speed_rule plain_rule = {plain_speed, NULL};

static void fill_workload(struct erg_speeds *speeds, const struct times *times, int workload,
                          const struct erg_trace_workload *what, const struct erg_speed_rule *rule)
{
    const struct erg_profiles *profiles = times->profiles;
    struct erg_profile_model model = {
        .family = what->family, .size = what->size, .batch = what->batch};
    if (!erg_profiles_size(what->size, &model.parameters))
        return; /* no size that profiles could have */
    size_t index = erg_profiles_find(profiles, &model);
    for (int shape = 0; shape < speeds->shapes_count; shape++) {
        double batch = (double)model.batch, factor;
        const struct measured *row = find_row(times, &model, index, shape, &factor);
        if (!row)
            continue;
        double speed =
            rule->speed(rule->context, what, &speeds->shapes[shape], batch / row->time_s, factor);
        erg_speeds_set(speeds, workload, shape, speed, batch / speed);
        if (row->count > 0)
            erg_speeds_set_points(speeds, workload, shape, &times->points.items[row->first],
                                  row->count);
    }
}

int erg_profiles_speeds(struct erg_speeds **out, const struct erg_profiles *profiles,
                        const struct erg_fleet *fleet, const struct erg_job_trace *trace,
                        const struct erg_speed_rule *rule, struct erg_error *err)
{
    struct erg_speeds *speeds = erg_speeds_new(fleet, trace->workloads_count,
                                               profiles->counts.items, profiles->counts.count);
    struct times times = {.profiles = profiles, .speeds = speeds};
    int result = fill_times(&times, err);
    for (size_t i = 0; i < trace->workloads_count && result == 0; i++)
        fill_workload(speeds, &times, (int)i, &trace->workloads[i], rule ? rule : &plain_rule);
    free(times.items);
    free(times.points.items);
    erg_speeds_find_waiting(speeds);
    if (result == 0)
        *out = speeds;
    else
        erg_speeds_free(speeds);
    return result;
}

struct erg_profile_source {
    const struct erg_fleet *fleet;
    struct erg_profiles profiles;
};

int erg_profile_source_open(struct erg_profile_source **out, const char *folder,
                            const struct erg_fleet *fleet, struct erg_error *err)
{
    struct erg_profile_source *source = erg_xcalloc(1, sizeof *source);
    source->fleet = fleet;
    if (erg_profiles_read(&source->profiles, folder, fleet, err) != 0) {
        erg_profile_source_close(source);
        return -1;
    }
    *out = source;
    return 0;
}

void erg_profile_source_close(struct erg_profile_source *source)
{
    if (!source)
        return;
    erg_profiles_release(&source->profiles);
    free(source);
}

struct erg_speeds *erg_profile_source_table(const struct erg_profile_source *source)
{
    const struct erg_profiles *profiles = &source->profiles;
    return erg_speeds_new(source->fleet, 0, profiles->counts.items, profiles->counts.count);
}

int erg_profile_source_fill(void *context, struct erg_speeds *speeds, int workload,
                            const struct erg_trace_workload *what, struct erg_error *err)
{
    const struct erg_profile_source *source = context;
    struct times times = {.profiles = &source->profiles, .speeds = speeds};
    int result = fill_times(&times, err);
    if (result == 0) {
        fill_workload(speeds, &times, workload, what, &plain_rule);
        erg_speeds_find_waiting_of(speeds, workload);
    }
    free(times.items);
    free(times.points.items);
    return result;
}

int erg_speeds_load(struct erg_speeds **speeds, const char *folder, const struct erg_fleet *fleet,
                    const struct erg_job_trace *trace, struct erg_error *err)
{
    struct erg_profiles profiles = {0};
    int result = erg_profiles_read(&profiles, folder, fleet, err);
    if (result == 0)
        result = erg_profiles_speeds(speeds, &profiles, fleet, trace, NULL, err);
    erg_profiles_release(&profiles);
    return result;
}
