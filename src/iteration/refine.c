/* Searches plans near the best point of the planned frontier. */
#include "iteration/iteration_internal.h"

#include "base/memory.h"

#include <math.h>
#include <string.h>

/* The time of least planned energy. */
static double planned_least_s(const struct erg_iteration *iteration)
{
    const struct erg_breakpoint *planned = iteration->planned;
    double least_s = planned[0].time_s, least_j = erg_iteration_planned_energy(iteration, least_s);
    for (size_t i = 1; i < iteration->planned_count; i++) {
        double energy = erg_iteration_planned_energy(iteration, planned[i].time_s);
        if (energy < least_j) {
            least_j = energy;
            least_s = planned[i].time_s;
        }
    }
    return least_s;
}

/*
 * The time at which the planned energy meets the budget. It is within the budget at the first of
 * two times and beyond it at the other, and monotonic between them.
 */
static double planned_meeting_s(const struct erg_iteration *iteration, double budget_j,
                                double within_s, double beyond_s)
{
    for (int step = 0; step < 60; step++) {
        double middle = 0.5 * (within_s + beyond_s);
        if (erg_iteration_planned_energy(iteration, middle) <= budget_j)
            within_s = middle;
        else
            beyond_s = middle;
    }
    return within_s;
}

/* The shortest time whose planned energy fits the budget; the time of least energy if none does. */
static double planned_within_s(const struct erg_iteration *iteration, double budget_j)
{
    double shortest_s = iteration->planned[0].time_s;
    if (erg_iteration_planned_energy(iteration, shortest_s) <= budget_j)
        return shortest_s;
    return planned_meeting_s(iteration, budget_j, planned_least_s(iteration), shortest_s);
}

/* The longest such time; the time of least energy if none does. */
static double planned_until_s(const struct erg_iteration *iteration, double budget_j)
{
    double longest_s = iteration->planned[iteration->planned_count - 1].time_s;
    if (erg_iteration_planned_energy(iteration, longest_s) <= budget_j)
        return longest_s;
    return planned_meeting_s(iteration, budget_j, planned_least_s(iteration), longest_s);
}

void erg_iteration_add_plans(struct erg_iteration *iteration,
                             const struct erg_iteration_plan *plans, size_t count)
{
    iteration->plans = erg_xrealloc(iteration->plans, iteration->plan_count + count, sizeof *plans);
    memcpy(iteration->plans + iteration->plan_count, plans, count * sizeof *plans);
    iteration->plan_count += count;
    erg_iteration_sort_plans(iteration);
}

void erg_iteration_take_plans(struct erg_iteration *iteration, struct erg_iteration *from)
{
    erg_iteration_add_plans(iteration, from->plans, from->plan_count);
    from->plan_count = 0;
    erg_iteration_release(from);
}

int erg_iteration_refine_least(struct erg_iteration *iteration,
                               const struct erg_iteration_request *request, struct erg_error *err)
{
    enum { TRIES = 16 };
    static const double worth_it = 0.003; /* of the energy: full clock tables gain less */
    double least_j = iteration->frontier.points[iteration->frontier.count - 1].energy_j;
    double from = planned_least_s(iteration), to = planned_until_s(iteration, least_j);
    if (least_j <= erg_iteration_planned_energy(iteration, from) * (1 + worth_it) || to <= from)
        return 0;
    double deadlines[TRIES];
    for (size_t i = 0; i < TRIES; i++)
        deadlines[i] = from + (to - from) * (double)(i + 1) / TRIES;
    struct erg_iteration_request beyond = *request;
    beyond.points = beyond.slower_points = 0;
    beyond.deadlines_s = deadlines;
    beyond.deadline_count = TRIES;
    struct erg_iteration found;
    if (erg_iteration_solve(&found, &beyond, err) != 0)
        return -1;
    erg_iteration_take_plans(iteration, &found);
    return 0;
}

/* Cheap tries lead to the deadline that just fits; it and the next shorter one are kept. */
int erg_iteration_refine_budget(struct erg_iteration *iteration,
                                const struct erg_iteration_request *request, double budget_j,
                                struct erg_error *err)
{
    enum { TRIES = 25 };
    const struct erg_goal goal = {ERG_FASTEST, .energy_j = budget_j};
    size_t known = 0, fitting = 0;
    double from = planned_within_s(iteration, budget_j);
    double to = planned_until_s(iteration, budget_j);
    if (erg_iteration_pick(iteration, &goal, &known, NULL) == 0)
        to = iteration->plans[known].time_s;
    if (to <= from) /* the shortest time is within the budget already */
        return 0;
    double deadlines[TRIES];
    for (size_t i = 0; i < TRIES; i++)
        deadlines[i] = from + (to - from) * (double)i / TRIES;
    struct erg_iteration_request close = *request;
    close.points = close.slower_points = 0;
    close.deadlines_s = deadlines;
    close.deadline_count = TRIES;
    close.tries = true;
    struct erg_iteration tries;
    if (erg_iteration_solve(&tries, &close, err) != 0)
        return -1;
    double last_s[2] = {to, to};
    if (erg_iteration_pick(&tries, &goal, &fitting, NULL) == 0)
        last_s[0] = tries.plans[fitting].planned_time_s;
    last_s[1] = fmax(from, last_s[0] - (to - from) / TRIES);
    erg_iteration_release(&tries);
    close.deadlines_s = last_s;
    close.deadline_count = 2;
    close.tries = false;
    struct erg_iteration last;
    if (erg_iteration_solve(&last, &close, err) != 0)
        return -1;
    erg_iteration_take_plans(iteration, &last);
    return 0;
}
