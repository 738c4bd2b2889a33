/* Picks a layout and a point of its frontier. */
#include "layout/energy/layout_frontier.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define GIB 1073741824.0

enum bound { TIME, ENERGY, POWER, MEMORY, GPUS, BOUNDS };

/* The values of a point that have bounds. */
struct seen {
    size_t option, point;
    double values[BOUNDS];
};

static struct seen look(const struct erg_layout_option *options, size_t option, size_t point)
{
    const struct erg_point *at = &options[option].frontier->points.points[point];
    return (struct seen){option,
                         point,
                         {[TIME] = at->time_s,
                          [ENERGY] = at->energy_j,
                          [POWER] = at->energy_j / at->time_s,
                          [MEMORY] = options[option].peak_bytes,
                          [GPUS] = (double)erg_layout_gpus(options[option].layout)}};
}

static void list_bounds(double *bounds, const struct erg_goal *query)
{
    const double given[BOUNDS] = {query->deadline_s, query->energy_j, query->power_w,
                                  query->memory_bytes, query->gpus};
    for (int i = 0; i < BOUNDS; i++)
        bounds[i] = given[i] > 0 ? given[i] : INFINITY;
}

/* The tolerance lets a point meet the deadline that it was planned for despite rounding. */
static bool within(double value, double bound)
{
    return value <= bound * (1 + 1e-9);
}

/* Whether a point meets all bounds except `except`. */
static bool fits(const struct seen *seen, const double *bounds, int except)
{
    for (int i = 0; i < BOUNDS; i++)
        if (i != except && !within(seen->values[i], bounds[i]))
            return false;
    return true;
}

static bool better(const struct seen *a, const struct seen *b, enum erg_objective goal)
{
    static const enum bound keys[][3] = {
        [ERG_FASTEST] = {TIME, ENERGY, GPUS},
        [ERG_LEAST_ENERGY] = {ENERGY, TIME, GPUS},
        [ERG_LEAST_POWER] = {POWER, TIME, GPUS},
    };
    for (size_t i = 0; i < sizeof keys[goal] / sizeof *keys[goal]; i++)
        if (a->values[keys[goal][i]] != b->values[keys[goal][i]])
            return a->values[keys[goal][i]] < b->values[keys[goal][i]];
    return false;
}

/* "t=2,c=1,p=4,v=1,b=1 on 8 GPUs" */
static void describe(char *text, size_t size, const struct erg_layout *layout)
{
    snprintf(text, size, "t=%ld,c=%ld,p=%ld,v=%ld,b=%ld on %ld GPUs", layout->tensor,
             layout->context, layout->pipeline, layout->virtual_stages, layout->microbatch,
             erg_layout_gpus(layout));
}

static const char *const names[BOUNDS] = {
    [TIME] = "a deadline", [ENERGY] = "an energy",      [POWER] = "a mean power",
    [MEMORY] = "a memory", [GPUS] = "a number of GPUs",
};

static void quantity(char *text, size_t size, int bound, double value)
{
    static const char *const units[BOUNDS] = {" s", " J", " W", " GiB", ""};
    snprintf(text, size, "%.6g%s", value / (bound == MEMORY ? GIB : 1), units[bound]);
}

/*
 * Among the points that meet the other bounds, finds the one that exceeds this bound least. False:
 * there is none.
 */
static bool nearest(struct seen *nearest, const struct erg_layout_option *options, size_t count,
                    const double *bounds, int bound)
{
    bool found = false;
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < options[i].frontier->points.count; k++) {
            struct seen seen = look(options, i, k);
            if (fits(&seen, bounds, bound) &&
                (!found || seen.values[bound] < nearest->values[bound])) {
                *nearest = seen;
                found = true;
            }
        }
    return found;
}

/* Rounded up to the printed digits, so that the printed value is enough as a bound. */
static double rounded_up(double value)
{
    const int digits = 6;
    const double step = pow(10, floor(log10(value)) - (digits - 1));
    return ceil(value / step * (1 - 1e-9)) * step;
}

/* The needed value of a bound, with its unit. */
static void need(char *text, size_t size, int bound, double value)
{
    const double unit = bound == MEMORY ? GIB : 1;
    quantity(text, size, bound, unit * rounded_up(value / unit));
}

/* The common factor by which all bounds must be raised. */
static double share_of(const struct seen *seen, const double *bounds)
{
    double most = 0;
    for (int i = 0; i < BOUNDS; i++)
        most = fmax(most, seen->values[i] / bounds[i]);
    return most;
}

/*
 * If raising one bound is not enough: finds the smallest common factor on all of them that helps.
 */
static int fail_all(const struct erg_layout_option *options, size_t count, const double *bounds,
                    unsigned long long all, struct erg_error *err)
{
    struct seen closest = {0};
    double least = INFINITY;
    char layout[96], needs[BOUNDS][32], list[200] = "";
    int given = 0, missed = 0;
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < options[i].frontier->points.count; k++) {
            struct seen seen = look(options, i, k);
            if (share_of(&seen, bounds) < least) {
                least = share_of(&seen, bounds);
                closest = seen;
            }
        }
    for (int i = 0; i < BOUNDS; i++) {
        given += isfinite(bounds[i]);
        if (!within(closest.values[i], bounds[i]))
            need(needs[missed++], sizeof *needs, i, closest.values[i]);
    }
    for (int i = 0; i < missed; i++) {
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s",
                 i == 0           ? ""
                 : i + 1 < missed ? ", "
                                  : " and ",
                 needs[i]);
    }
    describe(layout, sizeof layout, options[closest.option].layout);
    return erg_fail(err, ERG_INFEASIBLE,
                    "%s is within all %d bounds, and raising any one of them alone is not enough; "
                    "%s needs %s",
                    all == 1 ? "no plan" : "no layout that fits the GPUs", given, layout, list);
}

/* `all`: the number of layouts whose points nearest to the bounds are the options; 0: any
 * number. */
static int fail_bounds(const struct erg_layout_option *options, size_t count, const double *bounds,
                       unsigned long long all, struct erg_error *err)
{
    char given[32], needed[32], layout[96];
    double least = INFINITY;
    struct seen closest = {0}, seen;
    int binding = BOUNDS, given_bounds = 0;
    for (int i = 0; i < BOUNDS; i++) {
        given_bounds += isfinite(bounds[i]);
        if (isfinite(bounds[i]) && nearest(&seen, options, count, bounds, i) &&
            seen.values[i] / bounds[i] < least) {
            least = seen.values[i] / bounds[i];
            closest = seen;
            binding = i;
        }
    }
    if (binding == BOUNDS)
        return fail_all(options, count, bounds, all, err);
    quantity(given, sizeof given, binding, bounds[binding]);
    need(needed, sizeof needed, binding, closest.values[binding]);
    describe(layout, sizeof layout, options[closest.option].layout);
    const char *beside = given_bounds > 1 ? " with the other bounds" : "";
    if (all == 1)
        return erg_fail(err, ERG_INFEASIBLE, "%s is not within %s of %s%s: it needs %s", layout,
                        names[binding], given, beside, needed);
    char who[48] = "no layout";
    if (all > 1)
        snprintf(who, sizeof who, "none of the %llu layouts", all);
    return erg_fail(err, ERG_INFEASIBLE,
                    "%s that fit%s the GPUs is within %s of %s%s: the nearest, %s, needs %s", who,
                    all > 1 ? "" : "s", names[binding], given, beside, layout, needed);
}

double erg_layout_pick_value(const struct erg_layout_pick *pick, enum erg_objective goal)
{
    const double values[] = {
        [ERG_FASTEST] = pick->time_s,
        [ERG_LEAST_ENERGY] = pick->energy_j,
        [ERG_LEAST_POWER] = pick->power_w,
    };
    return values[goal];
}

int erg_layout_fail_pick(const struct erg_layout_option *options, size_t count,
                         const struct erg_goal *query, unsigned long long all,
                         struct erg_error *err)
{
    double bounds[BOUNDS];
    list_bounds(bounds, query);
    return fail_bounds(options, count, bounds, all, err);
}

int erg_layout_pick(struct erg_layout_pick *pick, const struct erg_layout_option *options,
                    size_t count, const struct erg_goal *query, struct erg_error *err)
{
    double bounds[BOUNDS];
    struct seen best = {0};
    bool found = false;
    list_bounds(bounds, query);
    if (count == 0)
        return erg_fail(err, ERG_INFEASIBLE, "There is no layout to choose from.");
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < options[i].frontier->points.count; k++) {
            struct seen seen = look(options, i, k);
            if (fits(&seen, bounds, BOUNDS) && (!found || better(&seen, &best, query->objective))) {
                best = seen;
                found = true;
            }
        }
    if (!found)
        return fail_bounds(options, count, bounds, count, err);
    *pick =
        (struct erg_layout_pick){best.option,         best.point,         best.values[TIME],
                                 best.values[ENERGY], best.values[POWER], (long)best.values[GPUS]};
    return 0;
}

/* Points of a frontier. */
static void leave_out_near_ties(struct erg_frontier *frontier)
{
    struct erg_point *points = frontier->points;
    size_t kept = 0;
    for (size_t i = 0; i < frontier->count; i++) {
        const struct erg_point next = points[i];
        while (kept > 1 && next.time_s <= points[kept - 1].time_s * (1 + ERG_LAYOUT_TIE))
            kept--;
        bool saves = kept == 0 || next.energy_j < points[kept - 1].energy_j * (1 - ERG_LAYOUT_TIE);
        if (saves || i + 1 == frontier->count)
            points[kept++] = next;
    }
    frontier->count = kept;
}

void erg_layout_union(struct erg_frontier *out, const struct erg_layout_option *options,
                      size_t count)
{
    erg_frontier_clear(out);
    for (size_t i = 0; i < count; i++) {
        const struct erg_frontier *points = &options[i].frontier->points;
        for (size_t k = 0; k < points->count; k++)
            erg_frontier_add(out, points->points[k].time_s, points->points[k].energy_j,
                             (int64_t)(i << 32 | k));
    }
    erg_frontier_filter(out);
    leave_out_near_ties(out);
}
