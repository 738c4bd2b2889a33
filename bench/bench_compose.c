/*
 * Composition of the largest published case: a backward instruction with recomputation under
 * context parallelism has 12 partition types (Kareus, partitions); 18 clocks. First with every
 * configuration of the published workloads' partitions on the emulated A100, then with synthetic
 * lists of which no point falls away early. The published planner enumerates the product of the
 * 12 lists at each clock.
 */
#include "base/clock.h"
#include "base/random.h"
#include "device/emulated/emulated.h"
#include "job/job.h"
#include "microbatch/microbatch.h"
#include "partition/partition.h"

#include <math.h>
#include <stdio.h>

enum { CLOCKS = 18, MOST_TYPES = 12 };

static struct erg_frontier lists[MOST_TYPES][CLOCKS];

static void report(const char *name, int types, const struct erg_partition_table *tables)
{
    const struct erg_host_model no_host = {0, 0};
    struct erg_cost none[CLOCKS] = {{0, 0}};
    double products = 0;
    for (int c = 0; c < CLOCKS; c++) {
        double product = 1;
        for (int k = 0; k < types; k++)
            product *= (double)tables[k].clocks[c].count;
        products += product;
    }
    double start = erg_cpu_seconds();
    struct erg_layer *layer = erg_layer_compose(tables, (size_t)types, CLOCKS, &no_host, 85);
    struct erg_microbatch microbatch = {0};
    erg_microbatch_add_overlap(&microbatch, layer, 15, none);
    erg_microbatch_filter(&microbatch, 85);
    double seconds = erg_cpu_seconds() - start;
    printf("%-36s %10d %10.2f %8zu %12.3g\n", name, types, 1e3 * seconds, microbatch.count,
           products);
    erg_microbatch_release(&microbatch);
    erg_layer_free(layer);
}

static int real_case(const char *name, struct erg_error *err)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/examples/kareus/%s.yaml", ERGON_TEST_SOURCE_DIR, name);
    struct erg_job *job;
    if (erg_job_load(&job, path, NULL, err))
        return -1;
    struct erg_workload_request request = {
        .model = job->model,
        .gpu = job->gpu,
        .stack = job->stack,
        .tensor = job->layout.tensor,
        .context = job->layout.context,
        .microbatch_size = job->layout.microbatch,
        .sequence = job->layout.sequence,
        .recompute = true,
    };
    struct erg_workload workload;
    if (erg_workload_build(&workload, &request, err))
        return -1;
    int types = (int)(workload.forward_count + workload.backward_count);
    struct erg_partition_table tables[MOST_TYPES];
    for (int k = 0; k < types; k++) {
        const struct erg_partition *p = &workload.partitions[k];
        for (int c = 0; c < CLOCKS; c++) {
            erg_frontier_clear(&lists[k][c]);
            for (size_t slot = 0; slot < p->slot_count; slot++)
                for (size_t s = 0; s < p->sms_count; s++) {
                    struct erg_step step = erg_partition_step(p, slot, p->sms[s]);
                    struct erg_emulated_result result;
                    if (erg_emulated_run(job->gpu, job->stack, &step, 1, 900 + 30 * c, &result,
                                         err))
                        return -1;
                    erg_frontier_add(&lists[k][c], result.time_s, result.energy_j, 0);
                }
        }
        tables[k] = (struct erg_partition_table){p->occurrences, p->kernels, lists[k]};
    }
    report(name, types, tables);
    erg_workload_release(&workload);
    erg_job_free(job);
    return 0;
}

/* Convex lists: fast and hungry to slow and thrifty. */
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
    printf("%-36s %10s %10s %8s %12s\n", "case", "partitions", "CPU ms", "options", "raw products");
    static const char *const jobs[] = {
        "llama3.2-3b_tp8_mbs8_seq4096", "llama3.2-3b_cp2tp4_mbs8_seq4096",
        "llama3.2-3b_cp2tp4_mbs8_seq8192", "qwen3-1.7b_cp2tp4_mbs16_seq4096"};
    struct erg_error err = {0};
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++)
        if (real_case(jobs[i], &err)) {
            fprintf(stderr, "%s: %s\n", jobs[i], err.message);
            return 1;
        }
    struct erg_rng rng;
    erg_rng_seed(&rng, 1);
    const int cases[][2] = {{4, 8}, {12, 4}, {12, 8}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int types = cases[i][0], points = cases[i][1];
        fill(&rng, types, points);
        struct erg_partition_table tables[MOST_TYPES];
        for (int k = 0; k < types; k++)
            tables[k] = (struct erg_partition_table){1, 8, lists[k]};
        char name[64];
        snprintf(name, sizeof name, "synthetic, %d points per list", points);
        report(name, types, tables);
    }
    for (int k = 0; k < MOST_TYPES; k++)
        for (int c = 0; c < CLOCKS; c++)
            erg_frontier_release(&lists[k][c]);
    return 0;
}
