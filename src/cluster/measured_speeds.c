/* Corrects speeds by measurements of jobs. */
#include "cluster/speed_table.h"

#include <math.h>
#include <stdlib.h>

/* Reports outside this range are ignored. */
#define RATIO_MOST 4.0
/* The most measurements in a mean, so that the mean follows changes. */
#define COUNT_MOST 20.0
/* Smaller changes do not change a cell, since policies restart when it changes. */
#define CHANGE_LEAST 0.01
/* Points whose measurements contradict their order are moved apart by at least this relative
 * distance. */
#define ORDER_STEP 1e-6

static struct erg_speed *cell_of(struct erg_speeds *speeds, int workload, int shape)
{
    return &speeds->cells[(size_t)workload * (size_t)speeds->shapes_count + (size_t)shape];
}

static struct erg_measured_speed *find(const struct erg_speeds *speeds, int workload, int shape,
                                       int point)
{
    for (size_t i = 0; i < speeds->measured.count; i++) {
        struct erg_measured_speed *item = &speeds->measured.items[i];
        if (item->workload == workload && item->shape == shape && item->point == point)
            return item;
    }
    return NULL;
}

double erg_speeds_clip(const struct erg_speeds *speeds, int workload, int shape, int point,
                       double iteration_s)
{
    const struct erg_speed *cell = erg_speed_at(speeds, workload, shape);
    const struct erg_measured_speed *item = find(speeds, workload, shape, point);
    double profile_s =
        item ? item->profile_s : cell->iteration_s / cell->inferred * cell->points[point].slowdown;
    return fmax(profile_s / RATIO_MOST, fmin(iteration_s, profile_s * RATIO_MOST));
}

double erg_speeds_profile_slowdown(const struct erg_speeds *speeds, int workload, int shape,
                                   int point)
{
    const struct erg_measured_speed *first = find(speeds, workload, shape, 0);
    return first ? first[point].profile_s / first->profile_s
                 : erg_speed_at(speeds, workload, shape)->points[point].slowdown;
}

/* All points of a cell get an item when the first of them is measured, so that the profile's values
 * are kept. */
static void keep_profile(struct erg_speeds *speeds, int workload, int shape)
{
    struct erg_speed *cell = cell_of(speeds, workload, shape);
    for (int point = 0; point < cell->points_count; point++)
        ERG_PUSH(&speeds->measured, items,
                 (struct erg_measured_speed){
                     .workload = workload,
                     .shape = shape,
                     .point = point,
                     .profile_s = cell->iteration_s / cell->inferred * cell->points[point].slowdown,
                 });
    cell->inferred = NAN;
}

/* The factor of an iteration's time relative to the profile: measured at the point, or at the
 * nearest one (of two equally near, the faster). `items`: of the cell. */
static double ratio_of(const struct erg_measured_speed *items, int points, int point)
{
    for (int away = 0; away < points; away++)
        for (int side = -1; side <= 1; side += 2) {
            int at = point + side * away;
            if (at >= 0 && at < points && items[at].count > 0)
                return items[at].iteration_s / items[at].profile_s;
        }
    return 1;
}

/* Computes the cell from its measurements; returns whether it changed noticeably. */
static bool correct(struct erg_speeds *speeds, const struct erg_measured_speed *items)
{
    int workload = items->workload, shape = items->shape;
    struct erg_speed *cell = cell_of(speeds, workload, shape);
    int count = cell->points_count;
    struct erg_operating_point *points = erg_xcalloc((size_t)count, sizeof *points);
    double samples = cell->samples_per_s * cell->iteration_s, first_s = 0, before = 0;
    bool changes = false;
    for (int point = 0; point < count; point++) {
        double iteration_s = items[point].profile_s * ratio_of(items, count, point);
        double now_s = cell->iteration_s * cell->points[point].slowdown;
        first_s = point == 0 ? iteration_s : first_s;
        points[point].slowdown =
            point == 0 ? 1 : fmax(iteration_s / first_s, before * (1 + ORDER_STEP));
        points[point].power_w = cell->points[point].power_w;
        before = points[point].slowdown;
        changes |= fabs(first_s * before / now_s - 1) > CHANGE_LEAST;
    }
    if (changes) {
        erg_speeds_set(speeds, workload, shape, samples / first_s, first_s);
        erg_speeds_set_points(speeds, workload, shape, points, (size_t)count);
    }
    free(points);
    return changes;
}

/* The mean logarithm of the factors of a workload's measured cells of a GPU type; NaN: none. */
static double type_factor(const struct erg_speeds *speeds, int workload, int type)
{
    double sum = 0;
    int count = 0;
    for (size_t i = 0; i < speeds->measured.count; i++) {
        const struct erg_measured_speed *items = &speeds->measured.items[i];
        if (items->workload != workload || items->point != 0 ||
            speeds->shapes[items->shape].type != type)
            continue;
        sum += log(ratio_of(items, erg_speed_at(speeds, workload, items->shape)->points_count, 0));
        count++;
    }
    return count > 0 ? sum / count : NAN;
}

/* Changes the workload's cells that are not measured. */
static void infer(struct erg_speeds *speeds, int workload)
{
    const int types = (int)speeds->fleet->types_count;
    double *factors = erg_xcalloc((size_t)types, sizeof *factors), sum = 0;
    int known = 0;
    for (int type = 0; type < types; type++) {
        factors[type] = type_factor(speeds, workload, type);
        if (!isnan(factors[type])) {
            sum += factors[type];
            known++;
        }
    }
    for (int shape = 0; shape < speeds->shapes_count; shape++) {
        struct erg_speed *cell = cell_of(speeds, workload, shape);
        const double own = factors[speeds->shapes[shape].type];
        const double step = exp(isnan(own) ? sum / (known + 1) : own) / cell->inferred;
        if (!erg_speed_feasible(cell) || !(fabs(step - 1) > CHANGE_LEAST))
            continue; /* also if it is measured */
        cell->iteration_s *= step;
        cell->samples_per_s /= step;
        cell->inferred *= step;
    }
    free(factors);
}

bool erg_speeds_measure(struct erg_speeds *speeds, int workload, int shape, int point,
                        double iteration_s, double count)
{
    const struct erg_speed *cell = erg_speed_at(speeds, workload, shape);
    if (!erg_speed_feasible(cell) || point < 0 || point >= cell->points_count ||
        !(iteration_s > 0) || isinf(iteration_s) || !(count > 0))
        return false;
    if (!find(speeds, workload, shape, 0))
        keep_profile(speeds, workload, shape);
    struct erg_measured_speed *item = find(speeds, workload, shape, point);
    iteration_s = erg_speeds_clip(speeds, workload, shape, point, iteration_s);
    double kept = fmin(item->count, COUNT_MOST - 1), added = fmin(count, COUNT_MOST);
    item->iteration_s = (kept * item->iteration_s + added * iteration_s) / (kept + added);
    item->count += count;
    if (!correct(speeds, item - point))
        return false;
    infer(speeds, workload);
    return true;
}
