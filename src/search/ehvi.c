/* Expected hypervolume improvement of two independent normal objectives. */
#include "search/search_internal.h"

#include <math.h>

/* E max(0, c - X), X ~ N(mean, sd^2). */
static double expected_excess(double c, double mean, double sd)
{
    double gap = c - mean;
    if (!(sd > 0.0))
        return gap > 0.0 ? gap : 0.0;
    double z = gap / sd;
    if (z > 9.0)
        return gap;
    if (z < -9.0)
        return 0.0;
    double density = exp(-0.5 * z * z) * 0.3989422804014327;
    double below = 0.5 * erfc(-z * 0.7071067811865476);
    double excess = gap * below + sd * density;
    return excess > 0.0 ? excess : 0.0;
}

struct erg_reference erg_reference_of(const struct erg_frontier *front, double margin)
{
    const struct erg_point *first = &front->points[0], *last = &front->points[front->count - 1];
    return (struct erg_reference){
        .time_s = last->time_s + margin * (last->time_s - first->time_s),
        .energy_j = first->energy_j + margin * (first->energy_j - last->energy_j),
    };
}

double erg_ehvi(const struct erg_frontier *front, struct erg_reference reference, double time_s,
                double time_sd_s, double energy_j, double energy_sd_j)
{
    double total = 0.0, ceiling = reference.energy_j, left = 0.0;
    for (size_t i = 0; i <= front->count; i++) {
        double edge = reference.time_s;
        if (i < front->count && front->points[i].time_s < edge)
            edge = front->points[i].time_s;
        double right = expected_excess(edge, time_s, time_sd_s);
        if (right > left)
            total += (right - left) * expected_excess(ceiling, energy_j, energy_sd_j);
        left = right;
        if (i == front->count || front->points[i].time_s >= reference.time_s)
            break;
        if (front->points[i].energy_j < ceiling)
            ceiling = front->points[i].energy_j;
    }
    return total;
}
