/* What a method saves against the references of the published evaluation. */
#include "plan/plan.h"

#include <math.h>

static double with_slack(double bound)
{
    return bound * (1 + 1e-9);
}

/* The fastest point, of equally fast ones the cheapest. */
static const struct erg_point *fastest(const struct erg_frontier *list)
{
    const struct erg_point *best = NULL;
    for (size_t i = 0; i < list->count; i++) {
        const struct erg_point *p = &list->points[i];
        if (!best || p->time_s < best->time_s ||
            (p->time_s == best->time_s && p->energy_j < best->energy_j))
            best = p;
    }
    return best;
}

/* The cheapest point, of equally cheap ones the fastest. */
static const struct erg_point *cheapest(const struct erg_frontier *list)
{
    const struct erg_point *best = NULL;
    for (size_t i = 0; i < list->count; i++) {
        const struct erg_point *p = &list->points[i];
        if (!best || p->energy_j < best->energy_j ||
            (p->energy_j == best->energy_j && p->time_s < best->time_s))
            best = p;
    }
    return best;
}

static double reduction(double reference, double value)
{
    return 100 * (reference - value) / reference;
}

struct erg_versus erg_compare(const struct erg_frontier *method, struct erg_point full_clock,
                              const struct erg_frontier *clocks)
{
    struct erg_versus versus = {NAN, NAN, NAN, NAN};
    const struct erg_point *own = fastest(method);
    if (!own)
        return versus;
    versus.max_throughput_time = reduction(full_clock.time_s, own->time_s);
    versus.max_throughput_energy = reduction(full_clock.energy_j, own->energy_j);

    const struct erg_point *p = fastest(clocks), *q = cheapest(clocks);
    if (!p)
        return versus;
    double least_energy = INFINITY, least_time = INFINITY;
    for (size_t i = 0; i < method->count; i++) {
        const struct erg_point *point = &method->points[i];
        if (point->time_s <= with_slack(p->time_s))
            least_energy = fmin(least_energy, point->energy_j);
        if (point->energy_j <= with_slack(q->energy_j))
            least_time = fmin(least_time, point->time_s);
    }
    if (isfinite(least_energy))
        versus.iso_time_energy = reduction(p->energy_j, least_energy);
    if (isfinite(least_time))
        versus.iso_energy_time = reduction(q->time_s, least_time);
    return versus;
}
