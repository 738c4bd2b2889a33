/* The savings of a method compared with the references of the published evaluation. */
#include "plan/plan.h"

#include <math.h>

static double with_slack(double bound)
{
    return bound * (1 + 1e-9);
}

/* The fastest point, of equally fast ones the cheapest, and the cheapest point, of equally cheap
 * ones the fastest; false where there are none. */
static bool find_ends(const struct erg_frontier *list, struct erg_point *fastest,
                      struct erg_point *cheapest)
{
    struct erg_frontier filtered = {0};
    erg_frontier_copy(&filtered, list);
    erg_frontier_filter(&filtered);
    if (filtered.count) {
        *fastest = filtered.points[0];
        *cheapest = filtered.points[filtered.count - 1];
    }
    erg_frontier_release(&filtered);
    return list->count > 0;
}

static double reduction(double reference, double value)
{
    return 100 * (reference - value) / reference;
}

struct erg_versus erg_compare(const struct erg_frontier *method, struct erg_point full_clock,
                              const struct erg_frontier *clocks)
{
    struct erg_versus versus = {NAN, NAN, NAN, NAN};
    struct erg_point p = {0}, q = {0};
    if (!find_ends(method, &p, &q))
        return versus;
    versus.max_throughput_time = reduction(full_clock.time_s, p.time_s);
    versus.max_throughput_energy = reduction(full_clock.energy_j, p.energy_j);
    if (!find_ends(clocks, &p, &q))
        return versus;
    double least_energy = INFINITY, least_time = INFINITY;
    for (size_t i = 0; i < method->count; i++) {
        const struct erg_point *point = &method->points[i];
        if (point->time_s <= with_slack(p.time_s))
            least_energy = fmin(least_energy, point->energy_j);
        if (point->energy_j <= with_slack(q.energy_j))
            least_time = fmin(least_time, point->time_s);
    }
    if (isfinite(least_energy))
        versus.iso_time_energy = reduction(p.energy_j, least_energy);
    if (isfinite(least_time))
        versus.iso_energy_time = reduction(q.time_s, least_time);
    return versus;
}
