/*
 * Composition of the largest published case: a backward instruction with recomputation under
 * context parallelism has 12 partition types (Kareus section 5.1); 18 clocks. The published
 * planner enumerates the product of the 12 lists at each clock.
 */
#include "base/clock.h"
#include "base/random.h"
#include "microbatch/microbatch.h"

#include <math.h>
#include <stdio.h>

enum { CLOCKS = 18, MOST_TYPES = 12 };

static struct erg_frontier lists[MOST_TYPES][CLOCKS];

/* Convex-ish lists like measured ones: fast and hungry to slow and thrifty. */
static void fill(struct erg_rng *rng, int types, int points)
{
    for (int k = 0; k < types; k++)
        for (int c = 0; c < CLOCKS; c++) {
            erg_frontier_clear(&lists[k][c]);
            double base = 1e-3 * (1 + erg_rng_uniform(rng)) * (1 + 0.03 * c);
            for (int i = 0; i < points; i++) {
                double x = (i + 0.8 * erg_rng_uniform(rng)) / points;
                erg_frontier_add(&lists[k][c], base * (1 + 0.2 * x),
                                 0.3 * (1 - 0.02 * c) * (1 - 0.1 * sqrt(x)), i);
            }
            erg_frontier_filter(&lists[k][c]);
        }
}

int main(void)
{
    struct erg_rng rng;
    erg_rng_seed(&rng, 1);
    const struct erg_host_model no_host = {0, 0};
    struct erg_cost none[CLOCKS] = {{0, 0}};
    printf("%-10s %-8s %12s %10s %14s\n", "partitions", "points", "compose ms", "options",
           "raw products");
    const int cases[][2] = {{2, 8}, {4, 8}, {5, 8}, {12, 4}, {12, 8}, {12, 16}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int types = cases[i][0], points = cases[i][1];
        fill(&rng, types, points);
        struct erg_partition_table tables[MOST_TYPES];
        for (int k = 0; k < types; k++)
            tables[k] = (struct erg_partition_table){1, 8, lists[k]};
        double start = erg_cpu_seconds();
        struct erg_layer *layer = erg_layer_compose(tables, (size_t)types, CLOCKS, &no_host, 85);
        struct erg_microbatch microbatch = {0};
        erg_microbatch_add_overlap(&microbatch, layer, 15, none);
        erg_microbatch_filter(&microbatch, 85);
        double seconds = erg_cpu_seconds() - start;
        printf("%-10d %-8d %12.2f %10zu %14.3g\n", types, points, 1e3 * seconds, microbatch.count,
               CLOCKS * pow(points, types));
        erg_microbatch_release(&microbatch);
        erg_layer_free(layer);
    }
    for (int k = 0; k < MOST_TYPES; k++)
        for (int c = 0; c < CLOCKS; c++)
            erg_frontier_release(&lists[k][c]);
    return 0;
}
