/*
 * What two pieces of work, each with ways of its own, can do one after the other: frontier
 *
 *     cc frontier.c $(pkg-config --cflags --libs ergon) -o frontier && ./frontier
 */
#include <ergon/frontier.h>
#include <stdio.h>

int main(void)
{
    struct erg_frontier forward, backward, both;
    erg_frontier_init(&forward);
    erg_frontier_init(&backward);
    erg_frontier_init(&both);
    erg_frontier_add(&forward, 0.10, 40, 1410); /* seconds, joules, MHz */
    erg_frontier_add(&forward, 0.12, 33, 1200);
    erg_frontier_add(&forward, 0.13, 35, 1000); /* beaten by 1200 MHz */
    erg_frontier_add(&backward, 0.20, 82, 1410);
    erg_frontier_add(&backward, 0.23, 66, 1200);
    erg_frontier_filter(&forward);
    erg_frontier_filter(&backward);
    erg_frontier_sum(&both, &forward, &backward);
    for (size_t i = 0; i < both.count; i++) {
        const struct erg_point *point = &both.points[i];
        const size_t a = (size_t)point->recipe / backward.count,
                     b = (size_t)point->recipe % backward.count;
        printf("%.2f s %.0f J: forward at %d MHz, backward at %d MHz\n", point->time_s,
               point->energy_j, (int)forward.points[a].recipe, (int)backward.points[b].recipe);
    }
    const ptrdiff_t within = erg_frontier_pick_deadline(&both, 0.34);
    if (within >= 0)
        printf("within 0.34 s: %.0f J\n", both.points[within].energy_j);
    erg_frontier_release(&forward);
    erg_frontier_release(&backward);
    erg_frontier_release(&both);
    return 0;
}
