/* Power and energy of a day on the mini cluster, by what fake trainers logged. */
#ifndef ERGON_TESTS_LIVE_POWER_H
#define ERGON_TESTS_LIVE_POWER_H

#include "live_day.h"

#include <stdlib.h>

/* Energy above that of idle GPUs, in joules of real time: an incarnation draws the watts of its
 * plan from when it reads it until it leaves. `idle_w`: of a GPU by its name. */
static inline double drawn_j(const struct steps *steps, double (*idle_w)(const char *gpu))
{
    double sum_j = 0;
    for (size_t w = 0; w < steps->watts_count; w++) {
        const struct watts *from = &steps->watts[w];
        const struct life *life = &steps->lives[from->life];
        double until_s = life->until_s;
        for (size_t next = 0; next < steps->watts_count; next++)
            if (steps->watts[next].life == from->life && steps->watts[next].at_s > from->at_s)
                until_s = fmin(until_s, steps->watts[next].at_s);
        for (size_t s = 0; s < steps->stretches_count; s++)
            if (steps->stretches[s].incarnation == life->incarnation &&
                strcmp(steps->stretches[s].token, life->token) == 0)
                sum_j += fmax(0, until_s - from->at_s) *
                         (from->each_w - idle_w(steps->stretches[s].gpu));
    }
    return sum_j;
}

/* ---- on the GPUs of test_live_faults.c ---- */

static inline int compare_watts(const void *a, const void *b)
{
    const struct watts *x = a, *y = b;
    return (x->at_s > y->at_s) - (x->at_s < y->at_s);
}

static inline double idle_of_two_w(const char *gpu)
{
    return gpu[0] == 'h' ? 70 : 50;
}

/* What all may draw at a moment, by the plan files as their trainers read them: until the first is
 * read that one counts. */
static inline double draw_w(const struct steps *steps, double at_s)
{
    double sum_w = 8 * 70 + 8 * 50;
    for (size_t k = 0; k < steps->lives_count; k++) {
        const struct life *life = &steps->lives[k];
        double each_w = 0;
        if (at_s < life->from_s || at_s > life->until_s)
            continue;
        for (size_t w = 0; w < steps->watts_count; w++)
            if (steps->watts[w].life == k && (each_w == 0 || steps->watts[w].at_s <= at_s))
                each_w = steps->watts[w].each_w;
        for (size_t s = 0; each_w > 0 && s < steps->stretches_count; s++)
            if (steps->stretches[s].incarnation == life->incarnation &&
                strcmp(steps->stretches[s].token, life->token) == 0)
                sum_w += fmax(0, each_w - idle_of_two_w(steps->stretches[s].gpu));
    }
    return sum_w;
}

/* The most of all moments: a sum rises only where a plan is read or a life begins. */
static inline double most_drawn_w(struct steps *steps)
{
    double most_w = 0;
    qsort(steps->watts, steps->watts_count, sizeof *steps->watts, compare_watts);
    for (size_t w = 0; w < steps->watts_count; w++) {
        most_w = fmax(most_w, draw_w(steps, steps->watts[w].at_s));
        most_w = fmax(most_w, draw_w(steps, steps->lives[steps->watts[w].life].from_s));
    }
    return most_w;
}

#endif
