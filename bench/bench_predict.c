/*
 * How well the emulated GPU predicts what real ones measured: every partition, layer and piece of
 * work outside the layers of a job's measurements.csv (ergon optimize --device cuda), predicted
 * from a GPU's constants alone; time, and energy where it was measured.
 *
 *   bench_predict JOB.yaml MEASUREMENTS.csv GPU...     [-v]: every row
 *
 * Without arguments: Llama 3.2 3B on two H200, by the catalogue's constants.
 */
#include "base/memory.h"
#include "base/text.h"
#include "device/emulated/emulated.h"
#include "io/csv.h"
#include "job/job.h"
#include "partition/partition.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SOURCE ERGON_TEST_SOURCE_DIR

struct errors {
    double *items;
    size_t count, capacity;
};

/* Of one kind of work, by its name in the file; the last one is all partitions. */
struct group {
    char name[64];
    struct errors time, energy, burst; /* signed, relative */
};

struct groups {
    struct group *items;
    size_t count, capacity;
};

static int by_size(const void *a, const void *b)
{
    double x = fabs(*(const double *)a), y = fabs(*(const double *)b);
    return (x > y) - (x < y);
}

static void print_errors(const struct errors *errors)
{
    if (!errors->count) {
        printf("  %26s", "");
        return;
    }
    double mean = 0;
    for (size_t i = 0; i < errors->count; i++)
        mean += errors->items[i] / (double)errors->count;
    qsort(errors->items, errors->count, sizeof *errors->items, by_size);
    printf("  %4zu %6.1f %6.1f %+7.1f", errors->count, 100 * fabs(errors->items[errors->count / 2]),
           100 * fabs(errors->items[errors->count - 1]), 100 * mean);
}

static struct group *group_of(struct groups *groups, const char *name)
{
    for (size_t i = 0; i < groups->count; i++)
        if (!strcmp(groups->items[i].name, name))
            return &groups->items[i];
    struct group group = {0};
    snprintf(group.name, sizeof group.name, "%s", name);
    ERG_PUSH(groups, items, group);
    return &groups->items[groups->count - 1];
}

/* The steps that a row of that name ran; false for a name that is not the job's. */
static bool steps_of(const struct erg_workload *w, const char *work, size_t slot, int sms,
                     struct erg_step *one, const struct erg_step **steps, size_t *count)
{
    static const char *const directions[] = {"forward", "backward"};
    for (size_t i = 0; i < w->forward_count + w->backward_count; i++)
        if (!strcmp(work, w->partitions[i].key) && slot <= w->partitions[i].task.op_count) {
            *one = (struct erg_step){.task = w->partitions[i].task, .launch = {slot, sms}};
            *steps = one;
            *count = 1;
            return true;
        }
    const struct erg_steps *found = NULL;
    for (int d = 0; d < 2; d++) {
        const struct {
            const char *prefix;
            const struct erg_steps *steps;
        } layers[] = {{"sequential layer", &w->sequential[d]},
                      {"nanobatched layer", &w->nanobatch[d]},
                      {"single nanobatched layer", &w->nanobatch_single[d]},
                      {"ends", &w->ends[d]}};
        for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
            char name[64];
            snprintf(name, sizeof name, "%s %s", layers[i].prefix, directions[d]);
            if (!strcmp(work, name))
                found = layers[i].steps;
        }
    }
    for (int f = 0; f < ERG_FIXED_COUNT; f++)
        if (!strcmp(work, erg_fixed_name((enum erg_fixed)f)))
            found = &w->fixed[f];
    if (!found)
        return false;
    *steps = found->steps;
    *count = found->count;
    return true;
}

static bool is_partition(const struct erg_workload *w, const char *work)
{
    for (size_t i = 0; i < w->forward_count + w->backward_count; i++)
        if (!strcmp(work, w->partitions[i].key))
            return true;
    return false;
}

static int predict_row(const struct erg_csv *csv, size_t r, const struct erg_workload *w,
                       const struct erg_gpu *gpu, const struct erg_stack *stack, bool verbose,
                       struct groups *groups, struct erg_error *err)
{
    static const char *const names[] = {
        "work", "slot", "sms", "kind", "time_s", "energy_j", "clock_effective_mhz"};
    size_t column[7];
    for (size_t i = 0; i < 7; i++)
        if (erg_csv_require(csv, names[i], &column[i], err))
            return -1;
    const char *work = erg_csv_text(csv, r, column[0]);
    bool full = !strcmp(erg_csv_text(csv, r, column[3]), "full");
    long slot, sms;
    double time_s, energy_j = NAN, clock;
    if (erg_csv_long(csv, r, column[1], &slot, err) || erg_csv_long(csv, r, column[2], &sms, err) ||
        erg_csv_double(csv, r, column[4], &time_s, err) ||
        (full && erg_csv_double(csv, r, column[5], &energy_j, err)) ||
        erg_csv_double(csv, r, column[6], &clock, err))
        return -1;
    struct erg_step one;
    const struct erg_step *steps;
    size_t count;
    if (!steps_of(w, work, (size_t)slot, (int)sms, &one, &steps, &count))
        return erg_csv_fail(csv, r, err, "the job has no work called \"%s\"", work);
    struct erg_emulated_result result;
    if (erg_emulated_run(gpu, stack, steps, count, gpu->clock_max_mhz, &result, err))
        return -1;
    double time_error = result.time_s / time_s - 1;
    for (int all = 0; all <= is_partition(w, work); all++) {
        struct group *group = group_of(groups, all ? "all partitions" : work);
        if (full) {
            ERG_PUSH(&group->time, items, time_error);
            ERG_PUSH(&group->energy, items, result.energy_j / energy_j - 1);
        } else {
            ERG_PUSH(&group->burst, items, time_error);
        }
    }
    if (verbose)
        printf(
            "%-28s slot %ld sms %2ld %s %8.3f ms %+6.1f%%  %8.3f J %+6.1f%%  %5.0f MHz %+6.1f%%\n",
            work, slot, sms, full ? "full " : "burst", time_s * 1e3, 100 * time_error, energy_j,
            100 * (result.energy_j / energy_j - 1), clock,
            100 * (result.clock_effective_mhz / clock - 1));
    return 0;
}

static int predict_all(const struct erg_job *job, const struct erg_csv *csv, const char *gpu_name,
                       bool verbose, struct erg_error *err)
{
    struct erg_gpu *gpu;
    struct erg_workload workload;
    struct groups groups = {0};
    if (erg_gpu_load(&gpu, gpu_name, err))
        return -1;
    struct erg_workload_request request = {
        .model = job->model,
        .gpu = gpu,
        .stack = job->stack,
        .tensor = job->tensor,
        .context = job->context,
        .microbatch_size = job->microbatch_size,
        .sequence = job->sequence,
        .recompute = job->recompute,
    };
    int status = erg_workload_build(&workload, &request, err);
    for (size_t r = 0; !status && r < erg_csv_rows(csv); r++)
        status = predict_row(csv, r, &workload, gpu, job->stack, verbose, &groups, err);
    if (!status) {
        erg_workload_release(&workload);
        printf("\n%s (%s)\n%-30s  %-26s  %-26s  %s\n", gpu_name, gpu->confidence, "percent",
               "   n time: median worst mean", "   n energy", "   n time of bursts");
        for (size_t i = 0; i < groups.count; i++) {
            printf("%-30s", groups.items[i].name);
            print_errors(&groups.items[i].time);
            print_errors(&groups.items[i].energy);
            print_errors(&groups.items[i].burst);
            puts("");
        }
    }
    for (size_t i = 0; i < groups.count; i++) {
        free(groups.items[i].time.items);
        free(groups.items[i].energy.items);
        free(groups.items[i].burst.items);
    }
    free(groups.items);
    erg_gpu_free(gpu);
    return status;
}

int main(int argc, char **argv)
{
    bool verbose = argc > 1 && !strcmp(argv[argc - 1], "-v");
    argc -= verbose;
    const char *job_path =
        argc > 2 ? argv[1] : SOURCE "/examples/h200/llama3.2-3b_tp2_mbs8_seq4096.yaml";
    const char *csv_path =
        argc > 2 ? argv[2] : SOURCE "/data/profiles/h200/llama3.2-3b_tp2_mbs8_seq4096.csv";
    struct erg_error err;
    struct erg_job_overrides overrides = {0};
    struct erg_job *job = NULL;
    struct erg_csv *csv = NULL;
    int status =
        erg_job_load(&job, job_path, &overrides, &err) || erg_csv_load(&csv, csv_path, &err);
    for (int i = 3; !status && i < (argc > 3 ? argc : 4); i++)
        status = predict_all(job, csv, argc > 3 ? argv[i] : "H200-SXM", verbose, &err);
    if (status)
        fprintf(stderr, "bench_predict: %s\n", err.message);
    if (csv)
        erg_csv_free(csv);
    if (job)
        erg_job_free(job);
    return status ? 1 : 0;
}
